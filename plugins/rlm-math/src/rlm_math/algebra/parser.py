"""Parser of expressions: recursive descent over the tokens of a LaTeX text. An ambiguous text is unreadable."""

from __future__ import annotations

from collections.abc import Sequence

from rlm_math.algebra.nodes import DEGREE, INDEX, INFINITY, Node, Token, UnreadableError, number, substitute
from rlm_math.units import parse_number

_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau upsilon phi chi "
    "psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega ell"
)
_SYMBOLS = {f"\\{name}": name for name in _GREEK.split()} | {"\\pi": "pi", "\\infty": "infinity"}
_BRACKETS = {"(": ")", "[": "]", "{": "}", "\\lfloor": "\\rfloor", "\\lceil": "\\rceil"}
_SERIES = {"\\sum": "sum", "\\prod": "product"}
_PREFIXES = {"\\frac", "\\sqrt", "\\binom", *_SERIES, *_BRACKETS, *_SYMBOLS}
_TRIGONOMETRIC = {"sin", "cos", "tan", "sinh", "cosh", "tanh"}
_MANY = {"gcd", "lcm", "max", "min"}
_OPERATORS = {"f", "g", "h"}
"""Letters that are functions where a bracket follows."""
_END = Token("end", "")
TERMS = 24
"""Terms of an infinite series that are compared."""


def parse_expression(tokens: Sequence[Token]) -> Node:
    """Parse a whole expression."""
    parser = _Parser(tokens)
    node = parser.sum()
    if parser.peek is not _END:
        raise UnreadableError(parser.peek.text)
    return node


