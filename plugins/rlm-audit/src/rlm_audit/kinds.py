r"""Cases, and kinds of answers as tables of templates: a value in several notations, small changes, other answers.

A template is LaTeX or plain text with Python expressions in angle brackets, without spaces: ``\frac{<n>}{<2*d>}``.
``<+n>`` writes a number with its sign, and a `Fraction` is written in LaTeX. A template may end in `` ? condition``.
Expressions may use the drawn names, the size ``s``, the functions of the module `math`, and the names of `HELPERS`.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from types import CodeType
from typing import Any

Values = dict[str, Any]
Spelling = Callable[[str, random.Random], str]
_EXPRESSION = re.compile(r"<(?!/?think>)(\+?)([^<>\s]+)>")
MAX_SIZE = 6
"""Largest size that a generator is called with."""


@dataclass(frozen=True)
class Case:
    """One answer to one example, right or wrong by construction.

    Args:
        columns: Columns of the example that rewards may name, without ``prompt``.
        answer: Text of the answer, without the form around it.
        is_right: Whether a reward must pay it.
        prompt: Prompt of the example.
        is_whole: Whether `answer` is the whole completion, so that no form is put around it.
    """

    columns: Mapping[str, Any]
    answer: str
    is_right: bool
    prompt: str = "Give the answer."
    is_whole: bool = False


Generator = Callable[[random.Random, int], Case | None]
"""Function of a random state and a size from 1 to MAX_SIZE. It returns None if this draw has no such case."""

Scorer = Callable[[Sequence[Case], Sequence[str]], list[float | None]]
"""Function of cases and completions that returns a score, or None, per case."""


@dataclass(frozen=True)
class Family:
    """Generators of one subject, by the name of their class of cases.

    Args:
        generators: Class → generator. A generator returns right cases only, or wrong cases only.
        form: Text of a completion with ``{answer}``.
    """

    generators: Mapping[str, Generator]
    form: str

    def completion(self, case: Case, form: str = "") -> str:
        """Return the completion of a case, in `form` or the family's own."""
        return case.answer if case.is_whole else (form or self.form).replace("{answer}", case.answer)


def latex(value: object) -> str:
    r"""Return a value as text; a fraction in LaTeX.

    >>> latex(Fraction(-3, 4)), latex(Fraction(4)), latex(7)
    ('-\\frac{3}{4}', '4', '7')
    """
    if not isinstance(value, Fraction) or value.denominator == 1:
        return str(value)
    return f"{'-' if value < 0 else ''}\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def plain(value: Fraction) -> str:
    """Return a terminating decimal in plain notation.

    >>> plain(Fraction(-5, 4)), plain(Fraction(100)), plain(Fraction(-1, 20))
    ('-1.25', '100', '-0.05')
    """
    places = 0
    while value.denominator != 1 and (value * 10**places).denominator != 1:
        places += 1
    digits = str(abs(int(value * 10**places))).rjust(places + 1, "0")
    text = f"{digits[:-places]}.{digits[-places:]}" if places else digits
    return f"-{text}" if value < 0 else text


def altered(text: str, rng: random.Random) -> str:
    """Return a numeral with one digit changed, dropped or repeated, or with two digits exchanged."""
    at = rng.choice([index for index, character in enumerate(text) if character.isdigit()])
    head, digit, tail = text[:at], text[at], text[at + 1 :]
    changed = [rng.choice("0123456789") + tail, tail or "0", digit * 2 + tail, tail[:1] + digit + tail[1:]]
    return (head + rng.choice(changed)).rstrip(".")


HELPERS: Mapping[str, Any] = {
    **{name: function for name, function in vars(math).items() if not name.startswith("_")},
    "Fraction": Fraction,
    "plain": plain,
    "sgn": lambda number: "-" if number < 0 else "+",
    "terminates": lambda value: 10 ** value.denominator.bit_length() % value.denominator == 0,
}
"""Names of expressions. Those of the random state are ``r`` (randint), ``one`` (choice) and ``altered``."""


@cache
def _compiled(expression: str) -> CodeType:
    return compile(expression, f"<{expression}>", "eval")


def evaluate(expression: str, values: Mapping[str, Any], rng: random.Random) -> Any:
    """Return the value of an expression of a table."""
    drawn = {"r": rng.randint, "one": rng.choice, "altered": lambda text: altered(text, rng)}
    return eval(_compiled(expression), {**HELPERS, **drawn, **values})  # tables are code of their package


