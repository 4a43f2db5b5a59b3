"""Whole completions: where the answer stands, which box counts, and texts made to exhaust a verifier."""

from __future__ import annotations

import random
from collections.abc import Callable

from rlm_audit.case import Case, Generator
from rlm_audit.mathematics import box_contexts

Text = Callable[[int, random.Random], str]
ANSWERS: dict[str, Text] = {
    "after thinking": lambda v, rng: f"<think>maybe \\boxed{{{v + 1}}}?</think>So \\boxed{{{v}}}.",
    "corrected": lambda v, rng: f"First \\boxed{{{v + 1}}}. No: \\boxed{{{v}}}",
    "inside an equation": lambda v, rng: f"$$x = \\boxed{{{v}}}$$",
    "repeated": lambda v, rng: f"\\boxed{{{v}}}. Checked: \\boxed{{{v}}}",
    "after a long text": lambda v, rng: "We compute $x = 1$. " * 3000 + f"\\boxed{{{v}}}",
    "fbox": lambda v, rng: f"\\fbox{{{v}}}",
}
_MARKUP = ["\\quad", " | ", "\\text{ or }", " **or** ", "\\lor", "<br>", "\n- ", "\n% ", " and/or ", " & "]
_MARKUP += ["或", " 或者 ", "还是", ", maybe ", " vs ", " and possibly ", " (resp. ", ", unless it is "]
NO_ANSWERS: dict[str, Text] = {
    "only while thinking": lambda v, rng: f"<think>\\boxed{{{v}}}</think>I do not know.",
    "thinking not closed": lambda v, rng: f"<think>\\boxed{{{v}}}",
    "corrected to a wrong one": lambda v, rng: f"\\boxed{{{v}}}. No: \\boxed{{{v + 1}}}",
    "two boxes": lambda v, rng: f"\\boxed{{{v}}} or \\boxed{{{v + 1}}}",
    "two boxes side by side": lambda v, rng: f"\\boxed{{{v + 1}}}\\boxed{{{v}}}",
    "two boxes and markup": lambda v, rng: f"\\boxed{{{v + 1}}}{rng.choice(_MARKUP)}\\boxed{{{v}}}",
    "an alternative as text": lambda v, rng: f"\\boxed{{{v}}}\\text{{ or }}{v + 1}",
    "a box not closed": lambda v, rng: f"\\boxed{{{v}",
    "a box with two boxes": lambda v, rng: f"\\boxed{{\\boxed{{{v + 1}}}\\boxed{{{v}}}}}",
    "an empty box": lambda v, rng: "\\boxed{}",
    "nothing": lambda v, rng: "",
    "every number": lambda v, rng: " ".join(f"\\boxed{{{k}}}" for k in range(v - 20, v + 20)),
    "an alternative after the box": lambda v, rng: f"\\boxed{{{v}}} or {v + 1}",
}
HOSTILE: dict[str, Text] = {
    "a tower of powers": lambda v, rng: f"\\boxed{{{'9^{' * v}9{'}' * v}}}",
    "a factorial": lambda v, rng: f"\\boxed{{(10^{{{v}}})!}}",
    "nested factorials": lambda v, rng: "\\boxed{" + "(" * v + "9" + ")!" * v + "}",
    "a huge exponent": lambda v, rng: f"\\boxed{{7^{{{10**v}}}}}",
    "a huge binomial": lambda v, rng: f"\\boxed{{\\binom{{10^{v}}}{{10^{v // 2}}}}}",
    "nested roots": lambda v, rng: "\\boxed{" + "\\sqrt{2+" * 20 * v + "3" + "}" * 20 * v + "}",
    "nested fractions": lambda v, rng: "\\boxed{" + "\\frac{1}{1+" * 20 * v + "2" + "}" * 20 * v + "}",
    "nested brackets": lambda v, rng: "\\boxed{" + "(" * 100 * v + f"{v}+1" + ")" * 100 * v + "}",
    "nested sines": lambda v, rng: "\\boxed{" + "\\sin(" * 10 * v + "1" + ")" * 10 * v + "}",
    "nested exponentials": lambda v, rng: "\\boxed{" + "e^{" * v + "5" + "}" * v + "}",
    "a long sum": lambda v, rng: "\\boxed{" + "+".join(f"\\sin({k}x)" for k in range(20 * v)) + "}",
    "a long product": lambda v, rng: "\\boxed{" + "".join(f"(x+{k})^{{99}}" for k in range(10 * v)) + "}",
    "many digits": lambda v, rng: "\\boxed{" + "7" * 10 ** min(v, 6) + "}",
    "a megabyte of text": lambda v, rng: "a" * 200_000 * v + f"\\boxed{{{v + 1}}}",
    "a megabyte of brackets": lambda v, rng: "{" * 200_000 * v + f"\\boxed{{{v + 1}}}",
    "a megabyte of dollars": lambda v, rng: "$" * 200_000 * v + f"\\boxed{{{v + 1}}}",
    "a megabyte in the box": lambda v, rng: "\\boxed{" + "1+" * 100_000 * v + "1}",
    "code": lambda v, rng: f"\\boxed{{__import__('time').sleep({v}) or {v}}}",
    "a large sum": lambda v, rng: f"\\boxed{{\\sum_{{k=1}}^{{10^{{{v}}}}} \\frac{{1}}{{k}}}}",
}
"""Class → a completion that is wrong for the reference v, and expensive to evaluate."""


def _generator(write: Text, *, is_right: bool, is_hostile: bool = False) -> Generator:
    def generate(rng: random.Random, size: int) -> Case | None:
        value = size + rng.randint(1, 3) if is_hostile else rng.randint(2, 10 ** (size + 1))
        return Case({"answer": str(value)}, write(value, rng), is_right, is_whole=True)

    return generate


def generators() -> dict[str, Generator]:
    """Return the generators of all classes of completions by name."""
    return {
        **{f"completion: {name}": _generator(write, is_right=True) for name, write in ANSWERS.items()},
        **{f"completion, not: {name}": _generator(write, is_right=False) for name, write in NO_ANSWERS.items()},
        **{f"box: {name}": _generator(write, is_right=True) for name, write in box_contexts.RIGHT.items()},
        **{f"box, not: {name}": _generator(write, is_right=False) for name, write in box_contexts.WRONG.items()},
        **{f"hostile: {name}": _generator(write, is_right=False, is_hostile=True) for name, write in HOSTILE.items()},
    }
