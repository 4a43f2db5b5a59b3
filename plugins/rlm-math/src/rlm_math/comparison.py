"""Comparison of an answer with the reference: decided from the text where possible, else a query to the workers."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Literal, NamedTuple

from rlm_math import units
from rlm_math.boxes import final_answers
from rlm_math.names import (
    MAX_ANSWER_LENGTH,
    NOTATIONS,
    WRAPPED,
    Kind,
    are_different,
    choice_letter,
    has_variables,
    is_in_order,
    rejection_reason,
    split_equation,
    split_name,
)
from rlm_math.notation import normalize_latex, strip_spaces, to_ascii
from rlm_math.units import PERCENT, numeral, parse_number

Units = Literal["compare", "ignore", "require"]
Percent = Literal["either", "hundredth"]
Brackets = Literal["strict", "any"]

LONGEST = 5
"""An answer with more characters than this many times its limit is not read, which bounds the time for notation."""
MAX_REFERENCE = 4000
"""Characters of a reference from which on only the same text is equal, so that reading it takes linear time."""
_MAX_SIDES = 4
_CIRCULAR = re.compile(r"\\pi(?![A-Za-z])|\\arc|\^\s*\{\s*-1\s*\}")
_DEGREE, _RADIANS = "degree", (None, "radian")
_INTERVAL = re.compile(r"([^:]*(?:\\[lg]eq|[<>])[^:]*):\s*[(\[\\].*", re.S)
"""Solutions as an inequality, and again as an interval."""
_DOMAIN = re.compile(
    r"[,;]?\s*\(?\s*(?:\\text\s*\{)?\s*(?:(?:for|where|with)(?![a-z]))?\s*\}?\s*(?:"
    r"(?:(?:all|any|every|some|an?) )?(?P<words>real|integer)(?: numbers?|s)?[\s}]*(?P<first>[a-z])"
    r"|(?P<last>[a-z])[\s}]*(?:\\text\s*\{)?\s*(?:is|being) an(?:y|other)? (?P<word>real|integer)(?: number)?\s*\}?"
    r"|(?P<name>(?<![\w\\])[a-z]|(?<=[,;(])\s*[a-z](?:\s*,\s*[a-z]){1,3})\s*\\in\s*\\math(?:bb|rm)\s*\{\s*(?P<set>[ZRN])\s*\}(?P<sign>\^\s*\{?\s*[*+-]\s*\}?)?"
    r")\s*\)?\.?\s*$"
)
"""The set of a parameter, at the end of an answer."""
_PARAMETER = re.compile(r"(?<![A-Za-z\\])[klmnrst](?![A-Za-z])")
_FAMILY = re.compile(r"\\\{\s*([a-z])\s*(?:\\mid|\||:)\s*(\1\s*=.+)\\\}", re.S)
_ROUNDED = re.compile(r"(?<=\S)\s*\\approx\s*(-?\s*(?:\\\$)?\s*(?:\d+(?:,\d{3})*(?:\.\d+)?|\.\d+))(\s*\\?%)?")
"""The decimal after the exact value of a reference."""
_TWICE = re.compile(r"(\\text\s*\{[^{}]*\}(?:\^\{?\d\}?)?)\s*(\\approx[^\\]*?)\s*\1$")
"""A unit on both sides of ≈, which counts once."""
_PROSE = re.compile(r"(?<![A-Za-z\\{])[A-Za-z]{3,} [a-z]{2,} [a-z]{2,}")
_COMMA = re.compile(r"-?\d+(?:,\d+ -?\d+\.|\.\d+ -?\d+,)\d+")
"""Two decimals, one of them with a comma."""
_INTRODUCTION = re.compile(
    r"^(?:\\text\s*\{)?\s*(?:the )?(?:final )?(?:solution|answer)s?"
    r"(?:(?: is| are)?\s*:|(?: is| are)?(?=\s*[\\\d]))\s*\}?\s*",
    re.I,
)
_NOUN = re.compile(r"^\\text\s*\{[^{}]+\}\s*(?=[(\[](?!.*\\text))", re.S)
"""What a point is, before its coordinates."""
_SIGN = re.compile(r"^\s*(?:=(?!=)|\\(?:approx|simeq|sim|implies|Rightarrow)(?![A-Za-z]))\s*")
_NAMED = re.compile(r"((?:^|[,;])\s*[A-Za-z](?:_\w|_\{\w+\})?\s*)\\(?:approx|simeq)(?![A-Za-z])")
_CHOICE = re.compile(
    r"\\(?:text|mathrm)\s*\{\s*\(?\s*([A-Ha-h])\s*[).:]\s*([^{}]*)\}\s*(.*)|\(([a-h])\)\s*(?=[-\\\d])(.+)", re.S
)
_BARE_CHOICE = re.compile(r"(?:\(\s*([A-H])\s*\)|([A-H])(?:[.:)]|(?=\s+[A-Z][a-z])))\s+(\S.*)", re.S)
_HEDGE = re.compile(r"(?<![A-Za-z])(?:(?i:or|and|nor|not|but|maybe)|[A-H])(?![A-Za-z])")
"""What offers another option, or takes one back."""
_SCIENTIFIC = re.compile(r"-?[\d,]*\.(\d+)\s*(?:\\times|\\cdot|\*)\s*10\s*\^\s*\{?\s*(-?\d{1,2})\s*\}?")
_MANY = re.compile(r"[,;]|\\\\|(?<![A-Za-z])(?:or|and)(?![A-Za-z])|\\(?:lor|land|vee|wedge)(?![A-Za-z])")

_OR = re.compile(r"\\text\s*\{\s*or\s*\}|(?<=\s)or(?=\s)")


@dataclass(frozen=True)
class Rules:
    """The knobs of the reward that define equality."""

    units: Units = "compare"
    percent: Percent = "either"
    brackets: Brackets = "strict"
    ordered: bool = True
    tolerance: float = 0.0
    relative: float = 0.0
    digits: int = 6
    finished: bool = False


class Query(NamedTuple):
    """A query to the workers: are all `answers` equal to `gold`, by the rules of `algebra.rounding`?"""

    gold: str
    answers: tuple[str, ...]
    rules: tuple[float | bool, ...] = ()


@dataclass(frozen=True)
class Reference:
    """A parsed reference answer.

    Args:
        text: In the one notation.
        kind: Decides how it is compared.
        name: The side without a value of ``x = 4``; empty: none.
        value: Text without name and unit.
        unit: Its unit, if any.
        exact: Its value if it is a number.
        choice: Letter of the option that the value belongs to: ``(B) 12``.
        domain: The set of its parameter, if it declares one: Z for ``n\\pi, n \\in \\mathbb{Z}``.
        rounded: The decimal beside the exact value: ``\\sqrt{5} \\approx 2.24``.
        written: The text with all decimals.
    """

    text: str
    kind: Kind
    name: str = ""
    value: str = ""
    unit: str | None = None
    exact: Fraction | None = None
    choice: str = ""
    domain: str = ""
    rounded: Fraction | None = None
    written: str = ""


@lru_cache(maxsize=4096)
def parse_reference(answer: str) -> Reference | None:
    """Parse a reference answer, with or without ``$`` or a box around it; None if it is empty.

    >>> references = [parse_reference(text) for text in ("50\\\\%", "(A)", "\\\\text{parallel}", "x = 2y")]
    >>> [(reference.kind, reference.value) for reference in references]
    [('number', '50'), ('letter', 'A'), ('words', 'parallel'), ('formula', '2y')]
    """
    if len(answer) > MAX_REFERENCE:
        text = "".join(answer.split())
        return Reference(text, "long", value=text)
    answers = final_answers(answer, "last") if "\\boxed" in answer else [answer]
    text, domain, _ = read(answers[0]) if answers else Written("")
    if not text:
        return None
    written, (text, rounded) = text, _without_decimals(text)
    letter, rest = split_choice(text, is_reference=True)
    value = parse_reference(rest) if letter else None
    if value is not None:
        return replace(value, choice=letter)
    for kind, notation in NOTATIONS.items():
        if value_text := notation(text):
            return Reference(text, kind, value=value_text)
    name, value_text = split_name(text)
    sides = split_equation(value_text)
    if len(sides) > 1 and not (
        has_variables(value_text) if not name else any(split_name(f"{s}=0").name for s in sides)
    ):
        value_text = sides[-1]  # i^5 = i^4 i = i
    without_unit, unit = units.split(value_text, is_reference=True)
    exact = parse_number(without_unit)
    kind_of_value: Kind = "formula" if exact is None else "number"
    return Reference(text, kind_of_value, name, without_unit, unit, exact, "", domain, rounded, written)


def _without_decimals(text: str) -> tuple[str, Fraction | None]:
    """Return a reference without the decimals that its exact values are close to, and the decimal if there is one."""
    decimals = [] if _PROSE.search(text) else _ROUNDED.findall(text)
    is_one = len(decimals) == 1 and not decimals[0][1]
    rounded = parse_number(decimals[0][0].replace("\\$", "")) if is_one else None
    return _ROUNDED.sub("", text) if decimals else text, rounded


class Written(NamedTuple):
    """A text in the one notation, and the set of its parameters; empty if it declares none."""

    text: str
    domain: str = ""
    parameters: str = ""


def read(text: str) -> Written:
    """Return a text in the one notation, without a leading sign of equality; empty if it cannot be read.

    >>> read(r"\\{x \\mid x = 2n, n \\in \\mathbb{Z}\\}"), read(r"= 4").text
    (Written(text='x = 2n', domain='Z', parameters='n'), '4')
    """
    ascii_text = to_ascii(text)
    plain = normalize_latex(ascii_text) if ascii_text else ""
    plain = family[2].strip() if (family := _FAMILY.fullmatch(plain)) and "\\in" in plain else plain
    domain = parameters = ""
    if not re.search(r"[<>]|\\[lg]eq", plain) and (match := _DOMAIN.search(plain, 1)):
        word = match["words"] or match["word"]
        domain = {"real": "R", "integer": "Z"}[word] if word else match["set"] + (match["sign"] or "").strip("^{ }")
        plain, parameters = plain[: match.start()].strip(), match["name"] or match["first"] or match["last"]
    plain = normalize_latex(plain[match.end() :]) if (match := _INTRODUCTION.match(plain)) else plain
    plain = _NAMED.sub(r"\1=", _SIGN.sub("", _NOUN.sub("", plain)))
    plain = interval[1] if (interval := _INTERVAL.fullmatch(plain)) else plain
    plain = _TWICE.sub(r"\2\1", plain)
    return Written(plain.strip(), domain, parameters)


def _with_parameter_of(gold: Reference, answer: Written) -> str:
    """Return an answer with the reference's name for its parameter; empty if both are of different sets.

    A reference that declares no set has integers, unless it has the parameter itself.
    """
    text, domain, declared = answer
    letters, others = ({*_PARAMETER.findall(each)} for each in (text, gold.text))
    if domain and gold.domain and domain != gold.domain:
        return ""
    if domain not in ("", "Z", "R") and not gold.domain and not {*_PARAMETER.findall(declared)} <= others:
        return ""
    if not (domain or gold.domain) or len(letters - others) != 1 or len(others - letters) != 1:
        return text
    (name,), (other,) = letters - others, others - letters
    return re.sub(rf"(?<![A-Za-z\\]){name}(?![A-Za-z])", other, text)


def split_choice(text: str, *, is_reference: bool = False) -> tuple[str, str]:
    """Return (letter, answer) of an option that is written with its answer, else ("", text).

    >>> split_choice(r"\\text{(B) } 12"), split_choice(r"\\text{(C)}"), split_choice("(D) Alina", is_reference=True)
    (('B', '12'), ('', '\\\\text{(C)}'), ('D', 'Alina'))
    """
    if match := _CHOICE.fullmatch(text):
        letter, inside, after = match[1] or match[4], match[2], match[3] or match[5]
        rest = f"{inside or ''} {after}".strip() if after else inside and f"\\text{{{inside}}}"
        letter = letter.upper()
    elif is_reference and (match := _BARE_CHOICE.fullmatch(text)):
        letter, rest = match[1] or match[2], match[3]
    else:
        return "", text
    return (letter, normalize_latex(rest)) if rest and not _HEDGE.search(rest) else ("", text)


def compare_answer(gold: Reference, answer: str, rules: Rules) -> bool | Query:
    """Return True (correct), False (wrong), or a query whose reply decides."""
    if gold.kind == "long":
        return "".join(answer.split()) == gold.value
    if len(answer) > LONGEST * max(MAX_ANSWER_LENGTH, len(gold.text)):
        return False
    text = _with_parameter_of(gold, read(answer))
    letter, rest = split_choice(text, is_reference=gold.kind == "letter" or bool(gold.choice))
    right_letter = gold.value if gold.kind == "letter" else gold.choice or letter
    if letter != (right_letter if letter else ""):
        return False
    text = (letter if gold.kind == "letter" else rest) if letter else text
    if gold.choice and (letter := choice_letter(text)):
        return letter == gold.choice
    if not text or strip_spaces(text) in (strip_spaces(gold.text), strip_spaces(gold.written)):
        return bool(text)
    if gold.kind in NOTATIONS:
        return _is_same_text(gold, text)
    return _compare_equations(gold, text, rules)


def _is_same_text(gold: Reference, text: str) -> bool:
    """Compare words, letters, times and numerals with a base as text; the base may be left out."""
    plain = " ".join(WRAPPED.sub(r" \1 ", text).split()).lower()
    if gold.kind == "words" and plain.removesuffix(".") == gold.value:
        return True
    if gold.kind == "clock":
        text = split_name(text).value
    return NOTATIONS[gold.kind](text) == gold.value or (gold.kind == "base" and plain == gold.value.partition("_")[0])


def _compare_equations(gold: Reference, text: str, rules: Rules) -> bool | Query:
    """Compare what may be an equation, a chain of them, or several answers with names."""
    name, value = split_name(text)
    if not is_in_order(name) and name != gold.name:
        return False
    is_other = bool(name and gold.name and are_different(name, gold.name))
    is_equation = "=" in text and "=" in gold.text and (is_other or not (name and gold.name))
    if is_equation or (not name and "=" in text and _MANY.search(text)) or "\\equiv" in gold.text:
        is_chain = is_equation and text.count("=") > gold.text.count("=") and not _MANY.search(text)
        is_function = is_other and "(" in name and "(" in gold.name
        is_wrong = is_chain or is_function or rejection_reason(text, gold.text)
        return False if is_wrong else _query(gold.text, text, rules)
    sides = split_equation(value)
    forms = sides if gold.exact is None else [form for side in sides for form in _OR.split(side)]  # \frac52 or 2.5
    return _compare_chain(gold, forms, rules)


def _compare_chain(gold: Reference, parts: list[str], rules: Rules) -> bool | Query:
    if len(parts) > _MAX_SIDES:
        return False
    # what restates the problem is wrong as the last side: 5! = 120 has a value
    verdicts = [_compare_value(gold, part, rules, is_last=part is parts[-1]) for part in parts]
    if any(verdict is False for verdict in verdicts):
        return False
    queries = [verdict for verdict in verdicts if isinstance(verdict, Query)]
    if not queries:
        return True
    return queries[0]._replace(answers=tuple(answer for query in queries for answer in query.answers))


def _compare_value(gold: Reference, text: str, rules: Rules, *, is_last: bool = True) -> bool | Query:
    value, unit = units.split(text, gold.unit)
    if not value or (is_last and rejection_reason(value, gold.value)):
        return False
    for one, (other, other_unit) in ((unit, (gold.value, gold.unit)), (gold.unit, (value, unit))):
        if one == _DEGREE and other_unit in _RADIANS and _CIRCULAR.search(other):
            degrees = re.sub("[^;]+", r"(\g<0>)^\\circ", value if one == unit else gold.value)
            pair = (gold.value, degrees) if one == unit else (degrees, value)
            return rules.units == "compare" and _query(*pair, rules)
    exact, factor = parse_number(value), Fraction(1)
    if None in (exact, gold.exact) and _COMMA.fullmatch(f"{value} {gold.value}"):
        return value.replace(",", ".") == gold.value.replace(",", ".") and _same_unit(gold.unit, unit, rules.units)
    if not _same_unit(gold.unit, unit, rules.units):
        factor = units.conversion(unit, gold.unit) or Fraction(0)
    if not factor:
        return False
    if exact is not None and exact == gold.rounded:
        return True
    if factor != 1 and (gold.exact is None or exact is None):
        return _query(gold.value, rf"{numeral(factor)}\cdot({value})", rules)
    if gold.exact is not None and exact is not None:
        if _same_number(gold, factor * exact, percent=unit == PERCENT, rules=rules):
            return True
        is_rounded = factor == 1 and ("." in gold.value) != ("." in value) and PERCENT not in (gold.unit, unit)
        return is_rounded and _query(_decimal(gold.value, gold.exact), _decimal(value, exact), rules)
    if (unit == PERCENT) != (gold.unit == PERCENT) or (rules.finished and gold.exact is not None):
        return False
    return strip_spaces(value) == strip_spaces(gold.value) or _query(gold.value, value, rules)


def _decimal(text: str, value: Fraction) -> str:
    """Return a decimal with all its places, also one times a power of ten; any other number as a fraction."""
    if scientific := _SCIENTIFIC.fullmatch(text):
        places = max(0, len(scientific[1]) - int(scientific[2]))
        digits = str(abs(value.numerator * 10**places // value.denominator)).zfill(places + 1)
        return f"{'-' if value < 0 else ''}{digits[: len(digits) - places]}.{digits[len(digits) - places :]}"
    return text if "." in text else numeral(value)


def _same_unit(gold: str | None, unit: str | None, policy: Units) -> bool:
    """Return True if the units agree under the policy. A percent sign is no unit, and agrees with none."""
    if PERCENT in (gold, unit) and {gold, unit} - {None, PERCENT}:
        return policy == "ignore"
    gold, unit = (None if name == PERCENT else name for name in (gold, unit))
    if policy == "ignore" or gold == unit:
        return True
    return unit is None and policy == "compare" if gold else True


def _same_number(gold: Reference, value: Fraction, *, percent: bool, rules: Rules) -> bool:
    """Compare numbers; a percent sign on one side only means a hundredth or the unit that the question asked for."""
    assert gold.exact is not None
    expected = gold.exact

    def is_equal(number: Fraction, other: Fraction) -> bool:
        # via decimal notation, so that 0.01 is exactly a hundredth and not the nearest float
        tolerance, relative = (Fraction(repr(each)) for each in (rules.tolerance, rules.relative))
        return abs(number - other) <= max(tolerance, relative * abs(other))

    if (gold.unit == PERCENT) == percent:
        return is_equal(value, expected)
    if gold.unit == PERCENT:
        return is_equal(value, expected / 100) or (rules.percent == "either" and is_equal(value, expected))
    # 50 % for 50, but never 0.5 % for a probability of 0.5
    is_number = rules.percent == "either" and abs(expected) > 1
    return is_equal(value / 100, expected) or (is_number and is_equal(value, expected))


def _query(gold: str, answer: str, rules: Rules) -> Query:
    knobs = (rules.tolerance, rules.relative, rules.digits, rules.ordered, rules.brackets == "strict")
    return Query(gold, (answer,), knobs)


def parse_query(gold: Reference) -> Query | None:
    """Return the query whether a reference can be evaluated at all; None if it can without one."""
    return Query(gold.value or gold.text, ()) if gold.kind == "formula" else None
