"""Systems of equations, several solutions, asymptotes, residue classes, parameters, binomials, ratios, functions."""

from __future__ import annotations

import math
import random

from rlm_audit.mathematics.subject import Subject

Pair = tuple[int, int]


def _draw_pair(rng: random.Random, size: int) -> Pair:
    return rng.randint(-9 * size, 9 * size), rng.randint(10 * size, 19 * size)


_SWAPPED = {"exchanged": lambda v, rng: (v[1], v[0]), "one more": lambda v, rng: (v[0] + 1, v[1])}

SYSTEMS = Subject(
    draw=_draw_pair,
    write=lambda v, rng: f"\\begin{{cases}} x={v[0]} \\\\ y={v[1]} \\end{{cases}}",
    notations={
        "a pair": lambda v, rng: f"({v[0]}, {v[1]})",
        "a list": lambda v, rng: f"y={v[1]}, x={v[0]}",
        "a brace": lambda v, rng: f"\\left\\{{\\begin{{array}}{{l}}x={v[0]},\\\\y={v[1]}.\\end{{array}}\\right.",
        "a point": lambda v, rng: f"P({v[0]},{v[1]})",
        "a column": lambda v, rng: f"\\begin{{pmatrix}}{v[0]}&{v[1]}\\end{{pmatrix}}^T",
        "a transposed pair": lambda v, rng: f"({v[0]},{v[1]})^{{\\top}}",
    },
    near_misses=_SWAPPED,
    wrong_texts={
        "one equation": lambda v, rng: f"\\begin{{cases}} x={v[0]} \\end{{cases}}",
        "one more": lambda v, rng: f"\\begin{{cases}} x={v[0]} \\\\ y={v[1]} \\\\ z=1 \\end{{cases}}",
        "without names": lambda v, rng: f"{v[0]}, {v[1]}",
        "a half-open interval": lambda v, rng: f"P({v[0]},{v[1]}]",
    },
    is_spelled=False,
)

SOLUTIONS = Subject(
    draw=lambda rng, size: (_draw_pair(rng, size), _draw_pair(rng, size)),
    write=lambda v, rng: ", ".join(f"({x},{y})" for x, y in v),
    notations={
        "a membership": lambda v, rng: f"(x,y) \\in \\{{{', '.join(f'({x},{y})' for x, y in v[::-1])}\\}}",
        "assignments": lambda v, rng: "\\text{ or }".join(f"x={x}, y={y}" for x, y in v),
        "points": lambda v, rng: ", ".join(f"{name}({x},{y})" for name, (x, y) in zip("AB", v, strict=True)),
    },
    near_misses={
        "exchanged": lambda v, rng: tuple((y, x) for x, y in v),
        "mixed": lambda v, rng: ((v[0][0], v[1][1]), (v[1][0], v[0][1])) if v[0][0] != v[1][0] else None,
    },
    wrong_texts={
        "one of them": lambda v, rng: f"({v[0][0]},{v[0][1]})" if v[0] != v[1] else None,
        "the values of one unknown": lambda v, rng: f"x={v[0][0]}, {v[1][0]}, y={v[0][1]}, {v[1][1]}",
        "other names": lambda v, rng: f"x={v[0][0]}, y={v[0][1]} \\text{{ or }} x={v[1][0]}, z={v[1][1]}",
    },
    is_spelled=False,
)


ASYMPTOTES = Subject(
    draw=lambda rng, size: (rng.randint(1, 5 * size), rng.randint(5 * size + 1, 9 * size + 1)),
    write=lambda v, rng: f"y=\\pm\\frac{{{v[0]}}}{{{v[1]}}}x",
    notations={
        "one equation": lambda v, rng: f"{v[0]}x\\pm {v[1]}y=0",
        "two equations": lambda v, rng: f"{v[0]}x+{v[1]}y=0 \\text{{ or }} {v[0]}x-{v[1]}y=0",
        "of the other variable": lambda v, rng: f"x=\\pm\\frac{{{v[1]}}}{{{v[0]}}}y",
    },
    near_misses={"exchanged": lambda v, rng: (v[1], v[0]), "more": lambda v, rng: (v[0] + 1, v[1])},
    wrong_texts={
        "one line": lambda v, rng: f"{v[0]}x+{v[1]}y=0",
        "moved lines": lambda v, rng: f"{v[0]}x\\pm {v[1]}y=1",
        "no equation": lambda v, rng: f"{v[0]}x\\pm {v[1]}y",
    },
    is_spelled=False,
)


def _draw_residue(rng: random.Random, size: int) -> Pair:
    modulus = rng.randint(3, 9 * size)
    return rng.randrange(1, modulus), modulus


