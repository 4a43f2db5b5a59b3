"""Rejection of answers without evaluation: those that restate the problem, and those that are too long."""

from __future__ import annotations

import re

from rlm_math.combinatorics import has_counts

MAX_ANSWER_LENGTH = 1000
"""Largest length of an answer in characters, unless the reference has more than a quarter of it."""

_COMMAND = re.compile(
    r"\\\\|\\(?:operatorname\s*\*?\s*\{\s*(\w*)\s*\}|([A-Za-z]+))"
    r"|(?<![A-Za-z])(gcd|lcm|max|min|floor|ceil)(?=\s*\}?\s*(?:\(|\\\{))"
)
"""A command, a function without a backslash, or a line break, which has no name."""
_FUNCTION = re.compile(r"(a|arc|ar)?(sin|cos|tan|cot|sec|csc)h?|ln|lg|log|exp|cis")
_KNOWN_WORDS = (
    "frac sqrt pi cdot times div pm mp circ infty leq geq lt gt neq ne cup cap setminus backslash emptyset in mid "
    "langle rangle overline mathbb mathrm mathbf mathit mathcal begin end alpha beta gamma delta epsilon varepsilon "
    "zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau phi varphi chi psi omega Gamma Delta Theta "
    "Lambda Xi Pi Sigma Phi Psi Omega ell vec prime text ldots dots cdots vert lvert rvert lor land vee wedge or and "
    "leqslant geqslant equiv i imath jmath hat top intercal approx"
)
_KNOWN = set(_KNOWN_WORDS.split())
"""Commands allowed in any answer; others only if the reference contains them. Omitted on purpose: commands that
restate a problem (\\sum, \\int, \\lim, \\binom, \\gcd, \\bmod), or hide text (\\phantom)."""

_ROUNDED = {"lfloor", "rfloor", "lceil", "rceil", "floor", "ceil"}
"""Commands of which one allows the others."""


def rejection_reason(answer: str, gold: str) -> str:
    """Return why `answer` is wrong whatever its value; empty if it must be evaluated. Expects normalized texts."""
    if len(answer) > max(MAX_ANSWER_LENGTH, 4 * len(gold)):
        return "too long"
    allowed, may_count = {*_commands(gold)}, has_counts(gold)
    if may_count:
        allowed.add("binom")
    if allowed & _ROUNDED:
        allowed |= _ROUNDED
    unknown = [name for name in _commands(answer) if name not in allowed and not _is_known(name)]
    if unknown:
        return f"\\{unknown[0]}"
    return "!" if "!" in answer and not may_count else ""


def _commands(text: str) -> list[str]:
    return ["".join(groups) for groups in _COMMAND.findall(text) if any(groups)]


def _is_known(name: str) -> bool:
    return name in _KNOWN or _FUNCTION.fullmatch(name) is not None
