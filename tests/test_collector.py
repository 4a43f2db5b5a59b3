"""Rollout sources: the source of each completion, and valid results of a source."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rlm_plugins.errors import PartError, RecipeError
from rlm_plugins.registry.part import Bound, Part
from rlm_plugins.rollout.collector import RolloutCollector
from rlm_plugins.rollout.group_layout import assign_sources, check_whole_groups, labels


class Trainer:
    """Trainer whose tokens are letters, and whose completions are the prompt's length."""

    tokenizer = "the tokenizer"
    max_completion_length = 4
    state = SimpleNamespace(global_step=7)
    args = SimpleNamespace(seed=3)
    model = SimpleNamespace(get_input_embeddings=lambda: SimpleNamespace(num_embeddings=200))

    def prompt_ids(self, prompts: list[str]) -> list[list[int]]:
        return [[ord(letter) for letter in prompt] for prompt in prompts]

    def generate(self, prompts: list[str]) -> tuple[list[list[int]], list[list[float]] | None]:
        return [[len(prompt)] for prompt in prompts], None


def source(target: Any, **beside: Any) -> Bound:
    return Bound(Part("rlm_rollouts", target.__name__, "guest", target), {}, target, options=beside)


def answers(result: Any) -> Bound:
    def it(prompts: Any) -> Any:
        return result

    return source(it)


def names(inputs: Any, step: int, seed: int) -> dict[str, Any]:
    """Return the token of the problem's name; the policy generates for problem `b`."""
    ids = [None if row["name"] == "b" else [ord(row["name"])] for row in inputs]
    return {"completion_ids": ids, "mask": [[False]] * len(inputs), "when": [step * 10 + seed] * len(inputs)}


def places(source_index: list[int]) -> dict[str, Any]:
    """Return each completion's index in its group as its only token."""
    return {"completion_ids": [[number] for number in source_index]}


PROMPTS = ["x", "x", "x", "yy", "yy", "yy"]
INPUTS = [{"name": name} for name in "aaabbb"]


def test_source_gets_the_last_completions_of_a_group() -> None:
    rows = RolloutCollector([source(names, num_completions=1)], 3)(PROMPTS, INPUTS, 0, Trainer())
    assert rows.completion_ids == [[1], [1], [97], [2], [2], [2]]  # the policy generates the last completion of b
    assert rows.source == [0, 0, 1, 0, 0, 0]
    assert rows.mask == [None, None, [False], None, None, None]
    assert rows.columns == {"when": [None, None, 73, None, None, None]}
    assert rows.prompt_ids == [[120]] * 3 + [[121, 121]] * 3


def test_missing_source_column_keeps_the_data_set_value() -> None:
    inputs = [{"name": "a", "when": 5}] * 3
    rows = RolloutCollector([source(names, num_completions=1)], 3)(PROMPTS[:3], inputs, 0, Trainer())
    assert rows.columns == {"when": [5, 5, 73]}


def test_group_split_over_processes_keeps_its_sources() -> None:
    writers = RolloutCollector([source(places, num_completions=2)], 3)
    whole = writers(PROMPTS, INPUTS, 0, Trainer())
    assert whole.completion_ids == [[1], [0], [1], [2], [0], [1]]
    for first in range(6):
        part = writers(PROMPTS[first:], INPUTS[first:], first, Trainer())
        assert part.source == whole.source[first:]
        assert part.completion_ids == whole.completion_ids[first:]


def test_every_process_calls_every_source() -> None:
    """A collective call of a source must not wait for a process without completions of that source."""
    calls = []

    def it(prompts: Any) -> Any:
        calls.append(len(prompts))
        return {"completion_ids": [[5]] * len(prompts)}

    writers = RolloutCollector([source(it, num_completions=1)], 3)
    writers(PROMPTS[:2], INPUTS[:2], 0, Trainer())
    writers(PROMPTS[2:4], INPUTS[2:4], 2, Trainer())
    assert calls == [0, 1]


def test_sources_share_a_group_from_its_end() -> None:
    def other(prompts: Any) -> Any:
        return {}

    assert assign_sources([source(names, num_completions=2), source(other, num_completions=1)], 5) == [0, 0, 2, 1, 1]
    assert assign_sources([source(names)], 3) == [1, 1, 1]
    # a source without `num_completions` takes what is left, at any position
    assert assign_sources([source(names), source(other, num_completions=1)], 3) == [1, 1, 2]
    assert labels([source(names, **{"as": "mine"}), source(other)]) == ["policy", "mine", "other"]


