"""Asks a reward about completions whose worth is known, and about the same ones again in other ways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlm_plugins.reward_probe.call import Asked, Scores, ask
from rlm_plugins.reward_probe.cases import AS_IT_IS, FORMS, Example, demonstrations, golds, traps
from rlm_plugins.stage import Reward

PATIENCE = 60.0
"""Seconds a call may take where the recipe says no `timeout`."""


class Probe:
    """A reward and rows to ask it about.

    Args:
        rewards: The one that is looked at, then those it is compared with.
        rows: With a ``prompt``.
        answer: The column with the right answer; None: there is none.
        forms: Name → how an answer may be written down.
    """

    def __init__(
        self,
        rewards: Sequence[Reward],
        rows: Sequence[Example],
        *,
        answer: str | None = "answer",
        forms: Mapping[str, str] = FORMS,
    ) -> None:
        patient = [replace(r, timeout=r.timeout or PATIENCE, on_error="stop") for r in rewards]
        self._reward, self._others = patient[0], patient[1:]
        self._rows, self._answer, self._forms = list(rows), answer, forms

    def report(self) -> dict[str, Any]:
        """Everything that was found, as plain data: see :func:`rlm_plugins.cli.reward_probe_report.tell`."""
        rows, column, shown = self._rows, self._answer, demonstrations(self._rows)
        answers = [row[column] for row in rows] if column else []
        right = golds(answers, shown, self._forms)
        paid = {name: ask(self._reward, rows, texts) for name, texts in right.items()}
        best = max(paid, key=lambda name: _height(paid[name]), default=None)
        wrong = traps(rows, answers or shown, self._form(paid) if answers or not shown else AS_IT_IS)
        unpaid = {name: ask(self._reward, rows, texts) for name, texts in wrong.items()}
        gold = paid[best].scores if best else []
        texts = {**({"gold": right[best]} if best else {}), **wrong}
        return {
            "reward": self._reward.label,
            "full_name": self._reward.part.part.full_name,
            "file": self._reward.part.part.file,
            "rows": len(rows),
            "answer": column or ("demonstration" if shown else None),
            "best_form": best,
            "gold": {name: asked.told for name, asked in paid.items()},
            "traps": {
                name: {**asked.told, "as_good_as_gold": _as_good(asked.scores, gold)} for name, asked in unpaid.items()
            },
            "behaviour": self._behaviour(texts["gold"] if best else wrong["the prompt, echoed"]),
            "agreement": [self._agreement(other, texts) for other in self._others],
        }

    def _form(self, paid: Mapping[str, Asked]) -> str:
        """In which the traps are written: what scores best beside the demonstrations."""
        return self._forms[max(self._forms, key=lambda name: _height(paid[name]) if name in paid else 0.0)]

    def _behaviour(self, texts: Sequence[str]) -> dict[str, Any]:
        """Whether it says the same again, in another order, alone; and what it says where there is no answer."""
        reward, rows = self._reward, self._rows
        first = ask(reward, rows, texts)
        again = ask(reward, rows, texts)
        back = ask(reward, rows[::-1], texts[::-1])
        single = [ask(reward, [row], [text]) for row, text in zip(rows, texts, strict=True)]
        found: dict[str, Any] = {
            "same_twice": first.scores == again.scores,
            "same_in_another_order": first.scores == back.scores[::-1],
            "same_alone": first.scores == [x for asked in single for x in asked.scores],
            "milliseconds_alone": 1000 * max(asked.seconds for asked in single),
        }
        part = reward.part.part
        if self._answer in (*part.needs, *part.welcomes):
            blank = [{**row, self._answer: None} for row in rows]
            found["without_answer"] = _in_words(ask(reward, blank, texts))
        return found

    def _agreement(self, other: Reward, texts: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """How far another reward says the same of the same completions."""
        pairs: list[tuple[str, float, float]] = []
        for name, each in texts.items():
            one, two = (ask(reward, self._rows, each).scores for reward in (self._reward, other))
            pairs += [(name, a, b) for a, b in zip(one, two, strict=False) if a is not None and b is not None]
        sides = [_side([a for _, a, _ in pairs]), _side([b for _, _, b in pairs])]
        apart = [name for (name, *_), a, b in zip(pairs, *sides, strict=True) if a != b]
        return {
            "with": other.label,
            "samples": len(pairs),
            "correlation": _correlation([a for _, a, _ in pairs], [b for _, _, b in pairs]),
            "same_verdict": 1 - len(apart) / len(pairs) if pairs else None,
            "apart_on": list(dict.fromkeys(apart)),
        }


def _height(asked: Asked) -> float:
    mean = asked.told["mean"]
    return float("-inf") if mean is None else mean


def _as_good(scores: Scores, gold: Scores) -> int | None:
    """Rows for which a trap is paid what the right answer is."""
    if not gold:
        return None
    return sum(a is not None and b is not None and a >= b for a, b in zip(scores, gold, strict=False))


def _in_words(asked: Asked) -> str:
    if asked.error:
        return asked.error
    kinds = {"not scored (None)" if x is None else f"scored {x:g}" for x in asked.scores}
    return " or ".join(sorted(kinds))


def _side(values: Sequence[float]) -> list[bool]:
    """Above the middle of their range?"""
    middle = (min(values) + max(values)) / 2 if values else 0.0
    return [value > middle for value in values]


def _correlation(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Pearson's; None where one of them never changes."""
    if not x:
        return None
    a, b = ([value - sum(each) / len(each) for value in each] for each in (x, y))
    size = (sum(v * v for v in a) * sum(v * v for v in b)) ** 0.5
    return sum(v * w for v, w in zip(a, b, strict=True)) / size if size else None
