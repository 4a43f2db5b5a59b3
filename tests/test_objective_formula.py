"""The objective in Unicode: formulas of docstrings with the values of the knobs, for any part."""

from __future__ import annotations

from typing import Any

import pytest

from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound, Part
from rlm_plugins.report.objective_text import (
    about,
    formula,
    gist,
    legend,
    objective,
    slots_of,
)
from rlm_plugins.specs import Algorithm

REGISTRY = Registry()
EQUATION = ("advantage", "importance", "policy_loss", "penalties")


def bound(function: Any, hook: str = "rlm_policy_losses", **knobs: Any) -> Bound:
    return Part(hook, function.__name__, "test", function).bind(knobs)


def row(name: str) -> str:
    return objective(slots_of(REGISTRY.find("rlm_algorithms", name).target, REGISTRY))


@pytest.mark.parametrize("part", [p for p in REGISTRY if HOOKS[p.hook].key in EQUATION], ids=lambda p: p.full_name)
def test_every_built_in_symbol_has_a_formula(part: Part) -> None:
    assert "=" in formula(part)


@pytest.mark.parametrize("part", [p for p in REGISTRY if p.hook == "rlm_aggregators"], ids=lambda p: p.name)
def test_every_aggregator_docstring_starts_with_its_formula(part: Part) -> None:
    assert gist(part)
    assert "." not in gist(part)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("reinforce", "loss = mean_i( Σₜ [ −Â · log π ] )"),
        ("grpo", "loss = mean_i( Σₜ [ −min(w Â, clip(w, 1−0.2, 1+0.2) Â) + 0.04 Ω ] / nᵢ )"),
        ("dapo", "loss = Σ [ −min(w Â, clip(w, 1−0.2, 1+0.28) Â) ] / Σ n"),
        ("dapo@verl", "loss = Σ [ −min(min(w, 10) Â, clip(w, 1−0.2, 1+0.28) Â) ] / Σ n"),
        ("gppo@klear", "loss = Σ [ −b(w; 1 (1−0.2), 1 (1+0.28), 3) · w/sg(w) · Â ] / Σ n"),
        ("cispo", "loss = Σ [ −sg(clip(w, 1−∞, 1+4)) · Â · log π ] / Σ n"),
        ("dr_grpo", "loss = mean_i( Σₜ [ −min(w Â, clip(w, 1−0.2, 1+0.2) Â) ] ) / L"),
        ("bnpo", "loss = micro_batch_token_mean[ −min(w Â, clip(w, 1−0.2, 1+0.2) Â) ]"),
    ],
)
def test_rows(name: str, expected: str) -> None:
    assert row(name) == expected


def test_knobs_of_an_algorithm_appear_in_the_legend() -> None:
    lines = legend(slots_of(REGISTRY.find("rlm_algorithms", "rloo").target, REGISTRY))
    assert ("r′", "rₜ −= 0.03 (log π_old − log π_ref)", "kl_in_reward(beta=0.03)") in lines


def capped(ratio: Any, advantages: Any, *, cap: float = 2.0, gamma: float = 0.5, soft: bool = True) -> Any:
    """Return a bounded loss: ℓ = −min(w, cap) · Â · γ. Eq. 3.

    A second paragraph, with ℓ = something else.
    """
    return -ratio.clamp(max=cap) * advantages


def silent(ratio: Any, advantages: Any) -> Any:
    return -ratio * advantages


def fading(logp: Any, *, half_life: float = 100.0) -> Any:
    """Return weights that halve every `half_life` tokens."""
    return logp


def late(logp: Any) -> Any:
    """c = t / T: late tokens count more."""
    return logp


def drift(logp: Any, old_logp: Any) -> Any:
    """Ω = (log π − log π_old)² / 2."""
    return logp - old_logp


def slots(**changes: Any) -> dict[str, Any]:
    found = dict(slots_of(REGISTRY.find("rlm_algorithms", "dapo").target, REGISTRY))
    return {**found, "shapers": [], "filters": [], **changes}


def test_the_clause_with_the_formula_is_found_and_cut() -> None:
    assert formula(bound(capped).part) == "ℓ = −min(w, cap) · Â · γ"
    assert about(bound(capped).part) == "Return a bounded loss: ℓ = −min(w, cap) · Â · γ"
    assert objective(slots(policy_loss=bound(capped, cap=3.0))) == "loss = Σ [ −min(w, 3) · Â · 0.5 ] / Σ n"


def test_part_without_formula_is_shown_by_name() -> None:
    assert objective(slots(policy_loss=bound(silent))) == "loss = Σ [ silent(ratio, advantages) ] / Σ n"
    assert legend(slots(policy_loss=bound(silent)))[1] == ("ℓ", "", "silent")


def test_weights_and_costs_are_numbered_when_there_are_several() -> None:
    weights = [bound(fading, "rlm_token_weights"), bound(late, "rlm_token_weights")]
    costs = [
        Bound(p.part, p.knobs, p.target, options={"beta": b}) for p, b in ((bound(drift, "rlm_penalties"), 0.5),) * 2
    ]
    costs[1] = Bound(costs[1].part, costs[1].knobs, costs[1].target, options={"beta": -0.25})
    chosen = slots(policy_loss=bound(silent), token_weights=weights, penalties=costs)
    assert objective(chosen) == "loss = Σ [ c₁ · c₂ · silent(ratio, advantages) + 0.5 Ω₁ − 0.25 Ω₂ ] / Σ n"
    assert [line[0] for line in legend(chosen)] == ["1/Z", "ℓ", "c₁", "c₂", "Ω₁", "Ω₂", "w", "Â"]


def test_algorithm_with_unknown_part_is_an_error() -> None:
    with pytest.raises(Exception, match="unknown part"):
        slots_of(Algorithm(about="", source="", advantage="nobody"), REGISTRY)
