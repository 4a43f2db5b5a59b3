"""Residues with their modulus, and times of day."""

from __future__ import annotations

import random
from collections.abc import Callable

from rlm_audit.mathematics.subject import Subject

RESIDUES = Subject(
    draw=lambda rng, size: (rng.randrange(size + 4), size + 4),
    write=lambda v, rng: f"{v[0]} \\pmod{{{v[1]}}}",
    notations={
        "a congruence": lambda v, rng: f"x \\equiv {v[0]} \\pmod{{{v[1]}}}",
        "another representative": lambda v, rng: f"{v[0] + v[1] * rng.randint(-5, 5)} \\pmod{{{v[1]}}}",
        "the residue on the left": lambda v, rng: f"{v[0]} \\equiv x \\pmod{{{v[1]}}}",
        "mod in text": lambda v, rng: f"x \\equiv {v[0]} \\text{{ (mod {v[1]})}}",
    },
    near_misses={
        "the residue": lambda v, rng: ((v[0] + 1) % v[1], v[1]),
        "the modulus": lambda v, rng: (v[0], v[1] + 1),
    },
    wrong_texts={
        "without the modulus": lambda v, rng: str(v[0]),
        "a false chain": lambda v, rng: f"x \\equiv {v[0] + 1} \\equiv {v[0]} \\pmod{{{v[1]}}}",
        "two residues": lambda v, rng: f"x \\equiv {v[0]}, {v[0] + 1} \\pmod{{{v[1]}}}",
    },
    is_spelled=False,
)


def _residues(order: int, shift: int = 0, change: int = 0) -> Callable[[tuple[int, int, int], random.Random], str]:
    def write(value: tuple[int, int, int], rng: random.Random) -> str:
        first, second, modulus = value
        listed = ", ".join(map(str, [first + shift * modulus, second + change][::order]))
        return f"x \\equiv {listed} \\pmod{{{modulus}}}"

    return write


SEVERAL_RESIDUES = Subject(
    draw=lambda rng, size: (*rng.sample(range(size + 6), 2), size + 6),
    write=_residues(1),
    notations={
        "the other order": _residues(-1),
        "another representative": _residues(1, shift=3),
        "or": lambda v, rng: f"x \\equiv {v[1]} \\pmod{{{v[2]}}} \\text{{ or }} x \\equiv {v[0]} \\pmod{{{v[2]}}}",
    },
    wrong_texts={
        "another residue": lambda v, rng: _residues(1, change=1)(v, rng) if v[0] != v[1] + 1 else None,
        "one of them": lambda v, rng: f"x \\equiv {v[0]} \\pmod{{{v[2]}}}",
        "a third": lambda v, rng: f"x \\equiv {v[0]}, {v[1]}, {v[0] + v[1] + 1} \\pmod{{{v[2]}}}",
    },
    is_spelled=False,
)


def _half_day(value: tuple[int, int, str], form: str) -> str:
    return form.replace("H", str(value[0])).replace("M", f"{value[1]:02d}").replace("X", value[2])


def _of_24_hours(value: tuple[int, int, str], rng: random.Random) -> str | None:
    hour, minute, half = value
    return f"{hour + 12}:{minute:02d}" if half == "p" and hour < 12 else None


TIMES = Subject(
    draw=lambda rng, size: (rng.randint(1, 12), rng.randint(0, 59), rng.choice("ap")),
    write=lambda v, rng: _half_day(v, "H:M\\text{ X.m.}"),
    notations={
        "capital letters": lambda v, rng: _half_day(v, "H:M \\text{ X}").upper().replace("TEXT", "text")[:-1] + "M}",
        "one text": lambda v, rng: _half_day(v, "\\text{H:M Xm}"),
        "24 hours": _of_24_hours,
        "a leading zero": lambda v, rng: "0" * (v[0] < 10) + _half_day(v, "H:M Xm"),
    },
    near_misses={
        "a minute": lambda v, rng: (v[0], (v[1] + 1) % 60, v[2]),
        "the other half": lambda v, rng: (v[0], v[1], "ap"[v[2] == "a"]),
    },
    wrong_texts={
        "no half": lambda v, rng: f"{v[0]}:{v[1]:02d}",
        "a fraction": lambda v, rng: f"\\frac{{{v[0] + 12}}}{{{v[1]}}}" if v[1] else None,
        "the number": lambda v, rng: str(v[0]),
    },
    is_spelled=False,
)

CLOCK = Subject(
    draw=lambda rng, size: (rng.randint(1, 12), rng.randint(0, 59)),
    write=lambda v, rng: f"{v[0]}:{v[1]:02d}",
    notations={
        "a leading zero": lambda v, rng: f"{v[0]:02d}:{v[1]:02d}",
        "text": lambda v, rng: f"\\text{{{v[0]}:{v[1]:02d}}}",
    },
    near_misses={
        "a minute": lambda v, rng: (v[0], (v[1] + 1) % 60),
        "exchanged": lambda v, rng: (v[1] % 12 + 1, v[0]),
    },
    wrong_texts={"a number": lambda v, rng: f"{v[0]}{v[1]:02d}", "a decimal": lambda v, rng: f"{v[0]}.{v[1]:02d}"},
    is_spelled=False,
)
