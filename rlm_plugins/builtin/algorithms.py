"""The algorithms (hook ``rlm_algorithms``): each one choice per symbol, with its source and its pitfalls.

The table is `algorithms.toml`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlm_plugins import hookimpl
from rlm_plugins.algorithm import Algorithm


def from_table(file: Path, make: Callable[..., Algorithm]) -> dict[str, Algorithm]:
    """Return name → algorithm of a table, each with its place there.

    Args:
        file: A table of TOML, one entry per algorithm.
        make: Called with the name and the values of an entry.
    """
    text = file.read_text(encoding="utf-8")
    algorithms = {}
    for name, entry in tomllib.loads(text).items():
        algorithms[name] = algorithm = make(name, **_values(entry))
        object.__setattr__(algorithm, "file", str(file))
        object.__setattr__(algorithm, "line", text[: text.index(f'["{name}"]')].count("\n") + 1)
    return algorithms


def _values(table: Any) -> Any:
    """Return a table of TOML with tuples in place of lists, and None for "null", which TOML does not have."""
    if isinstance(table, dict):
        return {key: _values(value) for key, value in table.items()}
    if isinstance(table, list):
        return tuple(map(_values, table))
    return None if table == "null" else table


ALGORITHMS = from_table(Path(__file__).with_name("algorithms.toml"), lambda _, **values: Algorithm(**values))
"""Name → algorithm, in the order of the survey (arXiv 2509.08827)."""


@hookimpl
def rlm_algorithms() -> dict[str, Algorithm]:
    return ALGORITHMS
