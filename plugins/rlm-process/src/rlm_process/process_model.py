"""What a process reward model says of an answer: as one reward, or step by step. (Reward and shaper of that name.)"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from jaxtyping import Bool, Float
from pydantic import Field, PositiveInt

from rlm_plugins.data import hub
from rlm_plugins.lazy import torch
from rlm_process.grader import Grader, kind_of, loaded
from rlm_process.knobs import Steps
from rlm_process.pieces import pieces
from rlm_process.steps import Spans, cutter, own_steps, unpaid

if TYPE_CHECKING:
    from torch import device

Separator = Annotated[str, Field(min_length=1)]
Over = Literal["min", "product", "last", "mean"]


class _ProcessModel:
    """A process reward model by its path, and what is a step to it."""

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
        self._how: dict[str, Any] = {"separator": separator, "words": (good, bad)}
        self._how |= {"longest": longest, "batch_size": batch_size}
        self._device: device | None = None
        self._grader: Grader | None = None

    def check(self) -> None:
        """Whether a process reward model lies there.

        Raises:
            RecipeError: There is none.
        """
        if (folder := hub.locate(self.path, where="path")) is not None:
            kind_of(folder)

    def setup(self, policy: Any, results: Mapping[str, Path]) -> None:
        """It reads where the policy does."""
        self._device = policy.device

    @property
    def grader(self) -> Grader:
        """The model, loaded when it is first asked."""
        if self._grader is None:
            from rlm_plugins.distributed import processes

            self._grader = Grader(*loaded(self.path, self._device or processes().device), **self._how)
        return self._grader


class ProcessReward(_ProcessModel):
    """r = min, product, last or mean of what a process reward model says of the steps of an answer, each in [0, 1].

    `path` is the folder (or hub name) of a model for token classification, which says it at the last token of a step
    (TRL's PRMTrainer, Qwen2.5-Math-PRM), or of a causal language model, which says it by the token it would go on with,
    `good` or `bad` (Math-Shepherd, arXiv 2312.08935). `separator` is what stood after each step when it was trained:
    ``"\\n"`` is TRL's, ``"<extra_0>"`` Qwen's, ``" ки"`` Math-Shepherd's. `steps` says where a step ends: a name,
    ``{pattern: …}``, ``{every: …}`` or ``module:function``; `over` how one number comes of them: the worst step, all of
    them (the product, as in arXiv 2305.20050), the last, the mean. An answer without anything to read gets 0, and so
    does a step that ends more than `longest` tokens after the question began.

    Pitfall: the mean pays for many easy steps, the product for few; both are found by a policy. Keep a metric in the
    recipe that the model does not make, `{name: accuracy, weight: 0}`.
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
        grader, asked = self.grader, []
        cut = cutter(self._steps, grader.tokenizer, where="rewards: process_model.steps")
        for prompt, text in zip(prompt_messages, completions, strict=True):  # in its own tokens: the policy's are gone
            ids = grader.tokenizer(text, add_special_tokens=False)["input_ids"][: self._how["longest"] + 1]
            asked.append(grader.asked(prompt, in_steps(ids, grader.tokenizer, own_steps([ids], cut)[0])[0]))
        return [aggregated(scores, self.over) for scores in grader.scores(asked)]


class ProcessRewards(_ProcessModel):
    """A reward for every step, on its last token: weight · what a process reward model says of it, in [0, 1].

    Knobs as of the reward `process_model`; `weight` is the coefficient. What is said of a step is paid to all tokens
    before it as well, where the advantage sums up what is still to come (`batch_whitened`, `gae`). In a world that
    answers it reads the policy's turns alone, and no step goes on beyond the turn in which it began.

    Pitfall: nobody is compared with 0. Summed up, many mediocre steps are worth more than few good ones; the other
    rows of a group, or a critic, are the baseline.
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
        from rlm_plugins.distributed import gather_lists, rank_slice

        cut = cutter(self._steps, tokenizer, where="shapers: process_model.steps")
        spans = own_steps(completion_ids, cut, None if turn_rewards is None else mask)
        mine, asked, places = rank_slice(len(prompts)), [], []
        for prompt, ids, own in zip(prompts[mine], completion_ids[mine], spans[mine], strict=True):
            steps, last = in_steps(ids, tokenizer, own)
            asked.append(self.grader.asked(prompt, steps))
            places.append(last)
        scores = gather_lists(list(zip(places, self.grader.scores(asked), strict=True)))
        dense = unpaid(mask, turn_rewards)
        for row, (last, found) in enumerate(scores):
            dense[row, last] = self.weight * torch.tensor(found, dtype=dense.dtype, device=mask.device)
        return dense * mask


def in_steps(ids: Sequence[int], tokenizer: Any, spans: Spans) -> tuple[list[str], list[int]]:
    """The text of each step of an answer that has something to read, and the place of its last token."""
    said, steps, places = pieces(ids, tokenizer), [], []
    for start, end in spans:
        if (text := "".join(said[start:end])).strip():
            steps.append(text)
            places.append(end - 1)
    return steps, places


def aggregated(scores: Sequence[float], over: Over) -> float:
    """One number for an answer; 0 without a step.

    >>> [aggregated([0.5, 0.25, 1.0], over) for over in ("min", "product", "last")]
    [0.25, 0.125, 1.0]
    """
    if not scores:
        return 0.0
    if over == "mean":
        return sum(scores) / len(scores)
    return {"min": min(scores), "product": math.prod(scores), "last": scores[-1]}[over]
