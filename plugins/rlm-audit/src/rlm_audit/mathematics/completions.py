"""Whole completions: where the answer stands, which box counts, what touches a box, and texts to exhaust a verifier."""

from __future__ import annotations

import random

from rlm_audit.kinds import Case, Generator, fill

RIGHT = {
    "completion": (
        r"<think>maybe \boxed{<v+1>}?</think>So \boxed{<v>}.",
        r"First \boxed{<v+1>}. No: \boxed{<v>}",
        r"$$x = \boxed{<v>}$$",
        r"\boxed{<v>}. Checked: \boxed{<v>}",
        r"<'Then:$x=1$.'*3000>\boxed{<v>}",
        r"\fbox{<v>}",
    ),
    "box": (
        r"**Final Answer:** $\boxed{<v>}$.",
        r"So it is not odd: \(\boxed{<v>}\), as required.",
        r"答案是$\boxed{<v>}$",
        r"\[ S = \frac{a}{b} = \boxed{<v>} \]",
        r"$\therefore \boxed{<v>}$",
        r"$\boxed{<v>}\text{ cm}$",
        r"$\boxed{<v>}^\circ$",
        r"$\textcolor{blue}{\boxed{<v>}}$",
        r"\textbf{\boxed{<v>}}",
    ),
}
"""Kind → completions that are right for the reference v."""
WRONG = {
    "completion": (
        r"<think>\boxed{<v>}</think>I do not know.",
        r"<think>\boxed{<v>}",
        r"\boxed{<v>}. No: \boxed{<v+1>}",
        r"\boxed{<v+1>}\boxed{<v>}",
        r"\boxed{\boxed{<v+1>}\boxed{<v>}}",
        r"\boxed{<v>",
        r"\boxed{}",
        "",
        r"<''.join(f'\\boxed{{{k}}}'for(k)in(range(v-20,v+20)))>",
        r"\boxed{<v>, <v+1>}",
        r"\boxed{<v>}\boxed{}\boxed{<v+1>}",
    ),
    "box": (
        r"$-\boxed{<v>}$",
        r"$3+\boxed{<v>}$",
        r"$2 \cdot \boxed{<v>}$",
        r"$5 - \boxed{<v>}$",
        r"$\boxed{<v>}^2$",
        r"$\boxed{<v>}+1$",
        r"$\boxed{<v>}/5$",
        r"$\boxed{<v>} - 1$",
        r"$\boxed{<v>} \times 10^3$",
        r"$2^{\boxed{<v>}}$",
        r"not $\boxed{<v>}$",
    ),
}
HOSTILE = (
    r"\boxed{<'9^{'*v>9<'}'*v>}",
    r"\boxed{(10^{<v>})!}",
    r"\boxed{<'('*v>9<')!'*v>}",
    r"\boxed{7^{<10**v>}}",
    r"\boxed{\binom{10^<v>}{10^<v//2>}}",
    r"\boxed{<'\\sqrt{2+'*20*v>3<'}'*20*v>}",
    r"\boxed{<'\\frac{1}{1+'*20*v>2<'}'*20*v>}",
    r"\boxed{<'('*100*v><v>+1<')'*100*v>}",
    r"\boxed{<'\\sin('*10*v>1<')'*10*v>}",
    r"\boxed{<'e^{'*v>5<'}'*v>}",
    r"\boxed{<'+'.join(f'\\sin({k}x)'for(k)in(range(20*v)))>}",
    r"\boxed{<''.join(f'(x+{k})^{{99}}'for(k)in(range(10*v)))>}",
    r"\boxed{<'7'*10**min(v,6)>}",
    r"<'a'*200_000*v>\boxed{<v+1>}",
    r"<'{'*200_000*v>\boxed{<v+1>}",
    r"<'$'*200_000*v>\boxed{<v+1>}",
    r"\boxed{<'1+'*100_000*v>1}",
    r"\boxed{__import__('time').sleep(<v>) or <v>}",
    r"\boxed{\sum_{k=1}^{10^{<v>}} \frac{1}{k}}",
)
"""Completions that are wrong for a small reference v, and expensive to evaluate."""


def _generator(template: str, *, is_right: bool, is_hostile: bool = False) -> Generator:
    def generate(rng: random.Random, size: int) -> Case | None:
        value = size + rng.randint(1, 3) if is_hostile else rng.randint(2, 10 ** (size + 1))
        text = fill(template, {"v": value}, rng)
        return None if text is None else Case({"answer": str(value)}, text, is_right, is_whole=True)

    return generate


def generators() -> dict[str, Generator]:
    """Return the generators of all classes of completions by name."""
    right = [(f"{kind}: {t}", _generator(t, is_right=True)) for kind, templates in RIGHT.items() for t in templates]
    wrong = [(f"{kind}, not: {t}", _generator(t, is_right=False)) for kind, listed in WRONG.items() for t in listed]
    hostile = [(f"hostile: {t}", _generator(t, is_right=False, is_hostile=True)) for t in HOSTILE]
    return dict([*right, *wrong, *hostile])
