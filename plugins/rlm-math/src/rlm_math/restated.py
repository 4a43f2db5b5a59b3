"""An answer that restates the problem is wrong whatever its value: it has operations that the reference has not."""

from __future__ import annotations

import re

MAX_ANSWER_LENGTH = 1000
"""Largest length of an answer in characters, unless the reference has more than a quarter of it."""
_COMMAND = re.compile(
    r"\\\\|\\(?:operatorname\s*\*?\s*\{\s*(\w*)\s*\}|([A-Za-z]+))"
    r"|(?<![A-Za-z])(gcd|lcm|max|min|floor|ceil)(?=\s*\}?\s*(?:\(|\\\{))"
)
"""A command, a function without a backslash, or a line break, which has no name."""
_FUNCTION = re.compile(r"(a|arc|ar)?(sin|cos|tan|cot|sec|csc)h?|ln|lg|log|exp|cis")
_KNOWN_WORDS = (
    "frac sqrt pi cdot times div pm mp circ infty leq geq lt gt neq cup cap setminus backslash emptyset in mid langle "
    "rangle overline mathbb mathrm mathbf mathit mathcal begin end alpha beta gamma delta epsilon varepsilon zeta eta "
    "theta vartheta iota kappa lambda mu nu xi rho sigma tau phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi "
    "Sigma Phi Psi Omega ell vec prime text ldots dots cdots vert lvert rvert lor land vee wedge or and equiv i imath "
    "jmath hat top intercal approx"
)
_KNOWN = {*_KNOWN_WORDS.split()}
"""Commands allowed in any answer; others only if the reference contains them. Omitted on purpose: commands that
restate a problem (\\sum, \\int, \\lim, \\binom, \\gcd, \\bmod), or hide text (\\phantom)."""
_ROUNDED = {"lfloor", "rfloor", "lceil", "rceil", "floor", "ceil"}
"""Commands of which one allows the others."""
_COUNTS = re.compile(r"!|\\binom(?![A-Za-z])|(?<![\\A-Za-z])[kmnr](?![A-Za-z])")
"""Binomials, factorials, and variables that are integers by their names."""


def rejection_reason(answer: str, gold: str) -> str:
    """Return why `answer` is wrong whatever its value; empty if it must be evaluated. Expects normalized texts.

    >>> rejection_reason(r"\\int_0^1 x dx", r"\\frac{1}{2}"), rejection_reason("3!", "6"), rejection_reason("3!", "n!")
    ('\\\\int', '!', '')
    """
    if len(answer) > max(MAX_ANSWER_LENGTH, 4 * len(gold)):
        return "too long"
    allowed, may_count = {*_commands(gold)}, _COUNTS.search(re.sub(r"\\text\s*\{[^{}]*\}", "", gold))
    if may_count:
        allowed.add("binom")
    if allowed & _ROUNDED:
        allowed |= _ROUNDED
    unknown = [name for name in _commands(answer) if name not in allowed and not _is_known(name)]
    return f"\\{unknown[0]}" if unknown else "!" if "!" in answer and not may_count else ""


def _commands(text: str) -> list[str]:
    return ["".join(groups) for groups in _COMMAND.findall(text) if any(groups)]


def _is_known(name: str) -> bool:
    return name in _KNOWN or _FUNCTION.fullmatch(name) is not None
