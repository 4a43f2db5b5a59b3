"""Scores of a process reward model: one reward per completion, or one per step (a reward and a shaper)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from jaxtyping import Bool, Float
from pydantic import Field, PositiveInt

from rlm_plugins.data import tables
from rlm_plugins.lazy import torch
from rlm_process.knobs import Steps
from rlm_process.prm_scorer import StepScorer, load_cached, model_kind
from rlm_process.step_boundaries import Spans, step_cutter, step_spans, zero_rewards
from rlm_process.token_texts import token_texts

if TYPE_CHECKING:
    from torch import device


class ProcessModelPart:
    """A process reward model by its path, and the definition of a step."""

    def __init__(
        self,
        *,
        path: str,
        steps: Steps,
        separator: str,
        good: str,
        bad: str,
        longest: int,
        batch_size: int,
    ) -> None:
        self.path, self._steps = path, steps
        self._settings: dict[str, Any] = {"separator": separator, "words": (good, bad)}
        self._settings |= {"longest": longest, "batch_size": batch_size}
        self._device: device | None = None
        self._grader: StepScorer | None = None

    def check(self) -> None:
        """Check that the path holds a process reward model.

        Raises:
            RecipeError: It does not.
        """
        folder = tables.locate(self.path, where="path")
        if folder is not None:
            model_kind(folder)

    def setup(self, policy: Any, results: Mapping[str, Path]) -> None:
        """Take the policy's device."""
        self._device = policy.device

    @property
    def scorer(self) -> StepScorer:
        """The model, loaded on first use."""
        if self._grader is None:
            from rlm_plugins.workers.distributed import processes

            self._grader = StepScorer(*load_cached(self.path, self._device or processes().device), **self._settings)
        return self._grader


Separator = Annotated[str, Field(min_length=1)]
Over = Literal["min", "product", "last", "mean"]


class ProcessReward(ProcessModelPart):
    """r = min, product, last or mean of a process reward model's scores of a completion's steps, each in [0, 1].

    `path` is the folder (or hub name) of a model for token classification or of a causal language model. The first
    scores at the last token of a step (TRL's PRMTrainer, Qwen2.5-Math-PRM), the second by its next token, `good` or
    `bad` (Math-Shepherd, arXiv 2312.08935). `separator` is the text after each step in its training data:
    ``"\\n"`` is TRL's, ``"<extra_0>"`` Qwen's, ``" ки"`` Math-Shepherd's. `steps` defines a step: a name,
    ``{pattern: …}``, ``{every: …}`` or ``module:function``. `over` aggregates the scores: the worst step, the product
    (as in arXiv 2305.20050), the last, the mean. A completion without text gets 0, and so does a step that ends more
    than `longest` tokens after the start of the prompt.

    Pitfall: the mean rewards many easy steps, the product few; policies exploit both. Keep a metric in the
    recipe that does not depend on the model, `{name: accuracy, weight: 0}`.
    """

    def __init__(
        self,
        *,
        path: str,
        steps: Steps = "lines",
        over: Over = "min",
        separator: Separator = "\n",
        good: Separator = "+",
        bad: Separator = "-",
        longest: PositiveInt = 4096,
        batch_size: PositiveInt = 8,
    ) -> None:
        super().__init__(
            path=path, steps=steps, separator=separator, good=good, bad=bad, longest=longest, batch_size=batch_size
        )
        self.over = over

    def __call__(self, prompt_messages: Sequence[Any], completions: Sequence[str]) -> list[float]:
        """Return the reward of each completion."""
        scorer, inputs = self.scorer, []
        cut_steps = step_cutter(self._steps, scorer.tokenizer, where="rewards: process_model.steps")
        for prompt, text in zip(prompt_messages, completions, strict=True):  # tokenized with the model's tokenizer
            ids = scorer.tokenizer(text, add_special_tokens=False)["input_ids"][: self._settings["longest"] + 1]
            inputs.append(
                scorer.encode(prompt, nonblank_texts(ids, scorer.tokenizer, step_spans([ids], cut_steps)[0])[0])
            )
        return [aggregate(scores, self.over) for scores in scorer.scores(inputs)]


class ProcessRewards(ProcessModelPart):
    """A reward for every step, on its last token: weight · score of a process reward model, in [0, 1].

    Knobs as of the reward `process_model`; `weight` is the coefficient. A step's reward also counts for all earlier
    tokens if the advantage sums future rewards (`batch_whitened`, `gae`). In a multi-turn environment only the policy's
    turns are scored, and a step never extends beyond its turn.

    Pitfall: scores are positive, so the sum over many mediocre steps exceeds that over few good ones. Use a baseline:
    the other completions of a group, or a critic.
    """

    def __init__(
        self,
        *,
        path: str,
        steps: Steps = "lines",
        weight: float = 1.0,
        separator: Separator = "\n",
        good: Separator = "+",
        bad: Separator = "-",
        longest: PositiveInt = 4096,
        batch_size: PositiveInt = 8,
    ) -> None:
        super().__init__(
            path=path, steps=steps, separator=separator, good=good, bad=bad, longest=longest, batch_size=batch_size
        )
        self.weight = weight

    def __call__(
        self,
        mask: Bool[torch.Tensor, "B T"],
        prompts: Sequence[Any],
        completion_ids: Sequence[Sequence[int]],
        tokenizer: Any,
        turn_rewards: Float[torch.Tensor, "B T"] | None = None,
    ) -> Float[torch.Tensor, "B T"]:
        """Return the rewards of all tokens."""
        from rlm_plugins.workers.distributed import gather_lists, rank_slice

        cut_steps = step_cutter(self._steps, tokenizer, where="shapers: process_model.steps")
        spans = step_spans(completion_ids, cut_steps, None if turn_rewards is None else mask)
        own_range, inputs, positions_of = rank_slice(len(prompts)), [], []
        for prompt, ids, own_spans in zip(prompts[own_range], completion_ids[own_range], spans[own_range], strict=True):
            steps, positions = nonblank_texts(ids, tokenizer, own_spans)
            inputs.append(self.scorer.encode(prompt, steps))
            positions_of.append(positions)
        scores = gather_lists(list(zip(positions_of, self.scorer.scores(inputs), strict=True)))
        dense = zero_rewards(mask, turn_rewards)
        for index, (positions, step_scores) in enumerate(scores):
            dense[index, positions] = self.weight * torch.tensor(step_scores, dtype=dense.dtype, device=mask.device)
        return dense * mask


def nonblank_texts(ids: Sequence[int], tokenizer: Any, spans: Spans) -> tuple[list[str], list[int]]:
    """Return the text of each non-blank step, and the position of its last token."""
    texts_of_tokens, steps, positions = token_texts(ids, tokenizer), [], []
    for start, end in spans:
        text = "".join(texts_of_tokens[start:end])
        if text.strip():
            steps.append(text)
            positions.append(end - 1)
    return steps, positions


def aggregate(scores: Sequence[float], over: Over) -> float:
    """Aggregate the scores of a completion's steps; 0 without a step.

    >>> [aggregate([0.5, 0.25, 1.0], over) for over in ("min", "product", "last")]
    [0.25, 0.125, 1.0]
    """
    if not scores:
        return 0.0
    if over == "mean":
        return sum(scores) / len(scores)
    return {"min": min(scores), "product": math.prod(scores), "last": scores[-1]}[over]
