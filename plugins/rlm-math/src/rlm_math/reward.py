"""r: is the boxed answer mathematically the right one? (hook ``rlm_rewards``)"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

from pydantic import Field

from rlm_math import gold as golds
from rlm_math.boxes import Box, committed
from rlm_math.judging import Brackets, Percent, Question, Rules, Units, judge, reading
from rlm_math.pool import shared

Tolerance = Annotated[float, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0, le=60)]
Count = Annotated[int, Field(ge=1, le=64)]
Log = Callable[[str, float], None]


def math_accuracy(
    completions: Sequence[str],
    answer: Sequence[object],
    log_metric: Log | None = None,
    *,
    box: Box = "last",
    units: Units = "compare",
    percent: Percent = "either",
    brackets: Brackets = "strict",
    ordered: bool = True,
    tolerance: Tolerance = 0.0,
    relative_tolerance: Tolerance = 0.0,
    finished: bool = False,
    seconds: Seconds = 2.5,
    workers: Count | None = None,
) -> list[float | None]:
    """1 if what the completion boxes equals the data set's `answer`, else 0: compared as mathematics, by math-verify.

    Only what follows the thinking counts. `box` says which ``\\boxed{…}``: the last one, the first, all of them (each
    must be right), or the "only" one. Numbers are compared exactly, or up to `tolerance` or the share
    `relative_tolerance` of the right one. `units`: "compare" where both name one, "require" the data set's, or
    "ignore". `percent`: a sign on one side only is read "either" way, or always as a "hundredth". `brackets`: "any"
    takes [1, 2) for (1, 2]; without `ordered` a tuple is a set. `finished`: where a number is asked for, only a
    number will do, not 3·4.

    Cheap looks come first: hedges, restated problems, false chains of equations, bombs are 0. The rest is worked out
    by `workers` processes, killed after `seconds` each: an answer that cannot be settled by then is 0, and counted
    (``math_late``). A row whose own answer cannot be read is not scored: None. Source: math-verify 0.9, behind the
    guard that rlm-math's README measures.

    >>> math_accuracy(["so \\\\boxed{0.5}", "\\\\boxed{3 = 4}", "it is 4"], ["\\\\frac{1}{2}", "4", "4"])
    [1.0, 0.0, 0.0]
    """
    rules = Rules(units, percent, brackets, ordered, tolerance, relative_tolerance, finished)
    cases = [_case(text, _text(gold), box, rules) for text, gold in zip(completions, answer, strict=True)]
    questions = list(dict.fromkeys(question for case in cases if case for question in case.questions))
    replies = dict(zip(questions, shared(workers).run(questions, seconds), strict=True)) if questions else {}
    if log_metric is not None:
        log_metric("math_late", float(sum(reply == "late" for reply in replies.values())))
        log_metric("math_died", float(sum(reply == "died" for reply in replies.values())))
    return [None if case is None else _score(case, replies) for case in cases]


class Case(NamedTuple):
    """One row: whether it is wrong by its looks, and what must be asked."""

    wrong: bool
    questions: list[Question]


def _case(text: str, answer: str, box: Box, rules: Rules) -> Case | None:
    gold = golds.read(answer)
    if gold is None:
        return None
    verdicts = [judge(gold, each, rules) for each in committed(text, box)]
    wrong = not verdicts or any(verdict is False for verdict in verdicts)
    questions = [] if wrong else [verdict for verdict in verdicts if isinstance(verdict, Question)]
    check = None if questions else reading(gold)  # a comparison finds out by itself
    return Case(wrong, questions if check is None else [check])


def _score(case: Case, replies: dict[Question, str]) -> float | None:
    said = [replies[question] for question in case.questions]
    if "unreadable" in said:
        return None
    return float(not case.wrong and all(reply == "right" for reply in said))


def _text(gold: object) -> str:
    """A data set's answer as text; empty when there is none."""
    if gold is None or (isinstance(gold, float) and not math.isfinite(gold)):
        return ""
    return str(int(gold)) if isinstance(gold, float) and gold.is_integer() else str(gold)
