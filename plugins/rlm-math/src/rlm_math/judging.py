"""Whether an answer is the data set's: by its looks where that settles it, else a question for the workers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Literal, NamedTuple

from rlm_math import units
from rlm_math.gold import Gold, as_letter, as_words, named, sides
from rlm_math.lists import both, numbers, same_form, same_numbers
from rlm_math.numerals import exactly, near, number
from rlm_math.refusals import refused
from rlm_math.spelling import commas, compact, plain, tidy
from rlm_math.units import PERCENT

Units = Literal["compare", "ignore", "require"]
Percent = Literal["either", "hundredth"]
Brackets = Literal["strict", "any"]

_SIDES = 4
_BASE = re.compile(r"\d\s*_")


@dataclass(frozen=True)
class Rules:
    """The knobs of the reward that decide what is the same."""

    units: Units = "compare"
    percent: Percent = "either"
    brackets: Brackets = "strict"
    ordered: bool = True
    tolerance: float = 0.0
    relative: float = 0.0
    finished: bool = False


class Question(NamedTuple):
    """What only a computer-algebra system can say: is each of `answers` the same as `gold`?"""

    gold: str
    answers: tuple[str, ...]
    tolerance: float
    relative: float


def judge(gold: Gold, answer: str, rules: Rules) -> bool | Question:
    """Right, wrong, or a question that must be answered with yes."""
    written = plain(answer)
    text = tidy(written) if written else ""
    if not text:
        return False
    if compact(text) == compact(gold.text):
        return True
    if gold.kind == "letter":
        return as_letter(text) == gold.value
    if gold.kind == "words":
        return as_words(text) == gold.value
    if _BASE.search(text) or _BASE.search(gold.text):
        return False  # digits in some base: only what is written alike
    name, value = named(text)
    if "=" in text and "=" in gold.text and not (name and gold.name):
        chain = text.count("=") > gold.text.count("=") or refused(text, gold.text)
        return False if chain else _ask(gold.text, text, rules)
    if name and gold.name and compact(name) != compact(gold.name):
        return False
    return _sides(gold, sides(value), rules)


def _sides(gold: Gold, parts: list[str], rules: Rules) -> bool | Question:
    """A chain of equations is right when every side is."""
    if len(parts) > _SIDES:
        return False
    verdicts = [_value(gold, part, rules) for part in parts]
    if any(verdict is False for verdict in verdicts):
        return False
    asked = [verdict for verdict in verdicts if isinstance(verdict, Question)]
    return asked[0]._replace(answers=tuple(one for each in asked for one in each.answers)) if asked else True


def _value(gold: Gold, text: str, rules: Rules) -> bool | Question:
    value, unit = units.split(text)
    if refused(value, gold.value) or not value or not _same_unit(gold.unit, unit, rules.units):
        return False
    if compact(value) == compact(gold.value) and (gold.exact is None or PERCENT not in (unit, gold.unit)):
        return True
    exact = number(value)
    if gold.exact is not None and exact is not None:
        return _same_number(gold.exact, gold.unit == PERCENT, exact, unit == PERCENT, rules)
    if (unit == PERCENT) != (gold.unit == PERCENT) or (rules.finished and gold.exact is not None):
        return False
    right, said = both(gold.value), both(value)
    theirs, mine = numbers(right), numbers(said)
    if theirs and mine:
        return same_numbers(theirs, mine, _near(rules), ordered=rules.ordered, strict=rules.brackets == "strict")
    return same_form(right, said) and _ask(right, said, rules)


def _same_unit(gold: str | None, unit: str | None, policy: Units) -> bool:
    gold, unit = (None if name == PERCENT else name for name in (gold, unit))
    if policy == "ignore" or gold == unit:
        return True
    return unit is None and policy == "compare" if gold else policy in ("compare", "require")


def _same_number(gold: Fraction, gold_percent: bool, value: Fraction, percent: bool, rules: Rules) -> bool:
    """A percent sign on one side only is read either way: as a hundredth, or as the unit the question asked for."""

    same = _near(rules)
    if gold_percent == percent:
        return same(value, gold)
    if gold_percent:
        return same(value, gold / 100) or (rules.percent == "either" and same(value, gold))
    # 50 % for 50, but never 0.5 % for a probability of 0.5
    return same(value / 100, gold) or (rules.percent == "either" and abs(gold) > 1 and same(value, gold))


def _near(rules: Rules) -> Callable[[Fraction, Fraction], bool]:
    return partial(near, tolerance=rules.tolerance, relative=rules.relative)


def _ask(gold: str, answer: str, rules: Rules) -> Question:
    """The question, with what the rules do not tell apart written alike."""
    if rules.brackets == "any" and commas(gold) == commas(answer) == 1:
        gold, answer = (re.sub(r"^\s*[\[(](.*)[\])]\s*$", r"(\1)", text, flags=re.S) for text in (gold, answer))
    if not rules.ordered:
        gold, answer = (re.sub(r"^\s*\((.*,.*)\)\s*$", r"\\{\1\\}", text, flags=re.S) for text in (gold, answer))
    gold, answer = (exactly(compact(text)) for text in (gold, answer))
    return Question(gold, (answer,), rules.tolerance, rules.relative)


def reading(gold: Gold) -> Question | None:
    """The question whether a data set's answer can be worked with at all; None: it can, without asking."""
    text = both(gold.value or gold.text)
    if gold.kind != "formula" or numbers(text):
        return None
    return Question(exactly(compact(text)), (), 0.0, 0.0)
