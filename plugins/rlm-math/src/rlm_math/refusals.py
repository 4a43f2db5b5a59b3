"""What is refused by its looks, before anybody works it out: hedges, work left undone, bombs."""

from __future__ import annotations

import re

ANSWER = 400
"""Characters an answer may have, or four times as many as the data set's."""
DEPTH = 60
EXPONENT = 2000

_COMMAND = re.compile(r"\\(operatorname\s*\*?\s*\{\s*\w*\s*\}|[A-Za-z]+)")
_FUNCTION = re.compile(r"(arc)?(sin|cos|tan|cot|sec|csc)h?|ln|log|exp")
_KNOWN_WORDS = (
    "frac sqrt pi cdot times div pm mp circ infty leq geq lt gt cup cap setminus emptyset in mid langle rangle "
    "overline mathbb mathrm begin end alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota "
    "kappa lambda mu nu xi rho sigma tau phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi "
    "Omega vec prime"
)
_KNOWN = set(_KNOWN_WORDS.split())
"""Commands an answer may have of its own; every other one only where the data set's answer has it too. What is left
out restates a problem (\\sum, \\int, \\lim, \\binom, \\gcd), offers a choice (\\text{or}), or hides (\\phantom)."""


def refused(answer: str, gold: str) -> str:
    """Why `answer` is wrong whatever it comes to; empty when it must be worked out. Both as `tidy` leaves them."""
    if len(answer) > max(ANSWER, 4 * len(gold)):
        return "too long"
    if sum(map(answer.count, "({[")) > DEPTH + 2 * sum(map(gold.count, "({[")):
        return "too deep"
    allowed = set(_COMMAND.findall(gold))
    if unknown := [name for name in _COMMAND.findall(answer) if name not in allowed and not _known(name)]:
        return f"\\{unknown[0]}"
    if "!" in answer and "!" not in gold:
        return "!"
    if re.search(r"\bor\b|\band\b|[?;]", answer) and not re.search(r"\bor\b|\band\b|[?;]", gold):
        return "hedge"
    return _bomb(answer, gold)


def _known(command: str) -> bool:
    name = re.sub(r"operatorname|[\s*{}]", "", command)
    return name in _KNOWN or _FUNCTION.fullmatch(name) is not None


def _bomb(answer: str, gold: str) -> str:
    if answer.count("^") > 6 + 2 * gold.count("^"):
        return "too many powers"
    tower = r"\^\s*\{?[^{}]{0,20}\^"
    if re.search(tower, answer) and not re.search(tower, gold):
        return "power tower"
    for power in re.finditer(r"\^\s*\{?\s*\(?\s*-?\s*(\d+)|\^\s*\{[^{}]*?(\d{4,})", answer):
        digits = power[1] or power[2]
        if int(digits[:9]) > EXPONENT and digits not in gold:
            return "huge exponent"
    return ""
