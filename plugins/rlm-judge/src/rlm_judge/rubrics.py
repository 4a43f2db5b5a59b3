"""r: weighted share of a rubric's criteria that the judge finds met (hook ``rlm_rewards``)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from rlm_judge import verdict_parsing
from rlm_judge.judge_factory import Log, query_or_default
from rlm_judge.prompt_builder import PromptBuilder
from rlm_judge.prompt_builder import has_content
from rlm_judge.spec import Instructions, Judge, MaxCharacters, Reason, Template, Thinking, Votes
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
    instructions: Instructions = "",
    template: Template = None,
    reason: Reason = True,
    votes: Votes = 1,
    thinking: Thinking = "hide",
    longest: MaxCharacters = 20_000,
) -> list[float | None]:
    """Return how much of a rubric is met: r = Σ wₖ sₖ / Σ_{wₖ>0} wₖ, clamped to [0, 1].

    `criteria` maps the text of each criterion to its weight wₖ; one of negative weight is a fault to detect. A
    column `rubric` (such a mapping, or a list of ``{criterion: …, points: …}``) has precedence. The judge answers
    all of them in one JSON object: true, false or a share sₖ of each. If one is missing, the completion is not scored:
    None. Without any criteria it is not scored either, and an answer without a letter or digit gets 0 without a query.
    Further knobs as of ``judge_score``; in a `template`, ``{ask}`` lists the criteria.
    Source: rubrics as rewards, arXiv 2507.17746 eq. 1; faults: HealthBench, arXiv 2505.08775.
    """
    builder = PromptBuilder(instructions, template, reason, thinking, longest)
    rubrics = [parse_rubric(entry, criteria, index) for index, entry in enumerate(rubric or [None] * len(prompts))]
    queries = [
        builder.query({"task": task, "answer": text}, own_rubric.ask, own_rubric.form, own_rubric.parse)
        if own_rubric and has_content(text)
        else None
        for task, own_rubric, text in zip(prompts, rubrics, map(builder.judged_text, completions), strict=True)
    ]
    scores = await query_or_default("judge_rubric", judge, queries, votes, log_metric, trainer_state, default=0.0)
    return [score if own_rubric else None for score, own_rubric in zip(scores, rubrics, strict=True)]


@dataclass(frozen=True)
class Rubric:
    """Criteria and their weights, numbered from 1 in the prompt.

    Args:
        weights: Criterion → weight.
    """

    weights: Mapping[str, float]

    @property
    def ask(self) -> str:
        """The criteria as a numbered list, for the prompt."""
        listed = [f"{number}. {' '.join(text.split())}" for number, text in enumerate(self.weights, 1)]
        return "\n".join(["Which of these criteria does the answer meet?", *listed])

    @property
    def form(self) -> str:
        """The form of the verdict, for the prompt."""
        shown = ", ".join(f'"{number}": …' for number in range(1, len(self.weights) + 1))
        return f"{{{shown}}} (a JSON object; for each criterion true, false, or a share such as 0.5)"

    def parse(self, text: str) -> float | None:
        """Compute r from the judge's JSON.

        >>> Rubric({"right": 3, "short": 1, "rude": -2}).parse('{"1": true, "2": 0.5, "3": true}')
        0.375
        """
        met = verdict_parsing.items(text, [str(number) for number in range(1, len(self.weights) + 1)])
        if met is None:
            return None
        best = sum(weight for weight in self.weights.values() if weight > 0)
        total = sum(weight * share for weight, share in zip(self.weights.values(), met, strict=True))
        return min(1.0, max(0.0, total / best))


def parse_rubric(entry: Any, criteria: Mapping[str, float] | None, index: int) -> Rubric | None:
    """Return the rubric of an example: its own, or else the recipe's; None if there is neither."""
    weights = dict(criteria or {})
    if entry:
        try:
            weights = (
                dict(entry) if isinstance(entry, Mapping) else {item["criterion"]: item["points"] for item in entry}
            )
        except (TypeError, KeyError):
            weights = {"?": math.nan}
        if not all(isinstance(k, str) and isinstance(w, int | float) and math.isfinite(w) for k, w in weights.items()):
            allowed = "{criterion: points, …} or [{criterion: …, points: …}, …]"
            raise PartError(f"sample {index}: malformed rubric {str(entry)[:80]!r}", allowed=allowed)
    if weights and max(weights.values()) <= 0:
        raise PartError(f"sample {index}: the rubric requires a criterion with a positive weight", where="criteria")
    return Rubric(weights) if weights else None
