"""The convention card: the variants of other libraries of an algorithm, with example values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rlm_lab.explain import explain
from rlm_lab.explain_text import render

from rlm_plugins.registry import Registry
from rlm_plugins.specs import base_name

REGISTRY = Registry()
ROWS = {part.name: part.target for part in REGISTRY if part.hook == "rlm_algorithms"}
CONVENTIONS = sorted(name for name in ROWS if "@" in name and not name.startswith(("gkd_top@", "sdft@")))
"""Those whose data the examples have: `gkd_top` and `sdft` need distributions of a teacher."""


def explained(name: str) -> Any:
    return next(entry for entry in explain(name, REGISTRY) if entry["kind"] == "algorithm")


def test_the_winner_s_advantage_in_every_convention() -> None:
    """One of eight completions is correct."""
    found = {line["name"]: round(line["winner"], 3) for line in explained("grpo")["card"]["conventions"]}
    assert found == {
        "grpo": 2.474,
        "grpo@trl": 2.474,
        "grpo@verl": 2.475,
        "grpo@openrlhf": 2.475,
        "grpo@oat": 2.475,
        "grpo@roll": 2.475,
        "grpo@population": 2.646,
        "grpo@nemo": 1.0,
        "grpo@centered": 0.875,
    }


@pytest.mark.parametrize("name", ["grpo", "grpo@verl", "builtin/grpo@verl", "algorithm/grpo@verl"])
def test_card_shows_differences_and_the_active_convention(name: str) -> None:
    card = explained(name)["card"]
    assert card["running"] == name.rpartition("/")[2]
    plain, verl = (next(line for line in card["conventions"] if line["name"] == n) for n in ("grpo", "grpo@verl"))
    assert plain["differs"] == []
    assert {(change["name"], change["knob"]): (change["before"], change["after"]) for change in verl["differs"]} == {
        ("sequence_mean", None): ("sequence_mean(empty_completions=excluded)", "token_mean"),
        ("clip", "delta"): ("null (∞)", 3.0),
        ("kl", "bound"): (None, 10.0),
        ("group_relative", "eps"): (1e-4, 1e-6),
        ("group_relative", "singleton"): ("zero", "reward"),
    }
    text = render(explained(name))
    marked = [line.split()[1] for line in text.splitlines() if line.startswith("  >")]
    assert marked == [card["running"]]
    assert "sequence_mean(empty_completions=excluded) → token_mean" in text
    assert json.loads(json.dumps(card))["conventions"][0]["name"] == "grpo"


@pytest.mark.parametrize("name", CONVENTIONS)
def test_every_convention_changes_a_number_or_declares_otherwise(name: str) -> None:
    """If no example shows the difference (extremes, groups of one), both algorithms are equal on them."""
    lines = {line["name"]: line for line in explained(name)["card"]["conventions"]}
    plain, this = lines[base_name(name)], lines[name]
    keys = ("winner", "loss", "gradient")
    assert all(this[key] is not None for key in keys)
    same = all(this[key] == pytest.approx(plain[key], rel=1e-9) for key in keys)
    assert same == (name == "cispo@trl")


def test_algorithm_without_conventions_has_no_card() -> None:
    assert explained("opo")["card"]
    assert explained("bnpo")["card"] == {}
    assert "conventions" not in render(explained("bnpo"))
