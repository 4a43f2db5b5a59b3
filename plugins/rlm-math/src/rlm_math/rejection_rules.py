"""Rejection of answers without evaluation: hedges, unfinished work, expressions that are too expensive."""

from __future__ import annotations

import re

MAX_ANSWER_LENGTH = 400
"""Largest length of an answer in characters, unless the reference has more than a quarter of it."""
MAX_DEPTH = 60
MAX_EXPONENT = 2000

_COMMAND = re.compile(r"\\(operatorname\s*\*?\s*\{\s*\w*\s*\}|[A-Za-z]+)")
_FUNCTION = re.compile(r"(arc)?(sin|cos|tan|cot|sec|csc)h?|ln|log|exp")
_KNOWN_WORDS = (
    "frac sqrt pi cdot times div pm mp circ infty leq geq lt gt cup cap setminus emptyset in mid langle rangle "
    "overline mathbb mathrm begin end alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota "
    "kappa lambda mu nu xi rho sigma tau phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi "
    "Omega vec prime"
)
_KNOWN = set(_KNOWN_WORDS.split())
"""Commands allowed in any answer; others only if the reference contains them. Omitted on purpose: commands that
restate a problem (\\sum, \\int, \\lim, \\binom, \\gcd), offer a choice (\\text{or}), or hide text (\\phantom)."""


def rejection_reason(answer: str, gold: str) -> str:
    """Return why `answer` is wrong whatever its value; empty if it must be evaluated. Expects normalized texts."""
    if len(answer) > max(MAX_ANSWER_LENGTH, 4 * len(gold)):
        return "too long"
    if sum(map(answer.count, "({[")) > MAX_DEPTH + 2 * sum(map(gold.count, "({[")):
        return "too deep"
    allowed = set(_COMMAND.findall(gold))
    unknown = [name for name in _COMMAND.findall(answer) if name not in allowed and not _is_known(name)]
    if unknown:
        return f"\\{unknown[0]}"
    if "!" in answer and "!" not in gold:
        return "!"
    if re.search(r"\bor\b|\band\b|[?;]", answer) and not re.search(r"\bor\b|\band\b|[?;]", gold):
        return "hedge"
    return _cost_reason(answer, gold)


def _is_known(command: str) -> bool:
    name = re.sub(r"operatorname|[\s*{}]", "", command)
    return name in _KNOWN or _FUNCTION.fullmatch(name) is not None


def _cost_reason(answer: str, gold: str) -> str:
    """Return why evaluating the answer would be too expensive; empty if it is not."""
    if answer.count("^") > 6 + 2 * gold.count("^"):
        return "too many powers"
    tower = r"\^\s*\{?[^{}]{0,20}\^"
    if re.search(tower, answer) and not re.search(tower, gold):
        return "power tower"
    for power in re.finditer(r"\^\s*\{?\s*\(?\s*-?\s*(\d+)|\^\s*\{[^{}]*?(\d{4,})", answer):
        digits = power[1] or power[2]
        if int(digits[:9]) > MAX_EXPONENT and digits not in gold:
            return "huge exponent"
    return ""
