"""Log-probs of a teacher for each generation batch: adapters on the policy's base, their average, or a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import TrainerCallback

from rlm_algorithms.teacher import GROUP_BEST, Teacher, is_adapter
from rlm_plugins.errors import RlmError
from rlm_plugins.evaluation.completions import unpadded
from rlm_plugins.models.adapters import Adapter, load_adapter, new_adapter
from rlm_plugins.models.auxiliary_lm import adapter_config_like
from rlm_plugins.rewards.columns import text_of
from rlm_plugins.rollout.dynamic_sampling import pad_to_width
from rlm_plugins.trainer.observer import StepObserver

PROBES = 64
"""Prompts on which the tokenizer of a model is compared with the policy's."""


class TeacherScoring(StepObserver, TrainerCallback):  # type: ignore[misc]
    """Scores the completions of this process after each generation.

    Args:
        teacher: The section of the recipe.
    """

    name = "teacher"

    def __init__(self, teacher: Teacher) -> None:
        self._teacher = teacher
        self._adapter: Adapter | None = None
        self._model: Any = None
        self._examples: Sequence[Mapping[str, Any]] = ()
        self._texts: Sequence[Any] = ()

    def attach(self, trainer: Any) -> None:
        """Create or load the teacher beside the policy."""
        self._trainer = trainer
        policy, path = trainer.accelerator.unwrap_model(trainer.model), self._teacher.model
        if path == "ema":
            self._adapter = new_adapter(policy, "teacher", average_config(policy), trainable=False)
            self._average = RunningAverage(policy, self._adapter)
            self._average.update(1.0)
        elif path in ("base", "live"):
            return
        elif is_adapter(path):
            self._adapter = load_adapter(policy, "teacher", Path(path))
        else:
            self._model = load_model(path, trainer)

    # -- a generation batch

    def completions(self, inputs: Sequence[Mapping[str, Any]], view: Any) -> None:
        """Keep the examples and the texts of this process for the teacher's prompts."""
        self._examples, self._texts = inputs, view.completions

    def sampled(self, out: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        """Return `teacher_logp` (B, T) and `has_teacher` (B,)."""
        prompts = self._prompts()
        width = out["completion_ids"].shape[1]
        completion_ids = unpadded(out["completion_ids"], out["completion_mask"])
        given = [row for row, prompt in enumerate(prompts) if prompt is not None]
        prompt_ids = unpadded(out["prompt_ids"], out["prompt_mask"])
        if self._teacher.prompt is not None:
            for row, ids in zip(given, self._trainer.prompt_ids([prompts[row] for row in given]), strict=True):
                prompt_ids[row] = ids
        logp = self._logp(prompt_ids, completion_ids)
        has_teacher = torch.zeros(len(prompts), dtype=torch.bool, device=logp.device)
        has_teacher[given] = True
        is_scored = out["completion_mask"].bool() & has_teacher.unsqueeze(1)
        result = pad_to_width(logp[:, :width], width).where(is_scored, 0.0)
        if not result.isfinite().all() or (result > 1e-4).any():
            problem = f"the teacher {self._teacher.model} returned log-probabilities that are not finite or above 0"
            raise RlmError(problem, where="teacher", hint="check its weights, and that its tokenizer is the policy's")
        return {"teacher_logp": result, "has_teacher": has_teacher}

    def _logp(self, prompt_ids: Sequence[Sequence[int]], completion_ids: Sequence[Sequence[int]]) -> torch.Tensor:
        if self._model is not None:
            return logprobs(self._model, prompt_ids, completion_ids, self._trainer)
        with self._active():
            logp: torch.Tensor = self._trainer.token_statistics(prompt_ids, completion_ids)[0]
        return logp

    def _active(self) -> AbstractContextManager[Any]:
        """Return a context in which the policy is the teacher."""
        if self._adapter is not None:
            return self._adapter.active()
        policy = self._trainer.accelerator.unwrap_model(self._trainer.model)
        return policy.disable_adapter() if self._teacher.model == "base" else nullcontext()

    def _prompts(self) -> list[Any]:
        """Return the teacher's prompt of each completion of this process; None: it has none."""
        best = self._group_best() if self._teacher.reads_group else [""] * len(self._examples)
        return [self._prompt(example, shown) for example, shown in zip(self._examples, best, strict=True)]

    def _prompt(self, example: Mapping[str, Any], shown: str | None) -> Any:
        template, prompt = self._teacher.prompt, example["prompt"]
        if template is None:
            return prompt
        if shown is None:
            return None
        columns = {name: example[name] for name in self._teacher.columns} | {GROUP_BEST: shown}
        if isinstance(prompt, str):
            return template.format(prompt=prompt, **columns)
        last = {**prompt[-1], "content": template.format(prompt=prompt[-1]["content"], **columns)}
        return [*prompt[:-1], last]

    def _group_best(self) -> list[str | None]:
        """Return for each completion the first other one of its group with the reward `success` or more."""
        components = self._trainer.components
        context, rewards = components.context, components.rewards.total().tolist()
        texts = gather_object([text_of(text) for text in self._texts])
        size = context.group_size
        local = context.local_rows(len(self._texts))
        shown: list[str | None] = []
        for row in range(local.start, local.stop):
            first = row - row % size
            others = [j for j in range(first, first + size) if j != row and rewards[j] >= self._teacher.success]
            shown.append(texts[others[0]] if others else None)
        return shown

    # -- the running average

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Move the average by one step."""
        if self._teacher.model == "ema":
            self._average.update(self._teacher.ema)

    def state_dict(self) -> dict[str, Any]:
        """Return the weights of the average."""
        return dict(self._adapter.state_dict()) if self._teacher.model == "ema" and self._adapter is not None else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the weights of the average."""
        if self._adapter is not None and self._teacher.model == "ema":
            self._adapter.load_state_dict(state)


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


# -- a model of its own


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
    different = [text for text in texts if own(text)["input_ids"] != tokenizer(text)["input_ids"]]
    if different or own.eos_token_id != tokenizer.eos_token_id:
        problem = f"the tokenizer of the teacher '{path}' is not the policy's"
        found = repr(different[0])[:60] if different else "the end token"
        hint = f"choose a teacher of the same family; they differ in {found}"
        raise RlmError(problem, where="teacher.model", hint=hint)
    return model.to(trainer.accelerator.device).eval().requires_grad_(False)


def logprobs(
    model: Any, prompt_ids: Sequence[Sequence[int]], completion_ids: Sequence[Sequence[int]], trainer: Any
) -> torch.Tensor:
    """Return log-probs (n, longest) of completions under a model, at the temperature of the policy."""
    size, device = trainer.args.per_device_train_batch_size, trainer.accelerator.device
    result = torch.zeros(len(prompt_ids), max(map(len, completion_ids), default=0), device=device)
    for first in range(0, len(prompt_ids), size):
        rows = range(first, min(first + size, len(prompt_ids)))
        sequences = [torch.tensor([*prompt_ids[i], *completion_ids[i]]) for i in rows]
        ids = torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True).to(device)
        lengths = torch.tensor([len(x) for x in sequences], device=device)
        mask = torch.arange(ids.shape[1], device=device) < lengths.unsqueeze(1)
        with torch.no_grad():
            logits = model(input_ids=ids, attention_mask=mask.long()).logits[:, :-1] / trainer.temperature
            logp = logits.float().log_softmax(-1).gather(2, ids[:, 1:].unsqueeze(2)).squeeze(2)
        for i, row in zip(rows, logp, strict=True):
            start, count = len(prompt_ids[i]) - 1, len(completion_ids[i])
            result[i, :count] = row[start : start + count]
    return result