def fill(template: str, values: Mapping[str, Any], rng: random.Random) -> str | None:
    r"""Return a template with the values of its expressions; None if its condition is false.

    >>> fill(r"\frac{<n>}{3}<+n+1> ? n", {"n": 4}, random.Random(0))
    '\\frac{4}{3}+5'
    """
    text, _, condition = template.partition(" ? ")
    if condition and not evaluate(condition, values, rng):
        return None

    def written(match: re.Match[str]) -> str:
        value = evaluate(match[2], values, rng)
        return ("+" if match[1] and value >= 0 else "") + latex(value)

    return _EXPRESSION.sub(written, text)


def _text(template: str) -> str:
    return template.partition(" ? ")[0]


@dataclass(frozen=True)
class Kind:
    """A kind of answer: a table from which right and wrong answers are drawn.

    Args:
        draw: Name → expression of a random value, in order; ``s`` is the size.
        same: Templates of one value, the reference first.
        changes: Assignments that make another value: ``a=a+1``, ``a,b=b,a``. It is written like the value itself.
        other: Templates of answers that are wrong for the value.
        let: Name → expression of further names, which follow from the drawn ones.
        where: Condition of the values.
        spell: Changes the spelling of an answer, not its value.
    """

    draw: Mapping[str, str]
    same: Sequence[str]
    changes: Sequence[str] = ()
    other: Sequence[str] = ()
    let: Mapping[str, str] = field(default_factory=dict)
    where: str = "True"
    spell: Spelling | None = None

    def generators(self, name: str) -> dict[str, Generator]:
        """Return the generators of all classes of this kind by name: one for each template and each change."""
        return {
            **{f"{name}: {_text(template)}": self._generator(True, template) for template in self.same},
            **{f"{name}, with {change}": self._generator(False, "", change) for change in self.changes},
            **{f"{name}, not: {_text(template)}": self._generator(False, template) for template in self.other},
        }

    def _generator(self, is_right: bool, template: str, change: str = "") -> Generator:
        def generate(rng: random.Random, size: int) -> Case | None:
            drawn: Values = {"s": size}
            for name, expression in self.draw.items():
                drawn[name] = evaluate(expression, drawn, rng)
            values, answer_values = self._complete(drawn, rng), self._complete(drawn, rng)
            if change:
                changed = self._changed(drawn, change, rng)
                answer_values = None if changed == drawn else self._complete(changed, rng)
            if values is None or answer_values is None:
                return None
            gold = fill(self.same[0], values, rng)
            text = fill(template or rng.choice(self.same), answer_values, rng)
            if gold is None or text is None or (not is_right and text == gold):
                return None
            return Case({"answer": gold}, self.spell(text, rng) if self.spell else text, is_right)

        return generate

    def _complete(self, drawn: Values, rng: random.Random) -> Values | None:
        values = {**drawn}
        if not evaluate(self.where, values, rng):
            return None
        for name, expression in self.let.items():
            values[name] = evaluate(expression, values, rng)
        return values

    def _changed(self, drawn: Values, change: str, rng: random.Random) -> Values:
        names, _, expressions = change.partition("=")
        changed = evaluate(f"({expressions},)", drawn, rng)
        return {**drawn, **dict(zip(names.split(","), changed, strict=True))}


_KEYS = ("draw", "let", "where", "same", "change", "other")


def read_kinds(table: str) -> dict[str, Kind]:
    r"""Return the kinds of a table by name.

    A kind is its name on a line, then lines of two spaces, a key, and items with two spaces or more between them. The
    keys are the arguments of `Kind` (``change`` for its changes); items may go on in lines with more spaces.

    >>> read_kinds("sum\n  draw n=r(1,9)\n  same <n>  <n-1>+1\n  change n=n+1")["sum"].same
    ['<n>', '<n-1>+1']
    """
    tables: dict[str, dict[str, list[str]]] = {}
    key = ""
    for line in filter(None, table.splitlines()):
        if not line.startswith(" "):
            items = tables[line] = {name: [] for name in _KEYS}
            continue
        first, _, rest = line[2:].partition(" ")
        key = first or key
        items[key] += re.split("  +", rest.strip())
    return {name: _kind(items) for name, items in tables.items()}


def _kind(items: Mapping[str, list[str]]) -> Kind:
    draw, let = (dict(item.split("=", 1) for item in items[key]) for key in ("draw", "let"))
    where = " ".join(items["where"]) or "True"
    return Kind(draw, items["same"], items["change"], items["other"], let, where)


def generators(kinds: Mapping[str, Kind]) -> dict[str, Generator]:
    """Return the generators of several kinds by the name of their class."""
    return {key: make for name, kind in kinds.items() for key, make in kind.generators(name).items()}
