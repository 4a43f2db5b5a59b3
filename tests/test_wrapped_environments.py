"""Environments around another one, completions that only vote, and rankings as pairs."""

from __future__ import annotations

import datasets
import pytest
import torch
from rlm_algorithms.filters import first_k
from rlm_algorithms.wrapped_environments import budgets, held_out_questions

from rlm_plugins.data.trl_formats import to_recipe_columns
from rlm_plugins.errors import RecipeError


def test_held_out_questions_are_the_training_questions() -> None:
    spec = held_out_questions(base="addition", knobs={"test_rows": 9}, rows=4)
    assert len(spec.train) == 4
    assert list(spec.train) == list(spec.test)
    with pytest.raises(RecipeError, match="'addition' has no held-out examples"):
        held_out_questions(base="addition", knobs={"test_rows": 0})


def test_budget_is_in_prompt_and_column() -> None:
    knobs = {"train_rows": 200, "test_rows": 3}
    spec = budgets(base="addition", knobs=knobs, low=5, high=7, text=" in {tokens}")
    assert {row["target_length"] for row in spec.train} == {5, 6, 7}
    for row in [*spec.train, *spec.test]:
        assert row["prompt"][-1]["content"].endswith(f"=? in {row['target_length']}")
    assert spec == budgets(base="addition", knobs=knobs, low=5, high=7, text=" in {tokens}")
    coarse = budgets(base="addition", knobs=knobs, low=5, high=10, step=2)
    assert {row["target_length"] for row in coarse.train} == {5, 7, 9}
    with pytest.raises(RecipeError, match="got low 8 above high 7"):
        budgets(base="addition", low=8, high=7)
    with pytest.raises(RecipeError, match="does not say how many tokens"):
        budgets(base="addition", text="briefly")


def test_first_completions_of_interleaved_groups_are_kept() -> None:
    group = torch.tensor([3, 1, 3, 1, 3, 1, 1])
    assert first_k(group, k=2).tolist() == [True, True, True, True, False, False, False]


def test_ranking_becomes_all_its_pairs() -> None:
    rows = datasets.Dataset.from_list(
        [{"prompt": "p", "ranking": ["a", "b", "c"]}, {"prompt": "q", "ranking": ["d", "e"]}]
    )
    found = [(row["prompt"], row["chosen"], row["rejected"]) for row in to_recipe_columns(rows)]
    assert found == [("p", "a", "b"), ("p", "a", "c"), ("p", "b", "c"), ("q", "d", "e")]