def test_a_source_called_policy_is_the_policy() -> None:
    def policy(prompts: Any) -> Any:
        return {"completion_ids": [None] * len(prompts)}

    writers = RolloutCollector([source(policy), source(names, num_completions=1)], 3)
    assert writers.labels == ["policy", "names"]
    assert writers(PROMPTS[:3], INPUTS[:3], 0, Trainer()).source == [0, 0, 1]


def test_a_source_that_needs_whole_groups() -> None:
    class Whole:
        whole_groups = True
        __name__ = "whole"

    for sources, share in (([source(Whole())], 8), ([source(names)], 6)):
        check_whole_groups(sources, 4, share)
    with pytest.raises(RecipeError, match="requires whole groups on every process, got 6 completions in groups of 4"):
        check_whole_groups([source(Whole())], 4, 6)


def test_long_completions_are_truncated() -> None:
    long = {"completion_ids": [[1, 2, 3, 4, 5, 6]], "mask": [[True] * 6], "logprobs": [[0.0] * 6]}
    rows = RolloutCollector([answers(long)], 1)(["a"], [{}], 0, Trainer())
    assert (rows.completion_ids, rows.mask, rows.logprobs) == ([[1, 2, 3, 4]], [[True] * 4], [[0.0] * 4])


TWO = {"completion_ids": [[3, 4]]}
"""A completion of two tokens."""


@pytest.mark.parametrize(
    ("result", "count", "words"),
    [
        ({"logprobs": [[0.0], [0.0]]}, 2, "returned 2 logprobs"),
        ({"completion_ids": [[3]]}, 2, "returned 1 completion_ids"),
        ([1, 2], 2, "returned list"),
        ({"completion_ids": [[3]], "mask": [[True, False]]}, 1, "a mask of 2 entries for a completion of 1 tokens"),
        ({"completion_ids": ["abc"]}, 1, "the completion 'abc'.*token ids from 0 to 199"),
        ({"completion_ids": [[3, 200]]}, 1, "the token id 200.*from 0 to 199"),
        ({"completion_ids": [[-1]]}, 1, "the token id -1"),
        (TWO | {"logprobs": [[0.0, float("nan")]]}, 1, "nan in its logprobs: completion 0, token 1.*finite numbers"),
        (TWO | {"mask": [[True, 2]]}, 1, "returned 2 in its mask: completion 0, token 1.*True or False"),
        (TWO | {"mask": [True]}, 1, "returned a mask of type bool for a completion of 2 tokens"),
    ],
)
def test_invalid_outputs_are_rejected(result: Any, count: int, words: str) -> None:
    with pytest.raises(PartError, match="(?s)guest/it.*" + words):
        RolloutCollector([answers(result)], count)(["x"] * count, [{}] * count, 0, Trainer())


def test_valid_per_token_values_are_accepted() -> None:
    extra_columns = {"logprobs": [[None, -1.5]], "mask": [torch.tensor([0, 1])]}
    rows = RolloutCollector([answers({"completion_ids": [[3, 4]], **extra_columns})], 1)(["x"], [{}], 0, Trainer())
    assert (rows.logprobs, rows.mask) == ([[None, -1.5]], [[0, 1]])


@pytest.mark.parametrize(
    ("prefixes", "words"),
    [
        ([[1]], "called `generate` with 1 prefixes for 2 prompts"),
        ([[1], ["a"]], r"called `generate` with the prefix 1, \['a'\].*a list of token ids from 0 to 199"),
        ([[1], [3, 200]], r"the prefix 1, \[3, 200\] with the token id 200.*from 0 to 199"),
    ],
)
def test_invalid_prefixes_are_rejected(prefixes: Any, words: str) -> None:
    def forks(prompts: Any, generate: Any) -> dict[str, Any]:
        return {"completion_ids": generate(prompts, prefixes=prefixes)}

    with pytest.raises(PartError, match="(?s)guest/forks.*" + words):
        RolloutCollector([source(forks)], 2)(["x", "x"], [{}, {}], 0, Trainer())


def test_share_of_a_source_is_num_completions_of_the_group() -> None:
    writers = RolloutCollector([source(names, num_completions=1), source(places, num_completions=2)], 4)
    assert [writers.share(label) for label in ("names", "places", "policy")] == [0.25, 0.5, 0.0]
