"""Tokens of a normalized LaTeX text, and expressions as trees."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import flint


class UnreadableError(Exception):
    """A text that is no mathematics, or has more than one reading."""


class UndefinedError(Exception):
    """An expression without a value: 1/0 or 0^0."""


class UndecidedError(UndefinedError):
    """An expression with a value that cannot be computed within the limits."""


@dataclass(frozen=True, slots=True)
class Node:
    """An operation and its arguments.

    Args:
        op: ``number``, ``symbol``, ``+``, ``*``, ``/``, ``^``, ``-`` (a sign), ``root``, ``sum``, or a function.
        args: Its arguments.
        value: An exact rational number, or the name of a symbol.
        places: Decimal places of a number written as a decimal.
    """

    op: str
    args: tuple[Node, ...] = ()
    value: Any = None
    places: int = 0


CONSTANTS = {"pi", "e", "i"}
"""Symbols with a value."""
INDEX = "index "
"""Prefix of the name of an index of summation."""
INFINITY = Node("symbol", value="infinity")
MINUS_INFINITY = Node("-", (INFINITY,))


def number(numerator: int, denominator: int = 1, places: int = 0) -> Node:
    """Return a rational number."""
    return Node("number", value=flint.fmpq(numerator, denominator), places=places)


DEGREE = Node("/", (Node("symbol", value="pi"), number(180)))


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and everything below it."""
    stack = [node]
    while stack:
        each = stack.pop()
        yield each
        stack += each.args


def variables(node: Node) -> set[str]:
    """Return the names of the symbols without a value."""
    names = {each.value for each in walk(node) if each.op == "symbol" and each.value not in CONSTANTS}
    return {name for name in names if not name.startswith(INDEX)}


def is_decimal(node: Node) -> bool:
    """Return True if a decimal occurs in an expression."""
    return any(each.places for each in walk(node))


def substitute(node: Node, values: Mapping[str, Node]) -> Node:
    """Replace symbols by expressions."""
    if node.op == "symbol":
        return values.get(node.value, node)
    if not node.args:
        return node
    return Node(node.op, tuple(substitute(each, values) for each in node.args), node.value, node.places)


_LISTED = (
    "sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh coth ln log lg exp cis arsinh "
    "arcosh artanh"
)
_MANY = {"gcd", "lcm", "max", "min", "floor", "ceil"}
FUNCTIONS = {*_LISTED.split(), *_MANY}
"""Names of functions; `\\operatorname{name}` and the bare name are read as `\\name`."""
_ALIASES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "pi": "pi", "sqrt": "sqrt", "infty": "infty"}
_NAMES = {**{name: name for name in FUNCTIONS}, **_ALIASES, "inf": "infty", "infinity": "infty"}

