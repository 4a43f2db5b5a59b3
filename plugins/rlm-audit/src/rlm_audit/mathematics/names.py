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
