"""Sources of a teacher's log-probs: adapters on the policy's base, a model of its own, or a part of `rlm_teachers`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from rlm_algorithms.auxiliary_lm import adapter_config_like, load_adapter
from rlm_algorithms.vocabulary import Head, head_of
from rlm_plugins.errors import RlmError
from rlm_plugins.models.adapters import Adapter, new_adapter, sequence_logprobs
from rlm_plugins.registry.part import Bound
from rlm_plugins.rewards.columns import text_of
from rlm_plugins.rollout.dynamic_sampling import pad_sequences, stack
from rlm_plugins.trainer.passes import prompt_completion


def average_config(policy: Any) -> Any:
    """Return the policy's LoRA config with twice its rank and the scale 1, for products of two adapters."""
    config = adapter_config_like(policy)
    config.r, config.rank_pattern = 2 * config.r, {name: 2 * rank for name, rank in config.rank_pattern.items()}
    config.lora_alpha, config.alpha_pattern = config.r, dict(config.rank_pattern)
    config.use_rslora = False
    return config


class RunningAverage:
    """Running average of ΔW = s B A of a LoRA adapter: ΔW_T ← (1 − τ) ΔW_T + τ ΔW, of twice the rank.

    The average of A and of B is not that of B A. The sum has the rank of both, and is cut by a singular value
    decomposition to the largest values that the average can hold.

    Args:
        policy: A PEFT model.
        adapter: The average.
    """

    def __init__(self, policy: Any, adapter: Adapter) -> None:
        self._policy, self._adapter = policy, adapter

    def update(self, rate: float) -> None:
        """Take a step with τ = `rate`; 1: copy the policy's."""
        with torch.no_grad():
            for module, own, average in self._layers():
                a, b = module.lora_A[own].weight.float(), module.lora_B[own].weight.float()
                a_mean, b_mean = module.lora_A[average].weight, module.lora_B[average].weight
                left = torch.cat([(1 - rate) * b_mean.float(), rate * module.scaling[own] * b], 1)
                right = torch.cat([a_mean.float(), a])
                left, right = truncated(left, right, a_mean.shape[0])
                b_mean.copy_(left)
                a_mean.copy_(right)

    def _layers(self) -> Iterator[tuple[Any, str, str]]:
        own, name = self._policy.active_adapter, next(iter(self._adapter.weights())).split(".lora_")[1].split(".")[1]
        for module in self._policy.modules():
            if name in getattr(module, "lora_A", {}):
                yield module, own, name


