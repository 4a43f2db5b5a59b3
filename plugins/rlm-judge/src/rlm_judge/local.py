"""Judges in this process: a model of its own, or the policy, by default with its adapters disabled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from rlm_algorithms.auxiliary_part import messages_without_special_tokens

from rlm_judge.spec import Answer, LocalSpec, ModelHandle, PolicySpec, Query, Usage
from rlm_plugins.errors import PartError
from rlm_plugins.lazy import torch

_model_lock = threading.Lock()
"""Disabling adapters affects the whole model, and two judges may share it."""


class Local:
    """A judge from a checkpoint, loaded on first use. Decoding is greedy, hence deterministic."""

    def __init__(self, spec: LocalSpec) -> None:
        self._spec = spec

    @cached_property
    def _handle(self) -> ModelHandle:
        from rlm_plugins.models.pretrained import Checkpoint

        checkpoint = Checkpoint(self._spec.path)
        model = checkpoint.model(dtype="auto")
        device = self._spec.device or (torch.accelerator.current_accelerator() or "cpu")
        return ModelHandle(model.to(device).requires_grad_(False), checkpoint.tokenizer())

    async def ask(self, queries: Sequence[Query], usage: Usage) -> list[Answer]:
        """Answer each query; other requests run concurrently."""
        return await asyncio.to_thread(generate_answers, self._handle, queries, self._spec, usage)


class Policy:
    """The policy in training as judge: in its initial state (adapters disabled), or in its current state."""

    def __init__(self, spec: PolicySpec) -> None:
        self._spec = spec

    async def ask(self, queries: Sequence[Query], usage: Usage) -> list[Answer]:
        """Answer each query.

        Raises:
            PartError: There is no policy yet, or it has no adapters to disable.
        """
        return await asyncio.to_thread(self._answers, queries, usage)

    def _answers(self, queries: Sequence[Query], usage: Usage) -> list[Answer]:
        policy = self._spec.handle
        if policy is None:
            raise PartError("a judge `policy` requires a policy, and none is being trained or evaluated here")
        if self._spec.policy == "current":
            return generate_answers(policy, queries, self._spec, usage)
        if not self._spec.is_ready:
            hint = "train a LoRA adapter (`model: {lora: …}`), or use {policy: current} or {path: …}"
            raise PartError("`policy: base` requires adapters, and the whole policy is being trained", hint=hint)
        with policy.model.disable_adapter():
            return generate_answers(policy, queries, self._spec, usage)


def generate_answers(
    handle: ModelHandle, queries: Sequence[Query], spec: LocalSpec | PolicySpec, usage: Usage
) -> list[Answer]:
    """Generate greedy answers in batches sorted by length; the model's mode and the RNG state are preserved."""
    from rlm_plugins.models.adapters import evaluation_mode

    unique = sorted(dict.fromkeys(queries), key=lambda query: len(query.user))
    answer_of: dict[Query, Answer] = {}
    with _model_lock, evaluation_mode(handle.model):
        for start in range(0, len(unique), spec.batch_size):
            batch = unique[start : start + spec.batch_size]
            for query, text in zip(batch, _generate(handle, batch, spec.max_tokens, usage), strict=True):
                answer_of[query] = _answer(query, text)
    return [answer_of[query] for query in queries]


def _answer(query: Query, text: str | None) -> Answer:
    """Return the verdict in a generated text; None: it did not end in time."""
    if text is None:
        return Answer(None, "cut off")
    verdict = query.read(text)
    return Answer(verdict, "unreadable" if verdict is None else "")


def _generate(handle: ModelHandle, queries: Sequence[Query], max_new_tokens: int, usage: Usage) -> list[str | None]:
    """Generate the answer to each query; None where it did not end within `max_new_tokens` tokens."""
    tokenizer = handle.tokenizer
    has_template = tokenizer.chat_template is not None
    texts = [_text(tokenizer, query) if has_template else query.user for query in queries]
    inputs = tokenizer(
        texts, return_tensors="pt", padding=True, padding_side="left", add_special_tokens=not has_template
    )
    inputs = {name: inputs[name].to(handle.model.device) for name in ("input_ids", "attention_mask")}
    eos_token_ids = _eos_token_ids(handle)
    out = handle.model.generate(
        **inputs,
        max_new_tokens=max_new_tokens,
        do_sample=False,
        eos_token_id=eos_token_ids,
        pad_token_id=eos_token_ids[0] if tokenizer.pad_token_id is None else tokenizer.pad_token_id,
    )
    completion_ids = [_truncate_at_eos(row, eos_token_ids) for row in out[:, inputs["input_ids"].shape[1] :].tolist()]
    usage.tokens_in += int(inputs["attention_mask"].sum())
    usage.tokens_out += sum(max_new_tokens if row is None else len(row) for row in completion_ids)
    return [None if row is None else tokenizer.decode(row, skip_special_tokens=True) for row in completion_ids]


def _eos_token_ids(handle: ModelHandle) -> list[int]:
    """Return the token ids that end an answer: the tokenizer's, and those of the model's generation config."""
    configured = handle.model.generation_config.eos_token_id
    others = configured if isinstance(configured, list) else [configured]
    return list(dict.fromkeys([handle.tokenizer.eos_token_id, *(x for x in others if x is not None)]))


def _truncate_at_eos(ids: list[int], eos_token_ids: Sequence[int]) -> list[int] | None:
    end = next((position for position, token in enumerate(ids) if token in eos_token_ids), None)
    return None if end is None else ids[:end]


def _text(tokenizer: Any, query: Query) -> str:
    messages = messages_without_special_tokens(tokenizer, query.messages)
    text: str = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return text
