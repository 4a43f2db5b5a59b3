"""Rollout sources: who writes which row, and what a source may answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rlm_plugins.errors import PartError, RecipeError
from rlm_plugins.registry.parts import Bound, Part
from rlm_plugins.training.writing import Writers, labels, owners


class Trainer:
    """Reads prompts as their letters and writes their length, as an `EquationTrainer` would."""

    tokenizer = "the tokenizer"
    state = SimpleNamespace(global_step=7)
    args = SimpleNamespace(seed=3)

    def prompt_ids(self, prompts: list[str]) -> list[list[int]]:
        return [[ord(letter) for letter in prompt] for prompt in prompts]

    def write(self, prompts: list[str]) -> tuple[list[list[int]], None]:
        return [[len(prompt)] for prompt in prompts], None


def source(target: Any, **beside: Any) -> Bound:
    return Bound(Part("rlm_rollouts", target.__name__, "guest", target), {}, target, beside=beside)


def answers(result: Any) -> Bound:
    def it(prompts: Any) -> Any:
        return result

    return source(it)


def names(inputs: Any, step: int, seed: int) -> dict[str, Any]:
    """Writes the problem's name; leaves the problem `b` to the policy."""
    ids = [None if row["name"] == "b" else [ord(row["name"])] for row in inputs]
    return {"completion_ids": ids, "mask": [[False]] * len(inputs), "when": [step * 10 + seed] * len(inputs)}


PROMPTS = ["x", "x", "x", "yy", "yy", "yy"]
INPUTS = [{"name": name} for name in "aaabbb"]


def test_the_last_rows_of_a_group_are_a_sources_and_the_policy_writes_the_rest() -> None:
    rows = Writers([source(names, rows=1)], 3)(PROMPTS, INPUTS, 0, Trainer())
    assert rows.completion_ids == [[1], [1], [97], [2], [2], [2]]  # the last row of b was left open
    assert rows.source == [0, 0, 1, 0, 0, 0]
    assert rows.mask == [None, None, [False], None, None, None]
    assert rows.columns == {"when": [None, None, 73, None, None, None]}
    assert rows.prompt_ids == [[120]] * 3 + [[121, 121]] * 3


def test_a_group_split_over_processes_keeps_its_writers() -> None:
    rows = Writers([source(names, rows=1)], 3)(PROMPTS[:2], INPUTS[:2], 4, Trainer())
    assert rows.source == [0, 1]


def test_sources_share_a_group_from_its_end() -> None:
    def other(prompts: Any) -> Any:
        return {}

    assert owners([source(names, rows=2), source(other, rows=1)], 5) == [0, 0, 2, 1, 1]
    assert owners([source(names), source(other, **{"as": "second"})][:1], 3) == [1, 1, 1]
    assert labels([source(names, **{"as": "mine"}), source(other)]) == ["policy", "mine", "other"]


def test_more_rows_than_a_group_has() -> None:
    with pytest.raises(RecipeError, match=r"source 2 .names. wants 2 rows of a group, 1 are free"):
        owners([source(names, rows=2), source(names, rows=2)], 3)


def test_two_sources_of_one_label() -> None:
    with pytest.raises(RecipeError, match="two sources go by 'names'"):
        labels([source(names), source(names)])


@pytest.mark.parametrize(
    ("result", "found"),
    [
        ({"logprobs": [[0.0], [0.0]]}, "returned 2 logprobs"),
        ({"completion_ids": [[3]]}, "returned 1 completion_ids"),
        ({"completion_ids": [[3], [4]], "tries": [1]}, "returned 2 completion_ids, 1 tries"),
        ([1, 2], "returned list"),
        (None, "returned NoneType"),
    ],
)
def test_rows_that_are_none(result: Any, found: str) -> None:
    with pytest.raises(PartError, match="guest/it") as error:
        Writers([answers(result)], 2)(["a", "b"], [{}, {}], 0, Trainer())
    assert found in str(error.value)
    assert "a list of 2 rows each" in str(error.value)
