"""A judge in this process: a model of its own, or the policy with its adapters off."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from rlm_judge.lending import Lent
from rlm_judge.spec import LocalSpec, PolicySpec
from rlm_judge.talk import Answer, Bill, Question
from rlm_plugins.errors import PartError
from rlm_plugins.lazy import torch

_one_at_a_time = threading.Lock()
"""Adapters are switched off for the whole model; two judges may share it."""


class Local:
    """Asks a checkpoint. It is loaded when it is first asked; its answers are greedy, so the same each time.

    Args:
        spec: As the recipe says it.
    """

    def __init__(self, spec: LocalSpec) -> None:
        self._spec = spec

    @cached_property
    def _lent(self) -> Lent:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        model = AutoModelForCausalLM.from_pretrained(self._spec.path, dtype="auto")
        device = self._spec.device or (torch.accelerator.current_accelerator() or "cpu")
        return Lent(model.to(device).requires_grad_(False), AutoTokenizer.from_pretrained(self._spec.path))

    async def ask(self, questions: Sequence[Question], bill: Bill) -> list[Answer]:
        """An answer to each question; other requests go on meanwhile."""
        return await asyncio.to_thread(answers, self._lent, questions, self._spec, bill)


class Policy:
    """Asks the policy that is being trained: as it was before (its adapters off), or as it is now.

    Args:
        spec: As the recipe says it.
    """

    def __init__(self, spec: PolicySpec) -> None:
        self._spec = spec

    async def ask(self, questions: Sequence[Question], bill: Bill) -> list[Answer]:
        """An answer to each question.

        Raises:
            PartError: It has not met the policy, or that has no adapters to switch off.
        """
        return await asyncio.to_thread(self._answers, questions, bill)

    def _answers(self, questions: Sequence[Question], bill: Bill) -> list[Answer]:
        policy = self._spec.lent
        if policy is None:
            raise PartError("the policy is to judge, and has not been met: nothing is trained or judged here")
        if self._spec.policy == "current":
            return answers(policy, questions, self._spec, bill)
        if not self._spec.can_judge:
            hint = "train a LoRA adapter (`model: {lora: …}`), or take {policy: current} or {path: …}"
            raise PartError("the policy has no adapters: its base is what is being trained", hint=hint)
        with policy.model.disable_adapter():
            return answers(policy, questions, self._spec, bill)


def answers(lent: Lent, questions: Sequence[Question], spec: LocalSpec | PolicySpec, bill: Bill) -> list[Answer]:
    """Greedy answers, by length so that little is padded; the model's mode and its random numbers are left alone."""
    from rlm_plugins.models.adapters import evaluation_mode

    different = sorted(dict.fromkeys(questions), key=lambda question: len(question.user))
    found: dict[Question, Answer] = {}
    with _one_at_a_time, evaluation_mode(lent.model):
        for start in range(0, len(different), spec.batch_size):
            share = different[start : start + spec.batch_size]
            for question, text in zip(share, _said(lent, share, spec.max_tokens, bill), strict=True):
                verdict = None if text is None else question.read(text)
                why = "cut off" if text is None else "unreadable" if verdict is None else ""
                found[question] = Answer(verdict, why)
    return [found[question] for question in questions]


def _said(lent: Lent, questions: Sequence[Question], longest: int, bill: Bill) -> list[str | None]:
    """What the model says to each; None where it did not come to an end."""
    tokenizer = lent.tokenizer
    chat = tokenizer.chat_template is not None
    texts = [_text(tokenizer, question) if chat else question.user for question in questions]
    given = tokenizer(texts, return_tensors="pt", padding=True, padding_side="left", add_special_tokens=not chat)
    given = {name: given[name].to(lent.model.device) for name in ("input_ids", "attention_mask")}
    ends = _ends(lent)
    out = lent.model.generate(
        **given,
        max_new_tokens=longest,
        do_sample=False,
        eos_token_id=ends,
        pad_token_id=ends[0] if tokenizer.pad_token_id is None else tokenizer.pad_token_id,
    )
    rows = [_until(row, ends) for row in out[:, given["input_ids"].shape[1] :].tolist()]
    bill.tokens_in += int(given["attention_mask"].sum())
    bill.tokens_out += sum(longest if row is None else len(row) for row in rows)
    return [None if row is None else tokenizer.decode(row, skip_special_tokens=True) for row in rows]


def _ends(lent: Lent) -> list[int]:
    """The tokens that end an answer: the tokenizer's, and what else the model's makers name."""
    said = lent.model.generation_config.eos_token_id
    others = said if isinstance(said, list) else [] if said is None else [said]
    return list(dict.fromkeys([lent.tokenizer.eos_token_id, *others]))


def _until(row: list[int], ends: Sequence[int]) -> list[int] | None:
    end = next((place for place, token in enumerate(row) if token in ends), None)
    return None if end is None else row[:end]


def _text(tokenizer: Any, question: Question) -> str:
    text: str = tokenizer.apply_chat_template(question.messages, tokenize=False, add_generation_prompt=True)
    return text
