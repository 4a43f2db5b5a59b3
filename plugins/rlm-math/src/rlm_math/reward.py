"""r: equality of the boxed answer and the reference as mathematics (hook ``rlm_rewards``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from rlm_math.boxes import Box, final_answers
from rlm_math.comparison import Brackets, Percent, Query, Rules, Units, compare_answer, parse_query, parse_reference
from rlm_plugins.workers import pool

Tolerance = Annotated[float, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0, le=60)]
Count = Annotated[int, Field(ge=1, le=64)]
Digits = Annotated[int, Field(ge=1, le=15)]
Log = Callable[[str, float], None]

PROGRAM = pool.Program(
    Path(__file__).with_name("verifier_worker.py"), name="comparison worker", hint="pip install rlm-math"
)
"""The worker program; its replies are ``right``, ``wrong`` and ``unreadable``."""


def shared_workers(size: int | None) -> pool.Pool:
    """Return the pool of this process; by default one worker per available core, at most four."""
    return pool.shared(PROGRAM, size)


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
    digits: Digits = 6,
    finished: bool = False,
    seconds: Seconds = 2.5,
    workers: Count | None = None,
) -> list[float | None]:
    """Return 1 if the completion's boxed answer equals the reference `answer` mathematically, else 0.

    Only the text after the thinking counts. `box` selects the ``\\boxed{…}``: the last one, the first, all of them
    (each must be correct), or the "only" one. Numbers must be equal: 2^100 is not 2^100 − 1. An exact number also
    equals the decimal of three digits or more that it rounds to. `tolerance` and `relative_tolerance` allow more.
    A decimal equals an exact value from `digits` digits on that are right.
    `units`: "compare" if both have one, "require" the reference's, or "ignore". `percent`: a sign on one side only has
    "either" meaning, or always means a "hundredth". `brackets`: "any" accepts [1, 2) for (1, 2]. Without `ordered` a
    tuple is a set. `finished`: a numeric reference requires a number, not 3·4.

    Cheap rules come first: restated problems and false chains of equations score 0. The rest is parsed and compared by
    `workers` processes, exactly where both sides are rational, else with ball arithmetic (Arb). They are killed after
    `seconds` per answer. An answer without a result by then scores 0 and is counted (``math_late``). An example whose
    own answer cannot be parsed is not scored: None.

    >>> math_accuracy(["so \\\\boxed{0.5}", "\\\\boxed{3 = 4}", "it is 4"], ["\\\\frac{1}{2}", "4", "4"])
    [1.0, 0.0, 0.0]
    """
    rules = Rules(units, percent, brackets, ordered, tolerance, relative_tolerance, digits, finished)
    cases = [_case(text, _text(gold), box, rules) for text, gold in zip(completions, answer, strict=True)]
    queries = list(dict.fromkeys(query for case in cases if case for query in case[1]))
    replies = dict(zip(queries, shared_workers(workers).run(queries, seconds), strict=True)) if queries else {}
    if log_metric is not None:
        log_metric("math_late", float(sum(reply == "late" for reply in replies.values())))
        log_metric("math_died", float(sum(reply == "died" for reply in replies.values())))
    return [None if case is None else _score(case, replies) for case in cases]


math_accuracy.gold_column = "answer"  # type: ignore[attr-defined]


Case = tuple[bool, list[Query]]
"""One completion: True if rejected without evaluation, and the queries that decide otherwise."""


def _case(text: str, answer: str, box: Box, rules: Rules) -> Case | None:
    gold = parse_reference(answer)
    if gold is None:
        return None
    comparisons = [compare_answer(gold, candidate, rules) for candidate in final_answers(text, box)]
    is_wrong = not comparisons or any(comparison is False for comparison in comparisons)
    queries = [] if is_wrong else [comparison for comparison in comparisons if isinstance(comparison, Query)]
    check = None if queries else parse_query(gold)  # a comparison also finds unparseable references
    return is_wrong, queries if check is None else [check]


def _score(case: Case, replies: dict[Query, str]) -> float | None:
    is_wrong, queries = case
    case_replies = [replies[query] for query in queries]
    if "unreadable" in case_replies:
        return None
    return float(not is_wrong and all(reply == "right" for reply in case_replies))


def _text(gold: object) -> str:
    if gold is None or (isinstance(gold, float) and not math.isfinite(gold)):
        return ""
    return str(int(gold)) if isinstance(gold, float) and gold.is_integer() else str(gold)
