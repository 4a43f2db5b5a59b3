"""The algorithms (hook ``rlm_algorithms``): each one choice per symbol, with its source and its pitfalls.

The tables are `algorithms.toml` and `conventions.toml`, with the implementation variants of other libraries:
``grpo@trl`` is `grpo` with TRL's numbers. One rule: a value that a library's code fixes, or its default for this
algorithm, is the library's. That covers the std, eps, the advantage of a singleton group, dual clip and the
aggregation. A value that its user sets (ε, β, k) stays the algorithm's, unless the library defines it differently.
Differences that no knob covers are in the pitfalls. Versions: trl 1.16.0, verl 0.9.1, openrlhf 0.11.2; for the others
the commit is given.
"""

from __future__ import annotations

from pathlib import Path

from rlm_plugins import hookimpl
from rlm_plugins.specs import Algorithm, read_algorithms

FOLDER = Path(__file__).parent
ALGORITHMS = read_algorithms(FOLDER / "algorithms.toml", FOLDER / "conventions.toml")
"""Name → algorithm, in the order of the survey (arXiv 2509.08827), then the variants."""


@hookimpl
def rlm_algorithms() -> dict[str, Algorithm]:
    return ALGORITHMS