RESIDUE_CLASSES = Subject(
    draw=_draw_residue,
    write=lambda v, rng: f"x \\equiv {v[0]} \\pmod{{{v[1]}}}",
    notations={
        "multiples": lambda v, rng: f"x={v[1]}k+{v[0]}",
        "multiples of an integer": lambda v, rng: f"x = {v[0]}+{v[1]}n, n \\in \\mathbb{{Z}}",
        "negative multiples": lambda v, rng: f"{v[0]}-{v[1]}k",
    },
    near_misses={
        "one more": lambda v, rng: ((v[0] + 1) % v[1], v[1]),
        "another modulus": lambda v, rng: (v[0], v[1] + 1),
    },
    wrong_texts={
        "every second one": lambda v, rng: f"x={2 * v[1]}k+{v[0]}",
        "an equation for x": lambda v, rng: f"x={v[1]}x+{v[0]}",
        "another unknown": lambda v, rng: f"y={v[1]}k+{v[0]}",
        "natural multiples": lambda v, rng: f"x={v[1]}k+{v[0]}, k \\in \\mathbb{{N}}",
        "squares": lambda v, rng: f"x={v[1]}k^2+{v[0]}",
        "the residue": lambda v, rng: f"x={v[0]}",
    },
    is_spelled=False,
)

PERIODIC = Subject(
    draw=lambda rng, size: (rng.randint(1, 3 * size), rng.randint(3 * size + 1, 6 * size + 1)),
    write=lambda v, rng: f"\\frac{{{v[0]}\\pi}}{{{v[1]}}}+k\\pi, k\\in\\mathbf{{Z}}",
    notations={
        "brackets": lambda v, rng: f"k\\pi+\\frac{{{v[0]}\\pi}}{{{v[1]}}} (k \\in \\mathbb{{Z}})",
        "a set": lambda v, rng: f"\\{{x \\mid x=k\\pi+\\frac{{{v[0]}\\pi}}{{{v[1]}}}, k\\in\\mathbb{{Z}}\\}}",
        "words": lambda v, rng: f"\\frac{{{v[0]}\\pi}}{{{v[1]}}}+k\\pi\\text{{ for any integer }}k",
        "another parameter": lambda v, rng: f"\\frac{{{v[0]}\\pi}}{{{v[1]}}}+n\\pi, n\\in\\mathbb{{Z}}",
    },
    near_misses={"one more": lambda v, rng: (v[0] + 1, v[1])},
    wrong_texts={
        "an undeclared parameter": lambda v, rng: f"\\frac{{{v[0]}\\pi}}{{{v[1]}}}+n\\pi",
        "a double period": lambda v, rng: f"\\frac{{{v[0]}\\pi}}{{{v[1]}}}+2k\\pi (k\\in\\mathbb{{Z}})",
        "natural numbers": lambda v, rng: f"\\frac{{{v[0]}\\pi}}{{{v[1]}}}+k\\pi (k\\in\\mathbb{{N}})",
        "all but these": lambda v, rng: (
            f"\\{{x \\mid x\\neq k\\pi+\\frac{{{v[0]}\\pi}}{{{v[1]}}}, k\\in\\mathbb{{Z}}\\}}"
        ),
    },
    is_spelled=False,
)

CONDITIONS = Subject(
    draw=_draw_pair,
    write=lambda v, rng: f"\\{{x \\mid {v[0]}<x<{v[1]}\\}}",
    notations={
        "another variable": lambda v, rng: f"\\{{t : {v[0]}<t<{v[1]}\\}}",
        "a domain": lambda v, rng: f"\\left\\{{x\\in\\mathbf{{R}} \\middle| {v[0]}<x<{v[1]}\\right\\}}",
        "a list of conditions": lambda v, rng: f"\\{{x \\mid x\\in\\mathbb{{R}}, {v[0]}<x<{v[1]}\\}}",
        "an interval": lambda v, rng: f"({v[0]},{v[1]})",
    },
    near_misses={"one more": lambda v, rng: (v[0], v[1] + 1)},
    wrong_texts={
        "integers": lambda v, rng: f"\\{{x \\mid {v[0]}<x<{v[1]}, x\\in\\mathbb{{Z}}\\}}",
        "an inequality of integers": lambda v, rng: f"{v[0]}<x<{v[1]}, x\\in\\mathbb{{Z}}",
        "an end": lambda v, rng: f"\\{{t : {v[0]}\\leq t<{v[1]}\\}}",
    },
    is_spelled=False,
)