_FUNCTIONS_IN_TEXT = FUNCTIONS - _MANY - {"sec"}
_NUMERAL = re.compile(r"-?\d+(?:\.\d+)?")
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<repeating>\d*\.\d*\\overline\s*\{\s*\d+\s*\})
  | (?P<number>(?<!\d)[1-9]\d{0,2}(?:,\d{3}(?!\d))+(?:\.\d+)?|\d*\.\d+|\d+\.?(?!\d))
  | (?P<matrix>\\(?:begin|end)\s*\{\s*[A-Za-z]+\*?\s*\})
  | (?P<wrapped>\\(?P<wrapper>operatorname\*?|mathrm|text|mathbb|mathbf|mathcal|mathit|overline|vec|hat|bar)
      \s*(?:\{(?P<inside>[^{}]*)\}|(?P<bare>[A-Za-z])))
  | (?P<command>\\(?:[A-Za-z]+|.))
  | (?P<letters>[A-Za-z]+)
  | (?P<mark><=|>=|!=|.)
    )""",
    re.X | re.S,
)
_MARKS = {"<=": "\\leq", ">=": "\\geq", "!=": "\\neq", "<": "\\lt", ">": "\\gt"}
_DOTLESS = {"\\imath", "\\jmath"}
_COMMANDS = {
    "\\ne": "\\neq", "\\dots": "\\ldots", "\\cdots": "\\ldots", "\\backslash": "\\setminus", "\\lvert": "|",
    "\\rvert": "|", "\\vert": "|", "\\times": "*", "\\cdot": "*", "\\div": "/", "\\lor": "or", "\\vee": "or",
    "\\land": "and", "\\wedge": "and", "\\to": "\\to", "\\colon": ":", "\\R": "\\mathbb{R}", "\\mp": "\\mp",
    "\\lbrace": "\\{", "\\rbrace": "\\}", "\\ast": "*", "\\imath": "i", "\\jmath": "j", "\\varepsilon": "\\epsilon",
    "\\varphi": "\\phi",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Token:
    """A token: its kind (``number``, ``letter``, ``function``, ``word`` or ``mark``) and its text."""

    kind: str
    text: str


def tokenize(text: str) -> list[Token]:
    """Split a text into tokens.

    >>> [token.text for token in tokenize("2.5xy + sin(3)")]
    ['2.5', 'x', 'y', '+', 'sin', '(', '3', ')']
    """
    tokens: list[Token] = []
    at, depth, text = 0, 0, text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise UnreadableError(text[at : at + 10])
        at = match.end()
        if depth and (number := match["number"]) and "," in number:  # (1,234) is a pair
            at = match.start("number") + number.index(",")
            tokens.append(Token("number", number.partition(",")[0]))
            continue
        made = _tokens(match)
        tokens += made
        for token in made:
            depth += (token.text in OPENING) - (token.text in CLOSING)
    return tokens


OPENING = {"(", "[", "{", "\\{", "\\langle", "\\lfloor", "\\lceil", "\\begin"}
CLOSING = {")", "]", "}", "\\}", "\\rangle", "\\rfloor", "\\rceil", "\\end"}


def _tokens(match: re.Match[str]) -> list[Token]:
    kind, text = match.lastgroup, match[0].strip()
    if match["repeating"] or match["number"]:
        return [Token("number", text)]
    if match["matrix"]:
        command, _, name = text.partition("{")
        tokens = [Token("mark", command.strip()), Token("word", name.strip("{} "))]
        return tokens if command.startswith("\\begin") else tokens[::-1]
    if match["wrapped"]:
        return _wrapped(match["wrapper"], (match["inside"] or match["bare"] or "").strip())
    if match["command"]:
        name = text[1:]
        if name in _NAMES and name not in ("sqrt", "pi", "infty"):
            return [Token("function", _NAMES[name])]
        return [Token("letter" if text in _DOTLESS else "mark", _COMMANDS.get(text, text))]
    if match["letters"]:
        return _letters(text)
    assert kind is not None
    return [Token("mark", _MARKS.get(text, text))]


def _letters(text: str) -> list[Token]:
    if text in FUNCTIONS or text in ("asin", "acos", "atan"):
        return [Token("function", _NAMES[text])]
    if text in _NAMES:
        return [Token("mark", f"\\{_NAMES[text]}")]
    return [Token("mark", text)] if text in ("or", "and") else [Token("letter", letter) for letter in text]


def _wrapped(wrapper: str, inside: str) -> list[Token]:
    wrapper = wrapper.rstrip("*")
    if wrapper == "mathbb":
        return [Token("mark", f"\\mathbb{{{inside}}}")]
    if wrapper in ("text", "mathrm", "operatorname") and inside in ("or", "and"):
        return [Token("mark", inside)]
    if wrapper == "text" and inside in ("if", "for", "when", "otherwise", "else"):
        return [Token("word", "otherwise") if inside in ("otherwise", "else") else Token("mark", "if")]
    if _NUMERAL.fullmatch(inside) and wrapper in ("text", "mathrm", "mathbf", "mathit"):
        return tokenize(inside)
    if inside == "cis" or (inside in _NAMES and (wrapper != "text" or inside in _FUNCTIONS_IN_TEXT)):
        return _letters(inside)
    if wrapper in ("mathrm", "mathbf", "mathit", "operatorname") and len(inside) == 1 and inside.isalpha():
        return [Token("letter", inside)]
    if wrapper in ("mathrm", "text", "operatorname") and inside.isalpha():
        return [Token("word", inside)]
    if wrapper in ("vec", "hat", "bar", "overline", "mathcal") and inside.isalpha():
        return [Token("word", f"{wrapper}:{inside}")]
    if wrapper == "text" and re.fullmatch(r"[A-Za-z\s.,:;'()-]*", inside):
        return [Token("text", " ".join(re.findall("[a-z]+", inside.lower())))]
    raise UnreadableError(inside or wrapper)
