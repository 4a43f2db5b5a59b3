"""r of turns and of steps (hook ``rlm_shapers``): what a function of yours says of each, put where it ended."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from jaxtyping import Bool, Float

from rlm_plugins.errors import PartError, RecipeError, nearest
from rlm_plugins.lazy import torch
from rlm_plugins.registry.import_path import borrow_function, called, settled
from rlm_plugins.rewards.fault import Fault
from rlm_plugins.rewards.score_validation import brief, validate_score
from rlm_process.knobs import Address, Steps
from rlm_process.pieces import pieces
from rlm_process.steps import cutter, own_steps, unpaid
from rlm_process.turns import turns

Ids = Sequence[Sequence[int]]


class PerTurn:
    """Pays each turn, on its last token, what a function of yours says of it.

    r′ᵢₜ = rᵢₜ + weight · f(turn) on the last token t of a turn: f is found at `by`.

    f is called once per row and takes what it names: `said`, the text of each turn; `heard`, what was said to the
    policy before each of them (before the first, nothing but what stands in the prompt); and the columns of the data
    set. It returns one number per turn, or None for one that it does not judge.

    A turn is a run of tokens that are trained on: see :func:`turns`.
    """

    told = ("said", "heard")

    def __init__(self, *, by: Address, weight: float = 1.0) -> None:
        self.by, self.weight = by, weight

    def check(self, columns: Collection[str]) -> None:
        """Whether the function is told what it names: see :func:`check_named`."""
        check_named(self.by, self.told, columns)

    def __call__(
        self, completion_ids: Ids, mask: Bool[torch.Tensor, "B T"], inputs: Sequence[Mapping[str, Any]], tokenizer: Any
    ) -> Float[torch.Tensor, "B T"]:
        function = borrow_function(self.by, where="by")
        paid = torch.zeros(mask.shape, device=mask.device)
        for row, (ids, owner) in enumerate(zip(completion_ids, turns(mask).tolist(), strict=True)):
            texts, count = pieces(ids, tokenizer), max(owner, default=-1) + 1
            said, heard = [""] * count, [""] * (count + 1)
            last, upcoming = [0] * count, 0
            for token, text in enumerate(texts):
                if owner[token] < 0:
                    heard[upcoming] += text
                else:
                    said[owner[token]] += text
                    last[owner[token]], upcoming = token, owner[token] + 1
            known = {**inputs[row], "said": said, "heard": heard[:count]}
            for place, score in zip(last, _scores(function, known, self.by, "per_turn"), strict=True):
                paid[row, place] = self.weight * score
        return paid


class PerStep:
    """Pays each step, on its last token, what a function of yours says of it.

    r′ᵢₜ = rᵢₜ + weight · f(step) on the last token t of a step: f is found at `by`, `steps` says what a step is.

    f is called once per row and takes what it names: `said`, the text of each step, and the columns of the data set. It
    returns one number per step, or None for one that it does not judge. In a world that answers no step goes on beyond
    the turn in which it began.

    Pitfall: steps that are paid for one by one are worth writing one by one. `step_relative` with `alike: number`
    compares a step with those of the same place, so that there is nothing to gain by more of them.
    """

    told = ("said",)

    def __init__(self, *, by: Address, steps: Steps = "lines", weight: float = 1.0) -> None:
        self.by, self.steps, self.weight = by, steps, weight

    def check(self, columns: Collection[str]) -> None:
        """Whether the function is told what it names: see :func:`check_named`."""
        check_named(self.by, self.told, columns)

    def __call__(
        self,
        completion_ids: Ids,
        mask: Bool[torch.Tensor, "B T"],
        inputs: Sequence[Mapping[str, Any]],
        tokenizer: Any,
        turn_rewards: Float[torch.Tensor, "B T"] | None = None,
    ) -> Float[torch.Tensor, "B T"]:
        function, paid = borrow_function(self.by, where="by"), unpaid(mask, turn_rewards)
        cut = cutter(self.steps, tokenizer, where="shapers: per_step.steps")
        spans = own_steps(completion_ids, cut, None if turn_rewards is None else mask)
        for row, steps in enumerate(spans):
            texts = pieces(completion_ids[row], tokenizer)
            known = {**inputs[row], "said": ["".join(texts[a:b]) for a, b in steps]}
            for (_, end), score in zip(steps, _scores(function, known, self.by, "per_step"), strict=True):
                paid[row, end - 1] = self.weight * score
        return paid.where(mask, 0.0)


def check_named(by: str, told: Collection[str], columns: Collection[str]) -> None:
    """Whether a function can be called with what is known of a row.

    Args:
        by: Its address.
        told: What it is told beside the columns.
        columns: Of the data set.

    Raises:
        RecipeError: It has a parameter without default that is neither.
    """
    known = {*told, *columns}
    if not columns:  # a stream tells its own only while it is read
        return
    for name, parameter in inspect.signature(borrow_function(by, where="by")).parameters.items():
        spread = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        if name not in known and not spread and parameter.default is parameter.empty:
            problem = f"'{by}' needs '{name}', which nobody tells it"
            raise RecipeError(problem, where="by", allowed=", ".join(sorted(known)), hint=nearest(name, known))


def _scores(function: Callable[..., Any], known: Mapping[str, Any], by: str, part: str) -> list[float]:
    """What it says of each turn or step, as a list, array or tensor; 0 for one that it does not judge."""
    count, said = len(known["said"]), settled([called(function, known)])[0]
    scores, problem = said.tolist() if hasattr(said, "tolist") else said, f"returned {brief(said)}"
    if isinstance(scores, Sequence) and not isinstance(scores, str) and len(scores) == count:
        try:
            return [validate_score(x) or 0.0 for x in scores]
        except Fault as fault:
            problem = fault.problem
    allowed = f"{count} finite numbers (None: not judged), as many as `said` has texts"
    raise PartError(f"'{by}' {problem}", where=f"shapers: {part}.by", allowed=allowed)
