"""Implementation variants of other libraries (hook ``rlm_algorithms``): ``grpo@trl`` is `grpo` with TRL's numbers.

One rule: a value that a library's code fixes, or its default for this algorithm, is the library's. That covers the std,
eps, the advantage of a singleton group, dual clip and the aggregation. A value that its user sets (ε, β, k) stays the
algorithm's, unless the library defines it differently. Differences that no knob covers are in the pitfalls. Versions:
trl 1.16.0, verl 0.9.1, openrlhf 0.11.2; for the others the commit is given. The table is `conventions.toml`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlm_plugins import hookimpl
from rlm_plugins.algorithm import Algorithm, base_name, variant
from rlm_plugins.builtin.algorithms import ALGORITHMS, from_table


@hookimpl
def rlm_algorithms() -> dict[str, Algorithm]:
    return from_table(Path(__file__).with_name("conventions.toml"), _variant)


def _variant(name: str, **values: Any) -> Algorithm:
    return variant(ALGORITHMS[base_name(name)], **values)