class _Parser:
    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens, self._at, self._bars = tokens, 0, 0

    @property
    def peek(self) -> Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else _END

    def _next_is(self, *texts: str) -> bool:
        return self.peek.kind == "mark" and self.peek.text in texts

    def _take(self, *expected: str) -> Token:
        token = self.peek
        if token is _END or (expected and token.text not in expected):
            raise UnreadableError(f"expected {' '.join(expected)}, got {token.text}")
        self._at += 1
        return token

    def sum(self) -> Node:
        terms = [self._term()]
        while self._next_is("+", "-"):
            is_minus = self._take().text == "-"
            term = self._term()
            terms.append(Node("-", (term,)) if is_minus else term)
        return terms[0] if len(terms) == 1 else Node("+", tuple(terms))

    def _term(self) -> Node:
        if self._next_is("+", "-"):
            is_minus = self._take().text == "-"
            product = self._product()
            return Node("-", (product,)) if is_minus else product
        return self._product()

    def _product(self) -> Node:
        node = self._factor()
        while True:
            if self._next_is("*"):
                self._take()
                node = Node("*", (node, self._signed_factor()))
            elif self._next_is("/"):
                self._take()
                node = Node("/", (node, self._signed_factor()))
            elif self._starts_factor():
                self._refuse_digits()
                node = Node("*", (node, self._factor()))
            elif self._next_is("\\bmod", "\\crossproduct"):
                operation = "mod" if self._take().text == "\\bmod" else "cross"
                node = Node(operation, (node, self._factor()))
            else:
                return node

    def _signed_factor(self) -> Node:
        if self._next_is("-"):
            self._take()
            return Node("-", (self._factor(),))
        return self._factor()

    def _starts_factor(self) -> bool:
        token = self.peek
        if token.kind in ("number", "letter", "function", "word"):
            return True
        return token.kind == "mark" and (token.text in _PREFIXES or (token.text == "|" and not self._bars))

    def _refuse_digits(self) -> None:
        """Refuse a number as the right side of an implicit product: 2^{1}0 and "4 5" are none."""
        if (
            self._next_is("{")
            and self._tokens[self._at + 1 : self._at + 2]
            and self._tokens[self._at + 1].kind == "number"
        ):
            raise UnreadableError("a number in braces after a factor")
        if self.peek.kind != "number" or self._tokens[self._at - 1].text == "!":
            return
        before, after = self._tokens[self._at - 1], self._tokens[self._at + 1 : self._at + 2]
        is_power = bool(after) and after[0].text == "^" and self.peek.text[0] != "0" and self._has_power(before)
        if not is_power:
            raise UnreadableError(f"{before.text} {self.peek.text}")

    def _has_power(self, before: Token) -> bool:
        """Return True for what a power may follow: a letter or a bracket, or the exponent in ``2^6 3^5``."""
        is_exponent = self._at > 1 and self._tokens[self._at - 2].text == "^"
        return before.kind != "number" or is_exponent

    def _factor(self) -> Node:
        return self._powers(self._postfix(self._atom()))

    def _postfix(self, node: Node) -> Node:
        if self._next_is("!"):
            self._take()
            return Node("factorial", (node,))
        return node

    def _powers(self, node: Node) -> Node:
        if not self._next_is("^"):
            return node
        self._take()
        if self._next_is("\\circ") or [t.text for t in self._tokens[self._at : self._at + 3]] == ["{", "\\circ", "}"]:
            self._at += 1 if self._next_is("\\circ") else 3
            return Node("*", (node, DEGREE))
        node = Node("^", (node, self._exponent()))
        return self._postfix(node)

    def _exponent(self) -> Node:
        if self._next_is("+", "-"):
            is_minus = self._take().text == "-"
            node = self._argument()
            return Node("-", (node,)) if is_minus else node
        return self._argument()

    def _argument(self) -> Node:
        """Parse a braced group or a single token, as the argument of a command: no mixed number."""
        return read_number(self._take().text) if self.peek.kind == "number" else self._atom()

    def _group(self, opening: str) -> Node:
        self._take(opening)
        bars, self._bars = self._bars, 0
        node = self.sum()
        self._take(_BRACKETS[opening])
        self._bars = bars
        return node

    def _atom(self) -> Node:
        token = self.peek
        if token.kind == "number":
            return self._number()
        if token.kind in ("letter", "word") or (token.kind == "mark" and token.text in _SYMBOLS):
            return self._symbol()
        if token.kind == "function":
            return self._function()
        if token.kind == "mark" and token.text in _BRACKETS:
            node = self._group(token.text)
            return (
                Node({"\\lfloor": "floor", "\\lceil": "ceil"}[token.text], (node,)) if token.text[0] == "\\" else node
            )
        if self._next_is("|"):
            return self._absolute_value()
        if self._next_is(*_SERIES):
            return self._series()
        if self._next_is("\\ldots"):  # the terms that a power series goes on with
            self._take()
            return Node("symbol", value="…")
        self._take("\\frac", "\\binom", "\\sqrt")
        if token.text == "\\sqrt":
            return self._root()
        return Node("/" if token.text == "\\frac" else "binomial", (self._argument(), self._argument()))

    def _absolute_value(self) -> Node:
        self._take("|")
        self._bars += 1
        node = self.sum()
        self._take("|")
        self._bars -= 1
        return Node("abs", (node,))

    def _series(self) -> Node:
        op = _SERIES[self._take().text]
        self._take("_")
        self._take("{")
        index = self._take()
        self._take("=")
        low = self.sum()
        self._take("}")
        self._take("^")
        high = self._argument()
        if high == INFINITY:  # two series with the same first terms are the same
            high = Node("+", (low, number(TERMS)))
        bound = Node("symbol", value=f"{INDEX}{index.text}")
        return Node(op, (substitute(self._product(), {index.text: bound}), low, high), bound.value)

    def _root(self) -> Node:
        index = self._group("[") if self._next_is("[") else number(2)
        return Node("root", (self._argument(), index))

    def _number(self) -> Node:
        node = read_number(self._take().text)
        follows = [token.text for token in self._tokens[self._at : self._at + 7]]
        if node.value.denominator != 1 or node.places:
            return node
        fraction = ["\\frac", "{", "0", "}", "{", "0", "}"]
        is_fraction = [("0" if text.isdecimal() else text) for text in follows] == fraction
        is_slashed = len(follows) > 2 and follows[0].isdecimal() and follows[1] == "/" and follows[2].isdecimal()
        if not (is_fraction or is_slashed):
            return node
        above, below = (int(follows[i]) for i in ((2, 5) if is_fraction else (0, 2)))
        if not 0 < above < below:  # 2\frac{3}{2} is a product or a sum
            raise UnreadableError("a mixed number with an improper fraction")
        self._at += 7 if is_fraction else 3
        return Node("number", value=node.value + number(above, below).value)

    def _symbol(self) -> Node:
        token = self._take()
        name = _SYMBOLS.get(token.text, token.text)
        if self._next_is("_"):
            self._take()
            name = f"{name}_{self._subscript()}"
        while self._next_is("'", "\\prime"):
            self._take()
            name += "'"
        if name.rstrip("'") in _OPERATORS and self._next_is("("):
            return Node("apply", (self._group("("),), name)
        return Node("symbol", value=name)

    def _subscript(self) -> str:
        if not self._next_is("{"):
            return self._take().text
        self._take("{")
        parts = []
        while not self._next_is("}"):
            parts.append(self._take().text)
        self._take("}")
        return "".join(parts)

    def _function(self) -> Node:
        name = self._take().text
        power: Node | None = None
        base: Node | None = None
        for _ in range(2):
            if self._next_is("^") and power is None:
                self._take()
                power = self._exponent()
            elif name == "log" and self._next_is("_") and base is None:
                self._take()
                base = self._argument()
        if name in _MANY:
            return Node(name, self._arguments())
        argument = self._function_argument()
        if power is not None and name in _TRIGONOMETRIC and _is_minus_one(power):
            return Node(f"arc{name}" if len(name) == 3 else f"ar{name}", (argument,))
        if name == "log":
            scale = Node("symbol", value="1/ln b")  # the base of a bare \\log is unknown, but the same on both sides
            node = Node("log", (argument, base)) if base else Node("*", (Node("ln", (argument,)), scale))
        elif name == "cis":
            node = Node("^", (Node("symbol", value="e"), Node("*", (Node("symbol", value="i"), argument))))
        else:
            node = Node(name, (argument,))
        if power is None:
            return self._powers(node)
        return Node("^", (node, power))

    def _arguments(self) -> tuple[Node, ...]:
        self._take("(")
        arguments = [self.sum()]
        while self._next_is(","):
            self._take()
            arguments.append(self.sum())
        self._take(")")
        return tuple(arguments)

    def _function_argument(self) -> Node:
        """Parse the argument of a function: a bracket, or factors up to the next bracket, sign or function."""
        if self._next_is("(", "[", "{"):
            return self._group(self.peek.text)
        is_enclosed = self._next_is("|")
        node = self._factor()
        if is_enclosed:
            return node
        while self._starts_factor() and self.peek.kind != "function" and not self._next_is("(", "["):
            self._refuse_digits()
            node = Node("*", (node, self._factor()))
        if self._next_is("/"):  # ln 4/2 is (ln 4)/2 or ln 2
            raise UnreadableError("a quotient after a function without brackets")
        return node


def _is_minus_one(node: Node) -> bool:
    return node.op == "-" and node.args[0].op == "number" and node.args[0].value == 1


def read_number(text: str) -> Node:
    """Return the value of a numeral: digits, a decimal, or a repeating decimal.

    >>> [str(read_number(text).value) for text in ("1,234", "2.50", r"0.1\\overline{6}")]
    ['1234', '5/2', '1/6']
    """
    value = parse_number(text)
    if value is None:
        raise UnreadableError("a number that is too long")
    places = 0 if "\\" in text else len(text.partition(".")[2])
    return number(value.numerator, value.denominator, places)
