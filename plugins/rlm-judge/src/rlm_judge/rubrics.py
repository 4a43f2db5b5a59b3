"""r: a rubric, criterion by criterion (hook ``rlm_rewards``)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from rlm_judge import verdicts
from rlm_judge.bench import Log, marks
from rlm_judge.fence import says_something
from rlm_judge.spec import Judge
from rlm_judge.wording import Count, Letters, Thinking, Wording
from rlm_plugins.errors import PartError

Points = Annotated[dict[str, float], Field(min_length=1)]


async def judge_rubric(
    completions: Sequence[str],
    prompts: Sequence[str],
    rubric: Sequence[Any] | None = None,
    log_metric: Log | None = None,
    trainer_state: object | None = None,
    *,
    judge: Judge,
    criteria: Points | None = None,
    instructions: str = "",
    template: str | None = None,
    reason: bool = True,
    votes: Count = 1,
    thinking: Thinking = "hide",
    longest: Letters = 20_000,
) -> list[float | None]:
    """How much of a rubric is met: r = Σ wₖ sₖ / Σ_{wₖ>0} wₖ, held between 0 and 1.

    `criteria` maps each criterion, in words, to its weight wₖ; one of negative weight is a fault to be found. A
    column `rubric` (such a mapping, or a list of ``{criterion: …, points: …}``) comes before it. The judge answers
    all of them in one JSON object: true, false or a share sₖ of each. If one is missing the row is not scored: None.
    A row without any criteria is not scored either, and an answer without a letter or digit is 0 unasked. Further
    knobs as of ``judge_score``; in a `template`, ``{ask}`` lists the criteria.
    Source: rubrics as rewards, arXiv 2507.17746 eq. 1; faults: HealthBench, arXiv 2505.08775.
    """
    wording = Wording(instructions, template, reason, thinking, longest)
    rubrics = [rubric_of(row, criteria, number) for number, row in enumerate(rubric or [None] * len(prompts))]
    questions = [
        wording.question({"task": task, "answer": said}, each.ask, each.form, each.read)
        if each and says_something(said)
        else None
        for task, each, said in zip(prompts, rubrics, map(wording.said, completions), strict=True)
    ]
    found = await marks("judge_rubric", judge, questions, votes, log_metric, trainer_state, unasked=0.0)
    return [mark if each else None for mark, each in zip(found, rubrics, strict=True)]


@dataclass(frozen=True)
class Rubric:
    """Criteria and their weights; numbered from 1 for the judge.

    Args:
        weights: Criterion → weight.
    """

    weights: Mapping[str, float]

    @property
    def ask(self) -> str:
        """The criteria as a numbered list."""
        listed = [f"{number}. {' '.join(text.split())}" for number, text in enumerate(self.weights, 1)]
        return "\n".join(["Which of these criteria does the answer meet?", *listed])

    @property
    def form(self) -> str:
        """What the verdict looks like."""
        shown = ", ".join(f'"{number}": …' for number in range(1, len(self.weights) + 1))
        return f"{{{shown}}} (a JSON object; for each criterion true, false, or a share such as 0.5)"

    def read(self, text: str) -> float | None:
        """r, from the judge's JSON.

        >>> Rubric({"right": 3, "short": 1, "rude": -2}).read('{"1": true, "2": 0.5, "3": true}')
        0.375
        """
        met = verdicts.items(text, [str(number) for number in range(1, len(self.weights) + 1)])
        if met is None:
            return None
        best = sum(weight for weight in self.weights.values() if weight > 0)
        got = sum(weight * share for weight, share in zip(self.weights.values(), met, strict=True))
        return min(1.0, max(0.0, got / best))


def rubric_of(row: Any, criteria: Mapping[str, float] | None, number: int) -> Rubric | None:
    """The rubric of a row: its own, or else that of the recipe; None where there is neither.

    Raises:
        PartError: It is none, or nothing in it can be won.
    """
    found = dict(criteria or {})
    if row:
        try:
            found = dict(row) if isinstance(row, Mapping) else {each["criterion"]: each["points"] for each in row}
        except (TypeError, KeyError):
            found = {"?": math.nan}
        if not all(isinstance(k, str) and isinstance(w, int | float) and math.isfinite(w) for k, w in found.items()):
            allowed = "{criterion: points, …} or [{criterion: …, points: …}, …]"
            raise PartError(f"sample {number}: its rubric is {str(row)[:80]!r}", allowed=allowed)
    if found and max(found.values()) <= 0:
        raise PartError(f"sample {number}: no criterion of its rubric has a positive weight", where="criteria")
    return Rubric(found) if found else None
