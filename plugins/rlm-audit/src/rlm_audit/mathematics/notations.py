"""Further notations: counts of pairs, greatest common divisors, groups, heights, and rounded references."""

from __future__ import annotations

import math
import random

from rlm_audit.mathematics.subject import Subject


def _shifted(shift: int) -> str:
    return f"n{shift:+d}" if shift else "n"


PAIRS_OF_N = Subject(
    draw=lambda rng, size: rng.randint(-size, 3 * size),
    write=lambda v, rng: f"\\frac{{({_shifted(v)})({_shifted(v - 1)})}}{{2}}",
    notations={
        "indices": lambda v, rng: f"C_{{{_shifted(v)}}}^2",
        "a function": lambda v, rng: f"C({_shifted(v)}, 2)",
        "a binomial": lambda v, rng: f"\\binom{{{_shifted(v)}}}{{2}}",
    },
    near_misses={"one more": lambda v, rng: v + 1},
    wrong_texts={
        "triples": lambda v, rng: f"C_{{{_shifted(v)}}}^3",
        "exchanged indices": lambda v, rng: f"C_2^{{{_shifted(v)}}}",
        "a name with an index": lambda v, rng: f"C_{{{_shifted(v)}}}",
    },
    is_spelled=False,
)


def _gcd(form: str, names: str, rng: random.Random) -> str:
    return form.replace("ARGUMENTS", ", ".join(rng.sample(names, 2)))


DIVISORS = Subject(
    draw=lambda rng, size: (rng.randint(2, 9 * size), "".join(rng.sample("abcmnpq", 2))),
    write=lambda v, rng: f"{v[0]}\\gcd({v[1][0]}, {v[1][1]})",
    notations={
        "exchanged arguments": lambda v, rng: f"{v[0]}\\gcd({v[1][1]}, {v[1][0]})",
        "the factor last": lambda v, rng: _gcd(f"\\gcd(ARGUMENTS) \\cdot {v[0]}", v[1], rng),
        "a sum": lambda v, rng: _gcd(f"{v[0] - 1}\\gcd(ARGUMENTS)+", v[1], rng) + _gcd("\\gcd(ARGUMENTS)", v[1], rng),
    },
    near_misses={"a factor": lambda v, rng: (v[0] + 1, v[1])},
    wrong_texts={
        "another argument": lambda v, rng: f"{v[0]}\\gcd({v[1][0]}, x)",
        "one argument twice": lambda v, rng: f"{v[0]}\\gcd({v[1][0]}, {v[1][0]})",
        "the least common multiple": lambda v, rng: _gcd(f"{v[0]}\\operatorname{{lcm}}(ARGUMENTS)", v[1], rng),
        "the product": lambda v, rng: f"{v[0]}{v[1]}",
    },
    is_spelled=False,
)

GROUPS = Subject(
    draw=lambda rng, size: tuple(sorted(rng.randint(2, 9 * size) for _ in range(rng.randint(1, 3)))),
    write=lambda v, rng: " \\times ".join(f"\\mathbb{{Z}}/{each}\\mathbb{{Z}}" for each in v),
    notations={
        "another order": lambda v, rng: "\\times".join(f"\\mathbb{{Z}}/{each}\\mathbb{{Z}}" for each in v[::-1]),
        "without braces": lambda v, rng: " \\times ".join(f"\\mathbb Z / {each} \\mathbb Z" for each in v),
    },
    near_misses={
        "another modulus": lambda v, rng: (*v[:-1], v[-1] + 1),
        "a factor more": lambda v, rng: tuple(sorted((*v, 2))),
    },
    wrong_texts={
        "its order": lambda v, rng: str(math.prod(v)),
        "the integers": lambda v, rng: "\\mathbb{Z}",
        "another ring": lambda v, rng: " \\times ".join(f"\\mathbb{{Q}}/{each}\\mathbb{{Q}}" for each in v),
    },
    is_spelled=False,
)

HEIGHTS = Subject(
    draw=lambda rng, size: (rng.randint(1, 9 * size), rng.randint(1, 11)),
    write=lambda v, rng: f"{v[0]}\\text{{ feet }}{v[1]}\\text{{ inches}}",
    notations={
        "primes": lambda v, rng: f"{v[0]}'{v[1]}''",
        "Unicode primes": lambda v, rng: f"{v[0]}′ {v[1]}″",
        "inches": lambda v, rng: f"{12 * v[0] + v[1]}\\text{{ in}}",
    },
    near_misses={"one more": lambda v, rng: (v[0] + 1, v[1])},
    wrong_texts={
        "a point": lambda v, rng: f"{v[0]}.{v[1]:02d}\\text{{ feet}}",
        "no primes": lambda v, rng: f"{v[0]} {v[1]}",
        "too many inches": lambda v, rng: f"{v[0] - 1}'{v[1] + 12}''",
    },
    is_spelled=False,
)

ROUNDED = Subject(
    draw=lambda rng, size: rng.randint(101, 10 ** (size + 3)),
    write=lambda v, rng: f"{rng.choice(['', 'x '])}{rng.choice(['≈', f'{chr(92)}approx '])}{v // 100}.{v % 100:02d}",
    notations={
        "the decimal": lambda v, rng: f"{v // 100}.{v % 100:02d}",
        "a fraction": lambda v, rng: f"\\frac{{{v}}}{{100}}",
        "the sign": lambda v, rng: f"\\approx {v // 100}.{v % 100:02d}",
    },
    near_misses={"a digit": lambda v, rng: v + 1, "a place": lambda v, rng: 10 * v},
    wrong_texts={"a place less": lambda v, rng: f"{v // 100}.{v % 100 // 10}" if v % 10 else None},
    is_spelled=False,
)
