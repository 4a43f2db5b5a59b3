"""A reward model, and its files: a scalar head on the hidden state of the last token of a conversation.

    r(x, y) = w · h(x, y)

h is the trunk's hidden state at the last token of prompt and completion, with the adapter that was trained together
with the head w on pairs (Bradley–Terry: σ(r(x, y⁺) − r(x, y⁻)) is the probability that y⁺ is preferred). The files are
those of PEFT and transformers for sequence classification with one label, so they are interchangeable.

::

    02-reward/adapter/
      adapter_model.safetensors    the adapter and, as `score`, the head: PEFT's file for sequence classification
      reward_model.json            its base: path, and a digest of the weights

A folder (or hub name) of a full model with a head of one label is a reward model as well.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rlm_algorithms.auxiliary_lm import load_adapter
from rlm_algorithms.auxiliary_part import messages_without_special_tokens, without_special_tokens
from rlm_algorithms.score_head import ScoreHead

from rlm_plugins.data import tables
from rlm_plugins.errors import RlmError
from rlm_plugins.models.adapters import FILE, evaluation_mode

Context = Callable[[], Any]


class RewardModel:
    """A trunk and a head that score conversations.

    Args:
        trunk: Token ids → hidden states; a transformer without its language head.
        head: (…, H) → (…, 1).
        tokenizer: The tokenizer of its training.
        active: A context in which the trunk is this model's, in evaluation mode without gradient.
        device: Device of the trunk.
    """

    def __init__(self, trunk: Any, head: Any, tokenizer: Any, active: Context, device: Any) -> None:
        self.trunk, self.head, self.tokenizer = trunk, head, tokenizer
        self._active, self._device = active, device

    def scores(self, sequences: Sequence[list[int]], batch_size: int) -> list[float]:
        """Return one score per sequence of token ids; batches are formed by length, which changes no score."""
        order = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
        scores = [0.0] * len(sequences)
        with self._active():
            for start in range(0, len(order), batch_size):
                indices = order[start : start + batch_size]
                for i, score in zip(indices, self._forward([sequences[i] for i in indices]), strict=True):
                    scores[i] = score
        return scores

    def _forward(self, rows: list[list[int]]) -> list[float]:
        pad = self.tokenizer.pad_token_id
        width = max(map(len, rows))
        ids = torch.tensor([row + [pad] * (width - len(row)) for row in rows], device=self._device)
        attention_mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=self._device)
        hidden = self.trunk(input_ids=ids, attention_mask=attention_mask, use_cache=False).last_hidden_state
        last = ((ids != pad) * torch.arange(width, device=self._device)).argmax(1)  # as in transformers
        scores: list[float] = self.head(hidden[torch.arange(len(rows), device=self._device), last]).squeeze(-1).tolist()
        return scores


def conversation_ids(tokenizer: Any, prompt: Any, completion: Any) -> list[int]:
    """Return the input of a reward model for a prompt and a completion, in training and in scoring.

    A special token that the completion spells is broken up.

    Args:
        tokenizer: Of the reward model.
        prompt: Text, or chat messages.
        completion: Text (in a conversation: the assistant's message), or the messages that follow the prompt; also a
            conversation that begins with the prompt.
    """
    if isinstance(prompt, str):
        end = tokenizer.eos_token
        completion = without_special_tokens(tokenizer, completion.removesuffix(end))
        return list(tokenizer(prompt + completion + end)["input_ids"])
    messages = [{"role": "assistant", "content": completion}] if isinstance(completion, str) else list(completion)
    own = messages[len(prompt) :] if messages[: len(prompt)] == list(prompt) else messages
    messages = [*prompt, *messages_without_special_tokens(tokenizer, own)]
    return list(tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True)["input_ids"])


NOTE = "reward_model.json"
_HEAD = "base_model.model.score."
_NO_HEAD = "a reward model requires a score head, which is missing"
_SAMPLE = 16
"""Sampled numbers per weight tensor in the digest."""


def base_digest(trunk: torch.nn.Module) -> str:
    """Return a digest of the frozen weights of a trunk; adapters are ignored."""
    digest = hashlib.blake2b(digest_size=16)
    frozen = {name.replace(".base_layer.", "."): x for name, x in trunk.named_parameters() if ".lora_" not in name}
    for name in sorted(frozen):
        x = frozen[name].detach().flatten()
        sample = x[:: max(1, x.numel() // _SAMPLE)].float().cpu().numpy()
        digest.update(f"{name} {x.numel()} ".encode() + sample.tobytes())
    return digest.hexdigest()


def save_base_reference(folder: Path, base: str, trunk_digest: str) -> None:
    """Save the base of an adapter; a folder as a relative path, so that both can be moved together."""
    where = os.path.relpath(base, folder) if Path(base).is_dir() else base
    (folder / NOTE).write_text(json.dumps({"base": where, "digest": trunk_digest}, indent=2) + "\n")


def check_files(folder: Path | str) -> None:
    """Check that a folder or hub name is a reward model, before its weights are loaded."""
    if isinstance(folder, str):
        try:
            _is_classifier(folder)
        except (OSError, ValueError) as error:
            raise _unloadable("its config", folder, error) from None
    elif _is_adapter(folder):
        _head(folder, "cpu")
    elif not (folder / "config.json").is_file():
        raise RlmError("no reward model in this folder", where=str(folder), allowed="an adapter, or a full model")


def memory_bytes(config: Any, adapter_or_folder: Mapping[str, Any] | Path | None, *, shares: bool) -> int:
    """Estimate the memory of a reward model in bytes, before it exists.

    Args:
        config: Config of the policy, which has the same base.
        adapter_or_folder: Fields of the adapter that will be trained (None: all weights), or the folder of the model.
        shares: True if it may share the policy's base.
    """
    from rlm_plugins.models.scratch import skeleton, trained_bytes

    head = 4 * (int(config.get_text_config().hidden_size) + 1)
    base = sum(x.numel() * x.element_size() for x in skeleton(config, None).parameters())
    if isinstance(adapter_or_folder, Path):
        files = sum(file.stat().st_size for file in adapter_or_folder.glob("*.safetensors"))
        return files + (base if _is_adapter(adapter_or_folder) and not shares else 0)
    adapter = 0 if adapter_or_folder is None else trained_bytes(skeleton(config, adapter_or_folder))
    return adapter + head + (0 if adapter_or_folder is not None and shares else base)


def load_on_policy_base(folder: Path, policy: Any) -> RewardModel | None:
    """Load a reward model on the frozen base of a policy; None if its base differs or the policy has none.

    Raises:
        RlmError: It has no head.
    """
    if not (_is_adapter(folder) and (folder / NOTE).is_file() and hasattr(policy, "get_base_model")):
        return None
    trunk = policy.get_base_model().base_model
    trained = any(x.requires_grad and ".lora_" not in name for name, x in trunk.named_parameters())
    if trained or base_digest(trunk) != _base_reference(folder)["digest"]:
        return None
    head = _head(folder, policy.device)
    used = {name for module in trunk.modules() for name in getattr(module, "lora_A", ())}
    adapter = load_adapter(policy, f"reward{sum(name.startswith('reward') for name in used)}", folder)
    return RewardModel(trunk, head, _tokenizer(folder), adapter.active, policy.device)


def load_with_own_base(path: str | Path, device: Any) -> RewardModel:
    """Load a reward model of a folder or hub name with a base of its own in memory."""
    folder, adapter = Path(path), None
    base: str | Path = path
    if _is_adapter(folder):
        adapter, base = _head(folder, device), base_path(folder)
    model, lacks_head = _load(str(base))
    if adapter is None and (lacks_head or model.config.num_labels != 1):
        problem = _NO_HEAD if lacks_head else f"expected a head with 1 label, got {model.config.num_labels} labels"
        raise RlmError(problem, where=str(path))
    if adapter is not None:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, folder).get_base_model()
    model = model.to(device).requires_grad_(False)
    head = adapter or ScoreHead.from_weights(model.score.weight, model.score.bias, device)
    return RewardModel(model.base_model, head, _tokenizer(path), partial(evaluation_mode, model), device)


def load_peft_model(folder: Path) -> Any:
    """Load the adapter and head of a reward model on a base of its own, as `peft.PeftModel` of a classifier."""
    from peft import PeftModel

    return PeftModel.from_pretrained(_load(str(base_path(folder)))[0], folder)


def _is_adapter(folder: Path) -> bool:
    return (folder / "adapter_config.json").is_file()


def _base_reference(folder: Path) -> dict[str, str]:
    return json.loads((folder / NOTE).read_text())


def base_path(folder: Path) -> str | Path:
    """Return the base of the adapter in a folder."""
    if not (folder / NOTE).is_file():  # trained by another program: PEFT's entry
        return str(json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"])
    base = _base_reference(folder)["base"]
    return folder / base if (folder / base).is_dir() else base


def _head(folder: Path, device: Any) -> ScoreHead:
    from safetensors.torch import load_file

    saved = load_file(folder / FILE) if (folder / FILE).is_file() else {}
    if f"{_HEAD}weight" not in saved:
        raise RlmError(_NO_HEAD, where=str(folder), hint="a stage with `algorithm: reward_model` saves it")
    return ScoreHead.from_weights(saved[f"{_HEAD}weight"], saved.get(f"{_HEAD}bias"), device)


def _load(path: str) -> tuple[Any, bool]:
    """Load a model for sequence classification, and return True with it if its head is not in the files."""
    from transformers import AutoModelForSequenceClassification
    from transformers.utils import logging

    dtype = "auto" if torch.accelerator.is_available() else torch.float32
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # no warning about a new head: ours is in a file of its own
    try:
        config: dict[str, Any] = {} if _is_classifier(path) else {"num_labels": 1}
        with torch.random.fork_rng():
            model, loading_info = AutoModelForSequenceClassification.from_pretrained(
                path, dtype=dtype, output_loading_info=True, trust_remote_code=False, **config
            )
    except (OSError, ValueError) as error:
        raise _unloadable("its base model", path, error) from None
    finally:
        logging.set_verbosity(verbosity)
    return model, any(name.startswith("score.") for name in loading_info["missing_keys"])


def _is_classifier(path: str) -> bool:
    """Return True if the config is of a sequence classifier, and so has a number of labels."""
    from transformers import AutoConfig

    architectures = AutoConfig.from_pretrained(path, trust_remote_code=False).architectures or ()
    return any("SequenceClassification" in name for name in architectures)


def _unloadable(component: str, path: str, error: Exception) -> RlmError:
    hint = tables.advice(Path(path) if Path(path).exists() else None)
    return RlmError(f"{component} cannot be loaded: {' '.join(str(error).split())}", where=path, hint=hint)


def _tokenizer(path: str | Path) -> Any:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer
