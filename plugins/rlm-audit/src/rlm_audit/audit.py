"""The audit: generation of cases, their scores, and the mistakes of a reward by class, the shortest first."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rlm_audit.kinds import MAX_SIZE, Case, Family, Scorer

BATCH = 64
"""Cases per call of a reward."""
ATTEMPTS = 30
"""Draws per wanted case, since a generator may return None or a repetition."""
SHRINKING = 100
"""Cases per size in the search for a shorter mistake."""
EXAMPLES = 3
"""Mistakes of a class that the report lists."""


@dataclass(frozen=True)
class Outcome:
    """The cases of one class, and their scores."""

    cases: list[Case]
    scores: list[float | None]


class Audit:
    """A reward under audit, with generated cases.

    Args:
        score: Scores cases.
        family: Generators of cases.
        form: Text around an answer; empty: the family's own.
        seed: Seed of the cases.
        accepted: Score above which an answer counts as accepted.
        log: Called with a line of progress.
    """

    def __init__(
        self,
        score: Scorer,
        family: Family,
        *,
        form: str = "",
        seed: int = 0,
        accepted: float = 0.5,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._score, self._family, self._form, self._seed, self._accepted = score, family, form, seed, accepted
        self._slowest = 0.0
        self._log = log

    def report(self, number: int, classes: Sequence[str] = ()) -> dict[str, Any]:
        """Return the mistakes by class, and in total, as plain data.

        Args:
            number: Number of cases, over all classes.
            classes: Names of the classes; empty: all.
        """
        names = list(classes or self._family.generators)
        outcomes: dict[str, Outcome] = {}
        for index, name in enumerate(names):
            share = number // len(names) + (index < number % len(names))
            outcomes[name] = self._outcome(name, share)
            self._log(f"{index + 1} of {len(names)} classes: {name}")
        return {
            "seed": self._seed,
            "cases": sum(len(outcome.cases) for outcome in outcomes.values()),
            "slowest": self._slowest,
            "classes": [self._class_report(name, outcome) for name, outcome in outcomes.items()],
            "totals": self._totals([*outcomes.values()]),
        }

    def _outcome(self, name: str, number: int) -> Outcome:
        cases = self._draw(name, number, range(1, MAX_SIZE + 1), "cases")
        return Outcome(cases, self._batches(cases, timed=True))

    def _draw(self, name: str, number: int, sizes: Sequence[int], purpose: str) -> list[Case]:
        """Return up to `number` different cases of a class, with `sizes` in turn."""
        generator, rng = self._family.generators[name], random.Random(f"{self._seed}/{name}/{purpose}")
        cases: dict[str, Case] = {}
        for attempt in range(ATTEMPTS * number):
            if len(cases) == number:
                break
            case = generator(rng, sizes[attempt % len(sizes)])
            if case is not None:
                cases.setdefault(repr((case.prompt, case.columns, case.answer)), case)
        return [*cases.values()]

    def _batches(self, cases: Sequence[Case], *, timed: bool = False) -> list[float | None]:
        scores: list[float | None] = []
        for first in range(0, len(cases), BATCH):
            part = cases[first : first + BATCH]
            start = time.perf_counter()
            scores += self._score(part, [self._family.completion(case, self._form) for case in part])
            if timed:
                self._slowest = max(self._slowest, (time.perf_counter() - start) / len(part))
        return scores

    def _is_mistake(self, case: Case, score: float | None) -> bool:
        return case.is_right != (score is not None and score > self._accepted)

    def _mistakes(self, cases: Sequence[Case], scores: Sequence[float | None]) -> list[Case]:
        pairs = zip(cases, scores, strict=True)
        return [case for case, score in pairs if self._is_mistake(case, score)]

    def _class_report(self, name: str, outcome: Outcome) -> dict[str, Any]:
        mistakes = self._mistakes(outcome.cases, outcome.scores)
        shortest = sorted([*mistakes, *self._shorter(name)], key=_length)[:EXAMPLES] if mistakes else []
        return {
            "class": name,
            "expected": "right" if outcome.cases and outcome.cases[0].is_right else "wrong",
            "mistakes": len(mistakes),
            "cases": len(outcome.cases),
            "unscored": sum(score is None for score in outcome.scores),
            "examples": [{"columns": dict(case.columns), "answer": case.answer} for case in shortest],
        }

    def _shorter(self, name: str) -> list[Case]:
        for size in range(1, MAX_SIZE):
            cases = self._draw(name, SHRINKING, [size], f"size {size}")
            mistakes = self._mistakes(cases, self._batches(cases))
            if mistakes:
                return [min(mistakes, key=_length)]
        return []

    def _totals(self, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        pairs = [pair for each in outcomes for pair in zip(each.cases, each.scores, strict=True)]
        right = [self._is_mistake(*pair) for pair in pairs if pair[0].is_right]
        wrong = [self._is_mistake(*pair) for pair in pairs if not pair[0].is_right]
        return {
            "false_accepts": {"mistakes": sum(wrong), "cases": len(wrong)},
            "false_rejects": {"mistakes": sum(right), "cases": len(right)},
            "unscored": sum(score is None for _, score in pairs),
        }


def _length(case: Case) -> tuple[int, str]:
    """Return the order of examples: by length, then alphabetical, so that reports are reproducible."""
    return len(case.answer) + sum(len(str(value)) for value in case.columns.values()), case.answer
