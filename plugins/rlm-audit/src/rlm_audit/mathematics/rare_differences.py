"""Answers that differ from the reference where a random point, or a limited precision, rarely shows it."""

from __future__ import annotations

import random
import re

from rlm_audit.mathematics.integers import signed
from rlm_audit.mathematics.subject import Subject, Writer


def _filled(pattern: str) -> Writer:
    """Return a writer that puts the value for ``<a>``, and its successor for ``<b>``, into a pattern.

    A sign in front, as in ``<+a>``, makes it a further term. ``<K>`` is a large power of ten, ``<k>`` a small one,
    and ``<T>`` a power of two.
    """

    def write(value: int, rng: random.Random) -> str:
        words = {
            "<a>": str(value),
            "<+a>": signed(value),
            "<-a>": signed(-value),
            "<+b>": signed(value + 1),
            "<K>": f"10^{{{rng.randint(6, 300)}}}",
            "<k>": f"10^{{-{rng.randint(3, 300)}}}",
            "<T>": f"2^{{{rng.randint(16, 200)}}}",
        }
        return re.sub("<[^>]+>", lambda match: words[match[0]], pattern)

    return write


def _subject(reference: str, notations: dict[str, str], wrong: dict[str, str]) -> Subject:
    return Subject(
        draw=lambda rng, size: rng.choice([-1, 1]) * rng.randint(1, 9 * size),
        write=_filled(reference),
        notations={name: _filled(text) for name, text in notations.items()},
        near_misses={"one more": lambda value, rng: value + 1},
        wrong_texts={name: _filled(text) for name, text in wrong.items()},
        is_spelled=False,
    )


TERM = _subject(
    "x<+a>",
    {"the other order": "<a>+x", "a difference": "x-(<-a>)"},
    {
        "a corner far away": "|x<+a>+<K>|-<K>",
        "a root with a corner far away": "\\sqrt{(x<+a>+<K>)^2}-<K>",
        "an expanded root": "\\sqrt{x^2+2 \\cdot <K>x+(<K>)^2}-<K><+a>",
        "a fast wave": "x<+a>+\\sin(<T>\\pi x)",
        "a fast factor": "(x<+a>)\\cos(<T>\\pi x)",
        "a limit": "x<+a>+1-\\tanh(x^2+1000)",
        "a power of zero": "x<+a>+0^{|x<+a>|}",
    },
)
DISTANCE = _subject(
    "|x<+a>|",
    {"a root": "\\sqrt{(x<+a>)^2}", "turned": "|<-a>-x|", "an expanded root": "\\sqrt{x^2+2 \\cdot (<a>)x+(<a>)^2}"},
    {
        "without bars": "x<+a>",
        "two corners": "\\frac{|x<+a>-<k>|+|x<+a>+<k>|}{2}",
        "a corner moved": "|x<+a>+<k>|",
        "a rounded corner": "\\sqrt{(x<+a>)^2+<k>}",
    },
)
STEP = _subject(
    "\\lfloor x<+a>\\rfloor",
    {"outside": "\\lfloor x\\rfloor<+a>", "the opposite of a ceiling": "-\\lceil -x-(<a>)\\rceil"},
    {
        "a step moved": "\\lfloor x<+a>+<k>\\rfloor",
        "a ceiling": "\\lceil x<+a>\\rceil-1",
        "without brackets": "x<+a>",
        "one more": "\\lfloor x<+b>\\rfloor",
    },
)
ALTERNATING = _subject(
    "(-1)^n (x<+a>)",
    {"the exponent": "-(-1)^{n+1}(x<+a>)", "two more": "(-1)^{n+2}(x<+a>)", "a cosine": "\\cos(n\\pi)(x<+a>)"},
    {
        "bars": "(-1)^n |x<+a>|",
        "a wave": "(-1)^n (x<+a>)+\\sin(\\pi x)",
        "the next sign": "(-1)^{n+1}(x<+a>)",
        "a corner far away": "(-1)^n (|x<+a>+<K>|-<K>)",
        "a sign that turns": "\\frac{(<K>-n)(-1)^n (x<+a>)}{|n-<K>|}",
    },
)
GROWTH = _subject(
    "e^x<+a>",
    {"the other order": "<a>+e^x", "a difference": "e^x-(<-a>)", "an opposite exponent": "\\frac{1}{e^{-x}}<+a>"},
    {
        "a corner far away": "<K>-|<K>-e^x-(<a>)|",
        "a smaller value": "\\min(e^x<+a>, <K>)",
        "a root with a corner far away": "<K>-\\sqrt{(<K>-e^x-(<a>))^2}",
        "a power": "e^{2x}<+a>",
        "a corner where it is too large": "e^x<+a>+|x-10^7|+x-10^7",
    },
)
LIMIT = _subject(
    "<a>",
    {"a wave at an integer": "<a>+\\sin(<T>\\pi)", "an identity": "<a> \\cdot (\\cosh^2(300)-\\sinh^2(300))"},
    {
        "a hyperbolic tangent": "<a>+1-\\tanh(<K>)",
        "a smaller hyperbolic tangent": "<a>+1-\\tanh(1000)",
        "a cotangent": "<a>\\coth(2000)",
        "a wave": "<a>+\\sin(<T>\\pi x)",
        "an exponential": "<a>+e^{-3000}",
        "an arc": "<a>+\\frac{\\pi}{2}-\\arctan(<K>)",
    },
)
PRICE = _subject(
    "<a>.00",
    {"without places": "<a>", "a fraction": "\\frac{2 \\cdot (<a>)}{2}"},
    {
        "a number that rounds to it": "<a>+1-\\tanh 4",
        "a digit": "<a>.01",
        "a root near it": "<a>+1-\\sqrt{\\tanh 4}",
    },
)
