"""Names that belong to an answer, such as that of a point, and names that may be replaced."""

from __future__ import annotations

from rlm_audit.mathematics.subject import Subject

_NOUNS = ["Vertex", "Center", "Midpoint", "Focus"]

NAMED_POINTS = Subject(
    draw=lambda rng, size: (rng.choice(_NOUNS), rng.randint(-9 * size, 9 * size), rng.randint(-9, 9 * size)),
    write=lambda v, rng: f"\\text{{{v[0]} }}({v[1]},{v[2]})",
    notations={
        "without the noun": lambda v, rng: f"({v[1]},{v[2]})",
        "a colon": lambda v, rng: f"\\text{{{v[0].lower()}: }}({v[1]}, {v[2]})",
        "a general noun": lambda v, rng: f"\\text{{Point }}({v[1]},{v[2]})",
    },
    near_misses={
        "one more": lambda v, rng: (*v[:2], v[2] + 1),
        "exchanged": lambda v, rng: (v[0], v[2], v[1]) if v[1] != v[2] else None,
    },
    wrong_texts={
        "another noun": lambda v, rng: (
            f"\\text{{{rng.choice([each for each in _NOUNS if each != v[0]])} }}({v[1]},{v[2]})"
        ),
    },
    is_spelled=False,
)


INTEGRALS = Subject(
    draw=lambda rng, size: (rng.randint(2, 9 * size), rng.choice("xtu")),
    write=lambda v, rng: f"{v[0]}e^{v[1]}+C",
    notations={
        "a small letter": lambda v, rng: f"{v[0]}e^{v[1]}+c",
        "another letter": lambda v, rng: f"K+{v[0]}e^{v[1]}",
    },
    near_misses={"one more": lambda v, rng: (v[0] + 1, v[1])},
    wrong_texts={
        "no constant": lambda v, rng: f"{v[0]}e^{v[1]}",
        "a factor": lambda v, rng: f"{v[0]}Ke^{v[1]}",
        "a multiple of the constant": lambda v, rng: f"{v[0]}e^{v[1]}+{rng.randint(2, 9)}K",
        "two constants": lambda v, rng: f"{v[0]}e^{v[1]}+C+K",
        "the variable as constant": lambda v, rng: f"{v[0]}e^{v[1]}+{v[1]}",
    },
)

SUMS_OF_PARAMETERS = Subject(
    draw=lambda rng, size: (rng.choice("abd"), rng.randint(1, 9 * size)),
    write=lambda v, rng: f"{v[1]}{v[0]}+c",
    notations={"another order": lambda v, rng: f"c+{v[1]}{v[0]}"},
    near_misses={"one more": lambda v, rng: (v[0], v[1] + 1)},
    wrong_texts={"another parameter": lambda v, rng: f"{v[1]}{v[0]}+{rng.choice('CKk')}"},
)

FUNCTIONS_OF_X = Subject(
    draw=lambda rng, size: (rng.randint(2, 9 * size), rng.randint(1, 9 * size)),
    write=lambda v, rng: f"f(x)={v[0]}x+{v[1]}",
    notations={"y": lambda v, rng: f"y={v[0]}x+{v[1]}"},
    near_misses={"one more": lambda v, rng: (v[0], v[1] + 1)},
    wrong_texts={
        "exchanged variables": lambda v, rng: f"x={v[0]}y+{v[1]}",
        "another function": lambda v, rng: f"g(x)={v[0]}x+{v[1]}",
        "the derivative": lambda v, rng: f"f'(x)={v[0]}x+{v[1]}",
        "another argument": lambda v, rng: f"y={v[0]}t+{v[1]}",
    },
)

WHOLE_RATIOS = Subject(
    # the first term is no hour: 5:11:11 may be a time, which has no multiples
    draw=lambda rng, size: (rng.choice([29, 101]), *(rng.choice([2, 3, 7, 11, 103]) for _ in range(rng.randint(2, 3)))),
    write=lambda v, rng: ":".join(map(str, v)),
    notations={
        "a multiple": lambda v, rng: ":".join(str(each * (100 + v[0])) for each in v),
        "spaces": lambda v, rng: " : ".join(map(str, v)),
    },
    near_misses={
        "one more": lambda v, rng: (*v[:-1], v[-1] + 1),
        "exchanged": lambda v, rng: (v[1], v[0], *v[2:]) if v[0] != v[1] else None,
        "a term more": lambda v, rng: (*v, 1),
    },
    wrong_texts={
        "one term multiplied": lambda v, rng: ":".join(map(str, (2 * v[0], *v[1:]))),
        "zeros": lambda v, rng: ":".join("0" for _ in v),
        "a list": lambda v, rng: ",".join(map(str, v)),
    },
    is_spelled=False,
)

_OTHER_SPELLINGS = {
    "\\neg A\\to B": "\\lnot A \\rightarrow B",
    "P(A|B)": "P\\left(A \\mid B\\right)",
    "A\\setminus B": "A \\backslash B",
    "(A\\cap C)\\cup B": "\\left(A\\bigcap C\\right) \\cup B",
    "A\\circ B": "A \\circ B",
}
"""Formula without a value → the same in another spelling. No two letters may be exchanged."""

SYMBOLIC = Subject(
    draw=lambda rng, size: rng.choice([*_OTHER_SPELLINGS]),
    write=lambda v, rng: v,
    notations={"another spelling": lambda v, rng: _OTHER_SPELLINGS[v]},
    near_misses={"another operation": lambda v, rng: rng.choice([*_OTHER_SPELLINGS])},
    wrong_texts={
        "exchanged letters": lambda v, rng: v.translate(str.maketrans("AB", "BA")),
        "another letter": lambda v, rng: v.replace("B", "D"),
        "one letter": lambda v, rng: "A",
    },
    is_spelled=False,
)
