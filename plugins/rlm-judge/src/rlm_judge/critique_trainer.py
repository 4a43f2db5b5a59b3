"""The trainer `critique_preferences`: a reward model that writes a critique first and scores what it wrote (CLoud)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rlm_judge.preferences import Preferences
from rlm_plugins.builtin.sft_trainer import dataset
from rlm_plugins.errors import RecipeError
from rlm_plugins.specs import Algorithm
from rlm_plugins.stage import RunState, Stage

if TYPE_CHECKING:
    from rlm_plugins.evaluation.scores import Report

KINDS = ("chosen", "rejected")
Messages = list[dict[str, str]]


class CritiquePreferences(Preferences):
    """Reward-model training on self-generated critiques, ℓ = −log σ(r(x, y⁺, c⁺) − r(x, y⁻, c⁻)).

    CLoud, arXiv 2408.11791: the model is fine-tuned on critiques, and then writes a critique c of each answer itself. A
    head on its hidden states scores prompt, answer and critique. ``chosen`` and ``rejected`` are messages that follow
    the prompt and end with a request for a critique. c is sampled once per answer before training, by the initial
    model of the stage: put it after a stage of `sft` on critiques. Critiques have up to `evaluation.max_new_tokens`
    tokens. Held-out critiques are greedy.

    The paper trains head, critiques and all weights together, with a language-model loss on the critiques, weighted by
    λ. Here the head and an adapter are trained, and the critiques come from the frozen base. So a stage without an
    adapter is refused. The paper also averages the scores of several critiques. Settings from memory; not re-read.

    Metrics: those of `reward_model`.
    """

    def __init__(self) -> None:
        self._critiques: dict[str, str] = {}

    def build(self, stage: Stage, run: RunState) -> Any:
        """Sample the critiques, and return the trainer of adapter and head with all pairs."""
        if stage.lora is None:
            problem = "`critique_preferences` requires a frozen base that writes critiques, and all weights are trained"
            hint = "train an adapter: `model: {lora: {r: 16, target_modules: all-linear}}`"
            raise RecipeError(problem, where=f"stage '{stage.name}'", hint=hint)
        rows = dataset(stage.environment_spec.train)
        seed = int(stage.settings.get("seed", 42))
        environment_spec = replace(stage.environment_spec, train=self._with_critiques(stage, rows, seed))
        return super().build(replace(stage, environment_spec=environment_spec), run)

    def evaluate(self, stage: Stage, rows: Sequence[Mapping[str, Any]], model: Any = None) -> Report:
        """Evaluate held-out pairs with greedy critiques of the initial model."""
        return super().evaluate(stage, self._with_critiques(stage, rows, None), model)

    def _with_critiques(
        self, stage: Stage, rows: Iterable[Mapping[str, Any]], seed: int | None
    ) -> list[dict[str, Any]]:
        """Return the pairs with a critique at the end of each answer; `seed`: of the sampling, None for greedy."""
        examples = [dict(row) for row in rows]
        requests = [_conversation(stage, row, kind) for row in examples for kind in KINDS]
        critiques = iter(self._write(stage, requests, seed))
        for row in examples:
            for kind in KINDS:
                row[kind] = [*_messages(row[kind]), {"role": "assistant", "content": next(critiques)}]
        return examples

    def _write(self, stage: Stage, requests: Sequence[Messages], seed: int | None) -> list[str]:
        """Return one critique per conversation; greedy ones are written once per conversation."""
        known = self._critiques if seed is None else {}
        numbers = ["" if seed is None else number for number in range(len(requests))]
        keys = [f"{number} {json.dumps(messages)}" for number, messages in zip(numbers, requests, strict=True)]
        missing = {key: messages for key, messages in zip(keys, requests, strict=True) if key not in known}
        if missing:
            known.update(zip(missing, _generated(stage, list(missing.values()), seed), strict=True))
        return [known[key] for key in keys]


def _generated(stage: Stage, requests: Sequence[Messages], seed: int | None) -> list[str]:
    import torch

    from rlm_plugins.evaluation.completions import complete
    from rlm_plugins.workers.distributed import processes

    size = 64 if stage.evaluation is None else stage.evaluation.batch_size
    model, tokenizer = stage.source.load().to(processes().device), stage.source.processing_class()
    sampling = None if seed is None else {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
    texts: list[str] = []
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed or 0)
        for first in range(0, len(requests), size):
            examples = [{"prompt": messages} for messages in requests[first : first + size]]
            texts += complete(model, tokenizer, examples, stage.longest_completion, {}, sampling=sampling).texts
    return texts


def _conversation(stage: Stage, row: Mapping[str, Any], kind: str) -> Messages:
    """Return prompt, answer and request."""
    messages = _messages(row[kind])
    if isinstance(row["prompt"], str) or not messages or messages[-1].get("role") != "user":
        problem = f"expected messages in `{kind}` that end with a request for a critique, got {str(row[kind])[:60]!r}"
        allowed = "[{role: assistant, content: the answer}, {role: user, content: the request}]"
        raise RecipeError(problem, where=f"stage '{stage.name}': environment", allowed=allowed)
    return [*row["prompt"], *messages]


def _messages(value: Any) -> Messages:
    return [] if isinstance(value, str) else list(value)


critique_reward_model = Algorithm(
    about="A reward model that scores an answer together with a critique that it wrote itself.",
    source="CLoud, arXiv 2408.11791",
    pitfalls="It is as good as its critiques: check them with `rlm sample` first. It requires a stage of `sft` on "
    "critiques before, and an adapter. Each score costs the generation of a critique.",
    trainer="critique_preferences",
    family="off-policy and supervised",
)
