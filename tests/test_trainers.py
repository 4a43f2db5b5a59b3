"""What the engines do with parts of the recipe before TRL sees them."""

from __future__ import annotations

from typing import Any

import pytest

from rlm_plugins.builtin.trainers import _order
from rlm_plugins.errors import RecipeError
from rlm_plugins.registry.parts import Part
from rlm_plugins.stage import Stage
from rlm_plugins.world import World


def stage(**parts: Any) -> Stage:
    """A stage of which only these parts matter."""
    source: Any = None
    return Stage("01-x", {}, None, {}, World(train=[]), source, **parts)


@pytest.mark.parametrize(
    ("indices", "words"), [([], "chose 0 rows"), ([0, 3], "chose row 3"), ([0] * 4, "chose 4 rows")]
)
def test_an_order_that_is_none(indices: list[int], words: str) -> None:
    def sampler(size: int) -> list[int]:
        return indices

    order = _order(stage(sampler=Part("rlm_samplers", "it", "guest", sampler).bind({})))
    with pytest.raises(RecipeError, match=words):
        order(3, 0, 0)
