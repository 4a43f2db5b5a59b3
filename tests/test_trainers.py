"""What the engines do with parts of the recipe before TRL sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rlm_plugins.builtin.trainers import _order, _rollouts
from rlm_plugins.errors import PartError, RecipeError
from rlm_plugins.registry.parts import Part
from rlm_plugins.stage import Stage
from rlm_plugins.world import World


def stage(**parts: Any) -> Stage:
    """A stage of which only these parts matter."""
    source: Any = None
    return Stage("01-x", {}, None, {}, World(train=[]), source, **parts)


ROWS = {"prompt_ids": [[1], [2]], "completion_ids": [[3], [4]], "logprobs": [[0.0], [0.0]]}


def writer(result: Any) -> Callable[..., Any]:
    def rollouts(prompts: Any, trainer: Any) -> Any:
        return result

    return _rollouts(stage(rollouts=Part("rlm_rollouts", "it", "guest", rollouts).bind({})))


def test_rollouts_come_through_with_their_extra_columns() -> None:
    rows = {**ROWS, "tries": [1, 2]}
    assert writer(rows)(["a", "b"], None) is rows


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ({k: v for k, v in ROWS.items() if k != "logprobs"}, "returned 2 prompt_ids, 2 completion_ids"),
        ({**ROWS, "completion_ids": [[3]]}, "returned 2 prompt_ids, 1 completion_ids, 2 logprobs"),
        ([1, 2], "returned list"),
        (None, "returned NoneType"),
    ],
)
def test_rollouts_that_are_none(rows: Any, found: str) -> None:
    with pytest.raises(PartError, match="guest/it") as error:
        writer(rows)(["a", "b"], None)
    assert found in str(error.value)
    assert "a list of 2 rows each" in str(error.value)


@pytest.mark.parametrize(
    ("indices", "words"), [([], "chose 0 rows"), ([0, 3], "chose row 3"), ([0] * 4, "chose 4 rows")]
)
def test_an_order_that_is_none(indices: list[int], words: str) -> None:
    def sampler(size: int) -> list[int]:
        return indices

    order = _order(stage(sampler=Part("rlm_samplers", "it", "guest", sampler).bind({})))
    with pytest.raises(RecipeError, match=words):
        order(3, 0, 0)