def truncated(left: torch.Tensor, right: torch.Tensor, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return factors (out, rank) and (rank, in) of the product `left` (out, n) · `right` (n, in), the closest ones.

    >>> left, right = truncated(torch.eye(3)[:, :2], torch.eye(3)[:2], 2)
    >>> torch.allclose(left @ right, torch.diag(torch.tensor([1.0, 1.0, 0.0])), atol=1e-6)
    True
    """
    q_left, r_left = torch.linalg.qr(left)
    q_right, r_right = torch.linalg.qr(right.T)
    u, values, v = torch.linalg.svd(r_left @ r_right.T)
    rank = min(rank, len(values))
    root = values[:rank].sqrt()
    return q_left @ (u[:, :rank] * root), (root.unsqueeze(1) * v[:rank]) @ q_right.T


PROBES = 100
"""Prompts on which the tokenizer of a model is compared with the policy's."""
Ids = Sequence[Sequence[int]]


class SameBase:
    """The policy's base with another adapter, without one, or with the policy's.

    Args:
        trainer: The trainer of the policy.
        model: ``base``, ``live``, ``ema``, or the folder of an adapter.
        name: Name of a new adapter in the layers.
        rate: Weight of the policy in a step of the average.
    """

    def __init__(self, trainer: Any, model: str, name: str, rate: float = 0.0) -> None:
        self._trainer, self._model, self._rate = trainer, model, rate
        self.policy = trainer.accelerator.unwrap_model(trainer.model)
        self._adapter: Adapter | None = None
        if model == "ema":
            self._adapter = new_adapter(self.policy, name, average_config(self.policy), trainable=False)
            self._average = RunningAverage(self.policy, self._adapter)
            self._average.update(1.0)
        elif model not in ("base", "live"):
            self._adapter = load_adapter(self.policy, name, Path(model))

    @cached_property
    def head(self) -> Head:
        """The head of the policy."""
        return head_of(self.policy)

    def active(self) -> AbstractContextManager[Any]:
        """Return a context in which the policy is the teacher."""
        if self._adapter is not None:
            return self._adapter.active()
        return self.policy.disable_adapter() if self._model == "base" else nullcontext()  # type: ignore[no-any-return]

    def logp(self, prompt_ids: Ids, completion_ids: Ids) -> torch.Tensor:
        """Return log-probs (n, longest), at the temperature of the policy."""
        with self.active():
            logp: torch.Tensor = self._trainer.token_statistics(prompt_ids, completion_ids)[0]
        return logp

    def generate(self, prompts: Sequence[Any]) -> list[list[int]]:
        """Return the greedy completions of prompts."""
        with self.active():
            completions: list[list[int]] = self._trainer.components.scoring.tools.generate(prompts, greedy=True)
        return completions

    def states(self, prompt_ids: Ids, completion_ids: Ids) -> torch.Tensor:
        """Return the hidden states (n, longest, H) before each token."""
        prompts, completions = ([torch.tensor(row).long() for row in rows] for rows in (prompt_ids, completion_ids))
        device, pad = self._trainer.accelerator.device, self._trainer.tokenizer.pad_token_id
        inputs = {name: x.to(device) for name, x in pad_sequences(prompts, completions, pad).items()}
        passes, captured = self._trainer.components.passes, []
        hook = trunk_of(self.policy).register_forward_hook(lambda *call: captured.append(call[2].last_hidden_state))
        try:
            with torch.no_grad(), self.active():
                passes.of(self._trainer.model, inputs)
        finally:
            hook.remove()
        hidden: torch.Tensor = passes.of_hidden(lambda x: x, captured[-1], prompt_completion(inputs))
        return hidden

    def step(self) -> None:
        """Move the average by one step."""
        if self._model == "ema":
            self._average.update(self._rate)

    def state_dict(self) -> dict[str, Any]:
        return dict(self._adapter.state_dict()) if self._model == "ema" and self._adapter is not None else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state and self._adapter is not None:
            self._adapter.load_state_dict(state)


class Checkpoint:
    """A frozen model of its own, loaded at its first use.

    Args:
        trainer: The trainer of the policy.
        path: Folder or hub name.
    """

    def __init__(self, trainer: Any, path: str) -> None:
        self._trainer, self._path = trainer, path

    @cached_property
    def _model(self) -> Any:
        return load_model(self._path, self._trainer)

    @cached_property
    def head(self) -> Head:
        """The head of the model, for the vocabulary of the policy."""
        policy = self._trainer.accelerator.unwrap_model(self._trainer.model)
        return head_of(self._model, policy.get_output_embeddings().weight.shape[0])

    def logp(self, prompt_ids: Ids, completion_ids: Ids) -> torch.Tensor:
        """Return log-probs (n, longest), at the temperature of the policy."""
        size, temperature = self._trainer.args.per_device_train_batch_size, self._trainer.temperature
        rows = sequence_logprobs(
            self._model, _joined(prompt_ids, completion_ids), batch_size=size, temperature=temperature
        )
        return stack([x[len(prompt) - 1 :] for x, prompt in zip(rows, prompt_ids, strict=True)])

    def generate(self, prompts: Sequence[Any]) -> list[list[int]]:
        """Return the greedy completions of prompts, up to the longest that the policy may write."""
        trainer, ids = self._trainer, self._trainer.prompt_ids(prompts)
        pad, end = trainer.tokenizer.pad_token_id, trainer.tokenizer.eos_token_id
        inputs = pad_sequences([torch.tensor(row).long() for row in ids], [torch.zeros(0).long()] * len(ids), pad)
        found = self._model.generate(
            inputs["prompt_ids"].to(self._model.device),
            attention_mask=inputs["prompt_mask"].to(self._model.device),
            max_new_tokens=trainer.args.max_completion_length,
            do_sample=False,
            pad_token_id=pad,
            eos_token_id=end,
        )
        rows = found[:, inputs["prompt_ids"].shape[1] :].tolist()
        return [row[: row.index(end) + 1] if end in row else row for row in rows]

    def release(self) -> None:
        """Free the weights; the next use loads them again."""
        for name in ("_model", "head"):
            self.__dict__.pop(name, None)

    def states(self, prompt_ids: Ids, completion_ids: Ids) -> torch.Tensor:
        """Return the hidden states (n, longest, H) before each token."""
        rows = [torch.tensor(row, device=self._model.device) for row in _joined(prompt_ids, completion_ids)]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        with torch.no_grad():
            hidden = self._model.base_model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        spans = zip(hidden, prompt_ids, rows, strict=True)
        return torch.nn.utils.rnn.pad_sequence([x[len(p) - 1 : len(row) - 1] for x, p, row in spans], batch_first=True)


class Part:
    """A part of the hook `rlm_teachers`.

    Args:
        trainer: The trainer of the policy.
        bound: The part.
    """

    def __init__(self, trainer: Any, bound: Bound) -> None:
        self._trainer, self._bound = trainer, bound

    def logp(self, prompt_ids: Ids, completion_ids: Ids) -> torch.Tensor:
        """Return log-probs (n, longest), which may be lists of numbers."""
        data = {"prompt_ids": prompt_ids, "completion_ids": completion_ids}
        data |= {"tokenizer": self._trainer.tokenizer, "temperature": self._trainer.temperature}
        rows = self._bound.call({name: x for name, x in data.items() if name in self._bound.part.data})
        rows = [torch.as_tensor(row)[: len(ids)] for row, ids in zip(rows, completion_ids, strict=True)]
        short = [n for n, (row, ids) in enumerate(zip(rows, completion_ids, strict=True)) if len(row) < len(ids)]
        if short:
            problem = f"the teacher returned {len(rows[short[0]])} log-probs for {len(completion_ids[short[0]])} tokens"
            raise RlmError(problem, where="teacher.model")
        return stack(rows).to(self._trainer.accelerator.device)


def trunk_of(policy: Any) -> Any:
    """Return the module of a policy whose output are the last hidden states."""
    return (policy.get_base_model() if hasattr(policy, "get_base_model") else policy).base_model


def _joined(prompt_ids: Ids, completion_ids: Ids) -> list[list[int]]:
    return [[*prompt, *completion] for prompt, completion in zip(prompt_ids, completion_ids, strict=True)]


def load_model(path: str, trainer: Any) -> Any:
    """Load a frozen causal language model, and compare its tokenizer with the policy's.

    Raises:
        RlmError: It cannot be loaded, or splits texts into other tokens.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        dtype = next(trainer.model.parameters()).dtype
        model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise RlmError(f"the teacher '{path}' cannot be loaded: {error}", where="teacher.model") from error
    own = trainer.tokenizer
    rows = range(min(PROBES, len(trainer.train_dataset)))
    texts = [text_of(trainer.train_dataset[row]["prompt"]) for row in rows]
    texts += [f"{chr(n)}{chr(n)} {chr(n)}" for n in range(32, 132)]  # characters that no prompt may have
    different = [repr(text) for text in texts if own(text)["input_ids"] != tokenizer(text)["input_ids"]]
    special = [x for x in own.all_special_tokens if own.convert_tokens_to_ids(x) != tokenizer.convert_tokens_to_ids(x)]
    different += [*special, *(["the end token"] if own.eos_token_id != tokenizer.eos_token_id else [])]
    if different:
        problem = f"the tokenizer of the teacher '{path}' is not the policy's"
        hint = f"choose a teacher of the same family; they differ in {different[0][:60]}"
        raise RlmError(problem, where="teacher.model", hint=hint)
    return model.to(trainer.accelerator.device).eval().requires_grad_(False)