BINOMIALS = Subject(
    draw=lambda rng, size: (rng.randint(5 * size, 9 * size), rng.randint(2, 2 * size + 1)),
    write=lambda v, rng: f"\\binom{{{v[0]}}}{{{v[1]}}}",
    notations={
        "the value": lambda v, rng: str(math.comb(*v)),
        "a function": lambda v, rng: f"C({v[0]},{v[1]})",
        "indices": lambda v, rng: f"C_{{{v[0]}}}^{{{v[1]}}}",
        "indices on both sides": lambda v, rng: f"{{}}^{{{v[0]}}}C_{{{v[1]}}}",
        "factorials": lambda v, rng: f"\\frac{{{v[0]}!}}{{{v[1]}!\\,{v[0] - v[1]}!}}",
    },
    near_misses={
        "another set": lambda v, rng: (v[0] + 1, v[1]),
        "another subset": lambda v, rng: (v[0], v[1] - 1) if v[0] != 2 * v[1] - 1 else None,
    },
    wrong_texts={
        "exchanged": lambda v, rng: f"C({v[1]},{v[0]})",
        "ordered": lambda v, rng: f"\\frac{{{v[0]}!}}{{{v[0] - v[1]}!}}",
        "a factorial missing": lambda v, rng: f"\\frac{{{v[0]}!}}{{{v[1]}!}}" if v[0] - v[1] > 1 else None,
    },
    is_spelled=False,
)

EQUAL_NAMES = Subject(
    draw=_draw_pair,
    write=lambda v, rng: f"x={v[0]}, y={v[1]}, z={v[1]}",
    notations={
        "a chain": lambda v, rng: f"x={v[0]}, y=z={v[1]}",
        "a tuple": lambda v, rng: f"({v[0]},{v[1]},{v[1]})",
    },
    near_misses=_SWAPPED,
    wrong_texts={
        "a chain of all": lambda v, rng: f"x=y=z={v[1]}",
        "a chain of others": lambda v, rng: f"x=y={v[0]}, z={v[1]}",
        "a name missing": lambda v, rng: f"y=z={v[1]}",
        "a false chain": lambda v, rng: f"x={v[0]}, y={v[1] + 1}={v[1]}, z={v[1]}",
    },
    is_spelled=False,
)

RATIOS = Subject(
    draw=lambda rng, size: (rng.randint(2, 9 * size), rng.choice([2, 3, 5, 7])),
    write=lambda v, rng: f"{v[0]}:\\sqrt{{{v[1]}}}",
    notations={
        "spaces": lambda v, rng: f"{v[0]} : \\sqrt{{{v[1]}}}",
        "a power": lambda v, rng: f"{v[0]}:{v[1]}^{{1/2}}",
    },
    near_misses={"one more": lambda v, rng: (v[0] + 1, v[1]), "another root": lambda v, rng: (v[0], v[1] + 1)},
    wrong_texts={
        "exchanged": lambda v, rng: f"\\sqrt{{{v[1]}}}:{v[0]}",
        "a third": lambda v, rng: f"{v[0]}:\\sqrt{{{v[1]}}}:1",
        "a list": lambda v, rng: f"{v[0]},\\sqrt{{{v[1]}}}",
    },
    is_spelled=False,
)

LINEAR_FUNCTIONS = Subject(
    draw=lambda rng, size: rng.randint(1, 9 * size),
    write=lambda v, rng: f"f(x)=cx+{v}",
    notations={
        "a real constant": lambda v, rng: f"f(x)=cx+{v}, c\\in\\mathbb{{R}}",
        "some constant": lambda v, rng: f"f(x)={v}+cx\\text{{ for some constant }}c",
        "another argument": lambda v, rng: f"f({(x := rng.choice('tuy'))})=c{x}+{v}",
        "any number": lambda v, rng: f"f(x)=cx+{v}\\text{{ where }}c\\text{{ is any real number}}",
    },
    near_misses={"one more": lambda v, rng: v + 1},
    wrong_texts={
        "an integer": lambda v, rng: f"f(x)=cx+{v}, c\\in\\mathbb{{Z}}",
        "no constant": lambda v, rng: f"f(x)=cx+{v}\\text{{ for no constant }}c",
        "a positive one": lambda v, rng: f"f(x)=cx+{v}, c>0",
        "without the constant": lambda v, rng: f"f(x)=x+{v}",
        "an argument that does not occur": lambda v, rng: f"f({rng.choice('tuy')})=cx+{v}",
        "a variable that is no argument": lambda v, rng: f"f(x)=c{rng.choice('tuy')}+{v}",
        "another function": lambda v, rng: f"g(t)=ct+{v}",
    },
    is_spelled=False,
)
