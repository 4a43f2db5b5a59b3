"""Comparison of an answer with the reference: decided from the text where possible, else a query to the workers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Literal, NamedTuple

from rlm_math import units
from rlm_math.latex_normalization import count_commas, normalize_latex, strip_spaces, to_ascii
from rlm_math.lists import are_same_numbers, expand_plus_minus, have_same_form, parse_numbers
from rlm_math.numerals import decimals_to_fractions, is_near, parse_number
from rlm_math.reference import Reference, choice_letter, normalized_words, split_equation, split_name
from rlm_math.rejection_rules import rejection_reason
from rlm_math.units import PERCENT

Units = Literal["compare", "ignore", "require"]
Percent = Literal["either", "hundredth"]
Brackets = Literal["strict", "any"]

_MAX_SIDES = 4
_BASE = re.compile(r"\d\s*_")


@dataclass(frozen=True)
class Rules:
    """The knobs of the reward that define equality."""

    units: Units = "compare"
    percent: Percent = "either"
    brackets: Brackets = "strict"
    ordered: bool = True
    tolerance: float = 0.0
    relative: float = 0.0
    finished: bool = False


class Query(NamedTuple):
    """A query to the computer-algebra system: are all `answers` equal to `gold`?"""

    gold: str
    answers: tuple[str, ...]
    tolerance: float
    relative: float


def compare_answer(gold: Reference, answer: str, rules: Rules) -> bool | Query:
    """Return True (correct), False (wrong), or a query whose reply decides."""
    ascii_text = to_ascii(answer)
    text = normalize_latex(ascii_text) if ascii_text else ""
    if not text:
        return False
    if strip_spaces(text) == strip_spaces(gold.text):
        return True
    if gold.kind == "letter":
        return choice_letter(text) == gold.value
    if gold.kind == "words":
        return normalized_words(text) == gold.value
    if _BASE.search(text) or _BASE.search(gold.text):
        return False  # digits in another base: only identical text is equal
    name, value = split_name(text)
    if "=" in text and "=" in gold.text and not (name and gold.name):
        chain = text.count("=") > gold.text.count("=") or rejection_reason(text, gold.text)
        return False if chain else _query(gold.text, text, rules)
    if name and gold.name and strip_spaces(name) != strip_spaces(gold.name):
        return False
    return _compare_chain(gold, split_equation(value), rules)


def _compare_chain(gold: Reference, parts: list[str], rules: Rules) -> bool | Query:
    """Compare a chain of equations, which is correct if every side is."""
    if len(parts) > _MAX_SIDES:
        return False
    verdicts = [_compare_value(gold, part, rules) for part in parts]
    if any(verdict is False for verdict in verdicts):
        return False
    queries = [verdict for verdict in verdicts if isinstance(verdict, Query)]
    return (
        queries[0]._replace(answers=tuple(answer for query in queries for answer in query.answers)) if queries else True
    )


def _compare_value(gold: Reference, text: str, rules: Rules) -> bool | Query:
    """Compare a value and its unit with the reference."""
    value, unit = units.split(text)
    if rejection_reason(value, gold.value) or not value or not _same_unit(gold.unit, unit, rules.units):
        return False
    if strip_spaces(value) == strip_spaces(gold.value) and (gold.exact is None or PERCENT not in (unit, gold.unit)):
        return True
    exact = parse_number(value)
    if gold.exact is not None and exact is not None:
        return _same_number(gold.exact, gold.unit == PERCENT, exact, unit == PERCENT, rules)
    if (unit == PERCENT) != (gold.unit == PERCENT) or (rules.finished and gold.exact is not None):
        return False
    expected, expanded = expand_plus_minus(gold.value), expand_plus_minus(value)
    expected_numbers, answer_numbers = parse_numbers(expected), parse_numbers(expanded)
    if expected_numbers and answer_numbers:
        return are_same_numbers(
            expected_numbers, answer_numbers, _nearness(rules), ordered=rules.ordered, strict=rules.brackets == "strict"
        )
    return have_same_form(expected, expanded) and _query(expected, expanded, rules)


def _same_unit(gold: str | None, unit: str | None, policy: Units) -> bool:
    """Return True if the units agree under the policy."""
    gold, unit = (None if name == PERCENT else name for name in (gold, unit))
    if policy == "ignore" or gold == unit:
        return True
    return unit is None and policy == "compare" if gold else policy in ("compare", "require")


def _same_number(gold: Fraction, gold_percent: bool, value: Fraction, percent: bool, rules: Rules) -> bool:
    """Compare numbers; a percent sign on one side only means a hundredth or the unit that the question asked for."""
    is_equal = _nearness(rules)
    if gold_percent == percent:
        return is_equal(value, gold)
    if gold_percent:
        return is_equal(value, gold / 100) or (rules.percent == "either" and is_equal(value, gold))
    # 50 % for 50, but never 0.5 % for a probability of 0.5
    return is_equal(value / 100, gold) or (rules.percent == "either" and abs(gold) > 1 and is_equal(value, gold))


def _nearness(rules: Rules) -> Callable[[Fraction, Fraction], bool]:
    return partial(is_near, tolerance=rules.tolerance, relative=rules.relative)


def _query(gold: str, answer: str, rules: Rules) -> Query:
    """Build a query, rewriting what the rules treat as equal to the same text."""
    if rules.brackets == "any" and count_commas(gold) == count_commas(answer) == 1:
        gold, answer = (re.sub(r"^\s*[\[(](.*)[\])]\s*$", r"(\1)", text, flags=re.S) for text in (gold, answer))
    if not rules.ordered:
        gold, answer = (re.sub(r"^\s*\((.*,.*)\)\s*$", r"\\{\1\\}", text, flags=re.S) for text in (gold, answer))
    gold, answer = (decimals_to_fractions(strip_spaces(text)) for text in (gold, answer))
    return Query(gold, (answer,), rules.tolerance, rules.relative)


def parse_query(gold: Reference) -> Query | None:
    """Return the query whether a reference can be evaluated at all; None if it can without one."""
    text = expand_plus_minus(gold.value or gold.text)
    if gold.kind != "formula" or parse_numbers(text):
        return None
    return Query(decimals_to_fractions(strip_spaces(text)), (), 0.0, 0.0)
