"""Unpaired preferences: completions of prompts, each labeled true or false."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlm_plugins.errors import RecipeError

Example = Mapping[str, Any]


def is_unpaired(names: Sequence[str]) -> bool:
    """Return True if the columns are those of an unpaired preference.

    >>> is_unpaired(["prompt", "completion", "label"]), is_unpaired(["prompt", "completion"])
    (True, False)
    """
    return {"prompt", "completion", "label"} <= {*names} and not {"demonstration", "chosen"} & {*names}


def pairs_of(rows: Any) -> list[dict[str, Any]]:
    """Return every pair of a completion labeled true and one labeled false of the same prompt.

    Args:
        rows: Examples of an unpaired preference.

    Raises:
        RecipeError: They are a stream, or no prompt has both labels.
    """
    if not hasattr(rows, "__len__"):
        problem = "pairs are made from all completions of a prompt, and the examples are a stream"
        raise RecipeError(problem, where="environment", hint="load them without `streaming`")
    groups: dict[str, dict[bool, list[Example]]] = {}
    for row in rows:
        groups.setdefault(repr(row["prompt"]), {True: [], False: []})[row["label"]].append(row)
    pairs = [
        {"prompt": liked["prompt"], "chosen": liked["completion"], "rejected": disliked["completion"]}
        for group in groups.values()
        for liked in group[True]
        for disliked in group[False]
    ]
    if not pairs and len(rows):
        problem = "no prompt has a completion labeled true and one labeled false, so there are no pairs"
        raise RecipeError(problem, where="environment", hint="`algorithm: sft` trains on those labeled true")
    return pairs
