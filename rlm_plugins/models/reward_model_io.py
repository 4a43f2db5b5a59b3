"""A reward model on disk: what its engine leaves, and how it is found again, on the policy's base or on its own.

::

    02-reward/adapter/
      adapter_model.safetensors    the adapter and, as `score`, the head: PEFT's file for sequence classification
      reward_model.json            the base it stands on: where it lies, and a digest of its weights

A folder (or hub name) of a whole model with a head of one label is a reward model as well.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rlm_plugins.data import hub
from rlm_plugins.errors import RlmError
from rlm_plugins.models.adapters import FILE, evaluation_mode, load_adapter
from rlm_plugins.models.reward_model import RewardModel, ScoreHead

NOTE = "reward_model.json"
_HEAD = "base_model.model.score."
_NO_HEAD = "there is no score head here, and a reward model without it says nothing"
_SAMPLE = 16
"""Numbers per weight that the digest looks at."""


def base_digest(trunk: torch.nn.Module) -> str:
    """Two trunks with the same frozen weights have the same; adapters on them do not count."""
    found = hashlib.blake2b(digest_size=16)
    frozen = {name.replace(".base_layer.", "."): x for name, x in trunk.named_parameters() if ".lora_" not in name}
    for name in sorted(frozen):
        x = frozen[name].detach().flatten()
        sample = x[:: max(1, x.numel() // _SAMPLE)].float().cpu().numpy()
        found.update(f"{name} {x.numel()} ".encode() + sample.tobytes())
    return found.hexdigest()


def save_base_reference(folder: Path, base: str, trunk_digest: str) -> None:
    """Writes down what an adapter stands on; a folder by the way from here to there, so that both can be moved."""
    where = os.path.relpath(base, folder) if Path(base).is_dir() else base
    (folder / NOTE).write_text(json.dumps({"base": where, "digest": trunk_digest}, indent=2) + "\n")


def check_files(folder: Path | str) -> None:
    """Whether the files of a folder are a reward model, before any weight is loaded; of a hub name, whether it is one.

    Raises:
        RlmError: They are not; it says what is missing.
    """
    if isinstance(folder, str):
        try:
            _labelled(folder)
        except (OSError, ValueError) as error:
            raise _unloadable("its config", folder, error) from None
    elif _is_adapter(folder):
        _head(folder, "cpu")
    elif not (folder / "config.json").is_file():
        raise RlmError("there is no reward model here", where=str(folder), allowed="an adapter, or a whole model")


def memory_bytes(config: Any, made: Mapping[str, Any] | Path | None, *, shares: bool) -> int:
    """Bytes of a reward model in memory, before there is one.

    Args:
        config: The policy's, which is that of its base.
        made: The adapter it will be trained with (None: all weights are), or the folder it lies in.
        shares: Whether it may be read with the policy's base.
    """
    from rlm_plugins.estimate.meta_model import skeleton, trained_bytes

    head = 4 * (int(config.get_text_config().hidden_size) + 1)
    base = sum(x.numel() * x.element_size() for x in skeleton(config, None).parameters())
    if isinstance(made, Path):
        files = sum(file.stat().st_size for file in made.glob("*.safetensors"))
        return files + (base if _is_adapter(made) and not shares else 0)
    adapter = 0 if made is None else trained_bytes(skeleton(config, made))
    return adapter + head + (0 if made is not None and shares else base)


def load_on_policy_base(folder: Path, policy: Any) -> RewardModel | None:
    """The reward model of a folder on the frozen base of a policy; None where that is another base, or none.

    Args:
        folder: As an engine left it.
        policy: The model that is trained.

    Raises:
        RlmError: It has no head.
    """
    if not (_is_adapter(folder) and (folder / NOTE).is_file() and hasattr(policy, "get_base_model")):
        return None
    trunk = policy.get_base_model().base_model
    moves = any(x.requires_grad and ".lora_" not in name for name, x in trunk.named_parameters())
    if moves or base_digest(trunk) != _note(folder)["digest"]:
        return None
    head = _head(folder, policy.device)
    taken = {name for module in trunk.modules() for name in getattr(module, "lora_A", ())}
    adapter = load_adapter(policy, f"reward{sum(name.startswith('reward') for name in taken)}", folder)
    return RewardModel(trunk, head, _tokenizer(folder), adapter.active, policy.device)


def load_with_own_base(path: str | Path, device: Any) -> RewardModel:
    """The reward model of a folder, or of a name on the hub, with a base in memory that is its own.

    Raises:
        RlmError: It has no head of one label, or its base is not where it was.
    """
    folder, adapter = Path(path), None
    base: str | Path = path
    if _is_adapter(folder):
        adapter, base = _head(folder, device), _base(folder)
    model, lacks = _load(str(base))
    if adapter is None and (lacks or model.config.num_labels != 1):
        problem = _NO_HEAD if lacks else f"its head has {model.config.num_labels} labels, and a reward is one number"
        raise RlmError(problem, where=str(path))
    if adapter is not None:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, folder).get_base_model()
    model = model.to(device).requires_grad_(False)
    head = adapter or ScoreHead.of(model.score.weight, model.score.bias, device)
    return RewardModel(model.base_model, head, _tokenizer(path), partial(evaluation_mode, model), device)


def _is_adapter(folder: Path) -> bool:
    return (folder / "adapter_config.json").is_file()


def _note(folder: Path) -> dict[str, str]:
    return json.loads((folder / NOTE).read_text())


def _base(folder: Path) -> str | Path:
    """What the adapter in a folder stands on."""
    if not (folder / NOTE).is_file():  # made elsewhere: PEFT's own word
        return str(json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"])
    base = _note(folder)["base"]
    return folder / base if (folder / base).is_dir() else base


def _head(folder: Path, device: Any) -> ScoreHead:
    from safetensors.torch import load_file

    saved = load_file(folder / FILE) if (folder / FILE).is_file() else {}
    if f"{_HEAD}weight" not in saved:
        raise RlmError(_NO_HEAD, where=str(folder), hint="it is written by a stage with `algorithm: reward_model`")
    return ScoreHead.of(saved[f"{_HEAD}weight"], saved.get(f"{_HEAD}bias"), device)


def _load(path: str) -> tuple[Any, bool]:
    """A model for sequence classification, and whether its head is not in the files."""
    from transformers import AutoModelForSequenceClassification
    from transformers.utils import logging

    held = "auto" if torch.accelerator.is_available() else torch.float32
    loud = logging.get_verbosity()
    logging.set_verbosity_error()  # of a base it would say that the head is new: that is in a file of its own
    try:
        config: dict[str, Any] = {} if _labelled(path) else {"num_labels": 1}
        with torch.random.fork_rng():
            model, told = AutoModelForSequenceClassification.from_pretrained(
                path, dtype=held, output_loading_info=True, **config
            )
    except (OSError, ValueError) as error:
        raise _unloadable("the model under it", path, error) from None
    finally:
        logging.set_verbosity(loud)
    return model, any(name.startswith("score.") for name in told["missing_keys"])


def _labelled(path: str) -> bool:
    """Whether a config says how many labels its model has."""
    from transformers import AutoConfig

    return any("SequenceClassification" in name for name in AutoConfig.from_pretrained(path).architectures or ())


def _unloadable(what: str, path: str, error: Exception) -> RlmError:
    hint = hub.advice(Path(path) if Path(path).exists() else None)
    return RlmError(f"{what} cannot be loaded: {' '.join(str(error).split())}", where=path, hint=hint)


def _tokenizer(path: str | Path) -> Any:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer
