"""Comparison of an answer with the reference: decided from the text where possible, else a query to the workers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from string import ascii_lowercase
from typing import Literal, NamedTuple

from rlm_math import units
from rlm_math.clock_times import are_proportional, is_time, normalized_clock, ratio
from rlm_math.combinatorics import has_counts, in_binomials, is_combination
from rlm_math.dates import normalized_date
from rlm_math.function_arguments import is_of_another_variable, with_arguments_of, with_constant_of, with_name
from rlm_math.latex_normalization import normalize_latex, strip_spaces, to_ascii
from rlm_math.numerals import is_near, numeral, parse_number
from rlm_math.phrases import integer_parameter, introduction, plain_answer
from rlm_math.quantity_names import is_label, is_other_label, is_quantity_name, split_label
from rlm_math.reference import (
    NOTATIONS,
    Reference,
    choice_letter,
    split_approximation,
    split_choice,
    split_equation,
    split_name,
)
from rlm_math.rejection_rules import MAX_ANSWER_LENGTH, rejection_reason
from rlm_math.single_words import same_word
from rlm_math.units import PERCENT

Units = Literal["compare", "ignore", "require"]
Percent = Literal["either", "hundredth"]
Brackets = Literal["strict", "any"]

LONGEST = 5
"""An answer with more characters than this many times its limit is not read, which bounds the time for notation."""
_MAX_SIDES = 4
_CIRCULAR = re.compile(r"\\pi(?![A-Za-z])|\\arc|\^\s*\{\s*-1\s*\}")
_DEGREE, _RADIANS = "degree", (None, "radian")
_EQUAL_NAMES = re.compile(r"\s*(?:[A-Za-z]\s*=\s*){2,}(?!.*=)")
_JOINED = re.compile(r"[,;]|\\\\|(?<![A-Za-z])(?:or|and)(?![A-Za-z])|\\(?:lor|land|vee|wedge)(?![A-Za-z])")


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
    """A query to the workers: are all `answers` equal to `gold`? The last fields are rules of the comparison."""

    gold: str
    answers: tuple[str, ...]
    tolerance: float = 0.0
    relative: float = 0.0
    ordered: bool = True
    ends_count: bool = True


def compare_answer(gold: Reference, answer: str, rules: Rules) -> bool | Query:
    """Return True (correct), False (wrong), or a query whose reply decides."""
    if len(answer) > LONGEST * max(MAX_ANSWER_LENGTH, len(gold.text)):
        return False
    ascii_text = to_ascii(answer)
    normalized = normalize_latex(ascii_text) if ascii_text else ""
    text = with_name(plain_answer(normalized), integer_parameter(normalized), gold.parameter, gold.text)
    text = with_constant_of(gold.text, text)
    if not text or is_other_label(gold.label, introduction(normalized)):
        return False
    text = split_approximation(text)[0] if gold.is_rounded else text
    if has_counts(gold.text) and "C" not in gold.text:
        text = in_binomials(text)
    letter, rest = split_choice(text, is_option=gold.kind == "letter" or bool(gold.choice))
    if letter:
        right_letter = gold.value if gold.kind == "letter" else gold.choice or letter
        text = letter if gold.kind == "letter" else rest
        if letter != right_letter:
            return False
    elif gold.choice and (letter := choice_letter(text)):
        return letter == gold.choice
    if strip_spaces(text) == strip_spaces(gold.text):
        return True
    if (verdict := same_word(gold.text, text)) is not None:
        return verdict
    if is_combination(text) and not gold.text.startswith("C"):
        return False
    if gold.kind == "clock":
        is_ratio = not re.search("[A-Za-z]", gold.text)
        value = normalized_clock(text) or (ratio(text) if is_ratio else "")
        return value == gold.value or (not is_time(gold.value) and are_proportional(gold.value, value))
    if gold.kind in NOTATIONS:
        return NOTATIONS[gold.kind](text) == gold.value
    if normalized_date(text):
        return False  # 2024-10-12 is no difference
    return _compare_equations(gold, text, rules)


def _compare_equations(gold: Reference, text: str, rules: Rules) -> bool | Query:
    """Compare what may be an equation, a chain of them, or several answers with names."""
    if is_other_label(gold.label, split_label(text)[0]):
        return False
    if not gold.name:
        text = _without_quantity_name(text, gold)
    name, value = split_name(text)
    if gold.name and (renamed := with_arguments_of(gold.name, name, value)) is not None:
        name, value, text = gold.name, renamed, f"{gold.name}={renamed}"
    if is_of_another_variable(name, value):
        return False
    if not gold.name and not _is_in_order(re.findall(r"(?<!\w)[a-z](?!\w)", name)):
        return False  # (y, x) = (1, 2) is the point (2, 1)
    is_joined = _JOINED.search(text) and ("=" in value or not name)
    if "=" in text and (is_joined or "\\equiv" in gold.text or (gold.exact is None and _EQUAL_NAMES.match(text))):
        return not rejection_reason(text, gold.text) and _query(gold.text, text, rules)
    is_other = name and gold.name and strip_spaces(name) != strip_spaces(gold.name)
    if is_other and "(" in name[1:] and "(" in gold.name[1:]:
        return False  # two functions
    if "=" in text and "=" in gold.text and (is_other or not (name and gold.name)):
        chain = text.count("=") > gold.text.count("=") or rejection_reason(text, gold.text)
        return False if chain else _query(gold.text, text, rules)
    return _compare_chain(gold, split_equation(value), rules)


def _is_in_order(letters: list[str]) -> bool:
    """Return False for names of coordinates, or successive letters such as m and n, in another order."""
    ordered, axes = sorted(letters), [letter for letter in letters if letter in "xyz"]
    return axes == sorted(axes) and (letters == ordered or "".join(ordered) not in ascii_lowercase)


def _without_quantity_name(text: str, gold: Reference) -> str:
    """Return the value of ``m + n = 73``, ``73 = m + n`` or ``73 = x``; anything else as it is.

    Words may be a name if they name a quantity, or are those of the reference; a sum only of a number.
    """
    sides = split_equation(text)
    if len(sides) > 2 and is_label(sides[0]):
        return "=".join(sides[1:])
    if len(sides) != 2 or "=" in gold.text:
        return text
    left, right = sides
    is_name = is_quantity_name if gold.exact is not None else is_label
    if is_name(left) or (gold.label and split_label(text)[0] == gold.label):
        return right
    return left if is_name(right) or (gold.exact is not None and split_name(f"{right}=")[0]) else text


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
    value, unit = units.split(text, gold.unit)
    if not value or rejection_reason(value, gold.value):
        return False
    if _is_other_angle(gold.unit, value, unit):
        return rules.units == "compare" and _query(rf"({gold.value})^\circ", value, rules)
    if _is_other_angle(unit, gold.value, gold.unit):
        return rules.units == "compare" and _query(gold.value, rf"({value})^\circ", rules)
    exact, factor = parse_number(value), Fraction(1)
    is_one = exact is not None and abs(exact) <= 1  # 1 apple
    if unit and unit != gold.unit and not is_one and not units.is_certain(unit, text.removeprefix(value)):
        return False
    if unit in units.MULTIPLES and gold.unit is None and rules.units != "ignore":
        return False
    if unit is None and rules.units == "compare" and units.is_compound(gold.text):
        return False
    if not _same_unit(gold.unit, unit, rules.units):
        factor = units.conversion(unit, gold.unit) or Fraction(0)
    if not factor:
        return False
    if factor != 1 and (gold.exact is None or exact is None):
        return _query(gold.value, rf"{numeral(factor)}\cdot({value})", rules)
    if gold.exact is not None and exact is not None:
        is_same = _same_number(gold, factor * exact, percent=unit == PERCENT, rules=rules)
        return is_same or (factor == 1 and _may_be_rounded(gold, value, unit) and _query(gold.value, value, rules))
    if (unit == PERCENT) != (gold.unit == PERCENT) or (rules.finished and gold.exact is not None):
        return False
    return strip_spaces(value) == strip_spaces(gold.value) or _query(gold.value, value, rules)


def _is_other_angle(unit: str | None, other: str, other_unit: str | None) -> bool:
    """Return True for an angle in degrees beside one in radians, which contains π or an inverse function."""
    return unit == _DEGREE and other_unit in _RADIANS and _CIRCULAR.search(other) is not None


def _same_unit(gold: str | None, unit: str | None, policy: Units) -> bool:
    """Return True if the units agree under the policy. A percent sign is no unit, and agrees with none."""
    if PERCENT in (gold, unit) and {gold, unit} - {None, PERCENT}:
        return policy == "ignore"
    gold, unit = (None if name == PERCENT else name for name in (gold, unit))
    if policy == "ignore" or gold == unit:
        return True
    return unit is None and policy == "compare" if gold else policy in ("compare", "require")


def _same_number(gold: Reference, value: Fraction, *, percent: bool, rules: Rules) -> bool:
    """Compare numbers; a percent sign on one side only means a hundredth or the unit that the question asked for."""
    assert gold.exact is not None
    is_equal, expected = _nearness(rules), gold.exact
    if (gold.unit == PERCENT) == percent:
        return is_equal(value, expected)
    if gold.unit == PERCENT:
        return is_equal(value, expected / 100) or (rules.percent == "either" and is_equal(value, expected))
    # 50 % for 50, but never 0.5 % for a probability of 0.5
    is_number = rules.percent == "either" and abs(expected) > 1
    return is_equal(value / 100, expected) or (is_number and is_equal(value, expected))


def _may_be_rounded(gold: Reference, value: str, unit: str | None) -> bool:
    """Return True for a decimal reference and an answer without a decimal, both without a percent sign."""
    return "." in gold.value and "." not in value and PERCENT not in (gold.unit, unit)


def _nearness(rules: Rules) -> Callable[[Fraction, Fraction], bool]:
    return partial(is_near, tolerance=rules.tolerance, relative=rules.relative)


def _query(gold: str, answer: str, rules: Rules) -> Query:
    return Query(gold, (answer,), rules.tolerance, rules.relative, rules.ordered, rules.brackets == "strict")


def parse_query(gold: Reference) -> Query | None:
    """Return the query whether a reference can be evaluated at all; None if it can without one."""
    return Query(gold.value or gold.text, ()) if gold.kind == "formula" else None
