"""Held-out examples: drawn from a data set, and removed from the training examples."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from rlm_plugins.data.images import identity, image_columns, undecoded, without_images
from rlm_plugins.errors import RecipeError

if TYPE_CHECKING:
    from datasets import Dataset


def hold_out(rows: Dataset, count: int, seed: int) -> tuple[Dataset, Dataset]:
    """Return (train, test): `count` test examples drawn with `seed`, and the examples with other prompts.

    Of an unpaired preference (with a ``label``), all examples of a drawn prompt are held out.

    Raises:
        RecipeError: No training example is left.
    """
    indices = random.Random(seed).sample(range(len(rows)), min(count, len(rows)))
    test = rows.select(sorted(indices))
    if "label" in rows.column_names:  # an unpaired preference: completions of a prompt stay together
        prompts = list(map(repr, test["prompt"]))
        test = rows.filter(lambda prompt: repr(prompt) in prompts, input_columns="prompt")
    train = without(rows, test)
    if len(train) == 0:
        raise RecipeError(
            f"{count} of {len(rows)} examples are held out, which leaves none to train on",
            where="environment.test_rows",
        )
    return train, test


def without(rows: Any, test: Any) -> Any:
    """Return `rows` without examples whose prompt, with its images, is in `test`."""
    if image_columns(getattr(rows, "column_names", None) or ()):
        held_out_ids = {identity(row) for row in undecoded(test)}
        if not hasattr(rows, "__len__"):
            return rows.filter(lambda row: identity(row) not in held_out_ids)
        return rows.select([i for i, row in enumerate(undecoded(rows)) if identity(row) not in held_out_ids])
    # not a set: its order would change the name of the cached file
    held_out = dict.fromkeys(repr(row["prompt"]) for row in without_images(test))
    return rows.filter(lambda prompt: repr(prompt) not in held_out, input_columns="prompt")
