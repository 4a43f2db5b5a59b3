"""Models in GGUF, the format of llama.cpp: converted to safetensors once, into the cache."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable
from contextlib import redirect_stderr
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlm_interop.cached_folder import create_once
from rlm_plugins.durable.lock import cache_folder
from rlm_plugins.errors import RecipeError, RlmError
from rlm_plugins.models.fingerprints import digest_of_file
from rlm_plugins.models.pretrained import CARD, Checkpoint, WeightsNotice, front_matter, with_pad_token

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

WHERE = "model.gguf_file"


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
        """Path of the converted model."""
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
            raise RecipeError(f"'{self.file}' lacks the weight {missing[0]}{more}", where=WHERE)
        if different := sorted(loading_info["mismatched_keys"]):
            name, shape, expected_shape = different[0]
            problem = f"the weight {name} has the shape {list(shape)}, and its header means {list(expected_shape)}"
            raise RecipeError(f"'{self.file}': {problem}", where=WHERE)
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
        return RecipeError(problem, where=WHERE, hint=hint)

    def _require_reader(self) -> None:
        if importlib.util.find_spec("gguf") is None:
            raise RecipeError(
                f"'{self.file.name}' requires the package gguf, which is not installed",
                where=WHERE,
                hint="pip install 'rlm-interop[gguf]'",
            )
