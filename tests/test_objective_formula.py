"""The objective in Unicode: formulas of docstrings with the values of the knobs, for any part."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from formula_evaluator import sides, symbols_of
from hypothesis import given, settings
from hypothesis import strategies as st
from rlm_testing.strategies import at_two_tokens, batches

from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.equation.step import with_own_step_batch
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound, Part
from rlm_plugins.report.objective_text import about, formula, gist, legend, meaning, objective, slots_of
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
        ("gppo@klear", "loss = Σ [ −min(b, 3) · Â where Â < 0, else −b · Â ] / Σ n"),
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


# ---- a displayed formula gives the numbers of its part

LOSS = ("importance", "policy_loss", "penalties")
IN_WORDS = {"real", "top_divergence", "kl_cov", "adaptive_kl", "adaptive_entropy"}
IN_WORDS |= {"sampled_distillation", "clipped_distillation", "value_regression", "environment_nll"}
"""Parts whose formula selects tokens in words or has state."""
EVALUATED = [part for part in REGISTRY if HOOKS[part.hook].key in LOSS and part.name not in IN_WORDS]


def variants(part: Part) -> list[Bound]:
    """Return a part with each value of each choice, and with a number for each knob that may be null."""
    values: list[dict[str, Any]] = [{}]
    required = {name: 0.3 for name, field in part.knobs.model_fields.items() if field.is_required()}
    for name, field in part.knobs.model_fields.items():
        kind = field.annotation
        choices = [x for x in get_args(kind) if isinstance(x, str)]
        choices += [True, False] if kind is bool else []
        choices += [None, 0.4] if type(None) in get_args(kind) else []
        values += [{name: value} for value in choices]
    return [part.bind(required | value) for value in values]


@pytest.mark.parametrize("part", EVALUATED, ids=lambda part: part.full_name)
@given(data=st.data())
@settings(max_examples=4)
def test_a_displayed_formula_has_the_value_and_gradient_of_its_part(part: Part, data: st.DataObject) -> None:
    batch = at_two_tokens(data.draw(batches(step_batch=False)))
    columns = 1 if part.name == "trajectory_balance" else None  # its w and Â are of the completion
    ratio, advantages = (x[:, :columns] for x in ((batch.logp - batch.old_logp).exp(), batch.advantages))
    has_teacher = torch.ones(len(batch.mask), dtype=torch.bool)
    batch = replace(batch, ratio=ratio, advantages=advantages, has_teacher=has_teacher)
    q = ((batch.old_logp * batch.mask).sum(1) / batch.mask.sum(1).clamp(min=1)).exp() * batch.mask.any(1)
    same = (batch.group.unsqueeze(1) == batch.group).double()
    batch = with_own_step_batch(replace(batch, expected_logp=((same @ q**2) / (same @ q)).log()))
    batch = at_two_tokens(replace(batch, logp=batch.logp.detach().clone().requires_grad_()))
    for one in variants(part):
        result = one(batch).exp() if HOOKS[part.hook].key == "importance" else one(batch)
        keep = batch.mask if result.shape[1] == batch.mask.shape[1] else batch.mask.any(1, keepdim=True)
        symbols = symbols_of(batch)
        if part.name == "divergence":
            symbols["D_β(π_T, π)"] = batch.divergence_of(one.knobs["beta"])
        for value in sides(meaning(one), symbols):
            shown = value.expand(result.shape)
            assert torch.allclose(shown[keep], result[keep]), (meaning(one), one.knobs)
            if result.requires_grad and shown.requires_grad and not one.knobs.get("straight_through"):
                slopes = [torch.autograd.grad(x[keep].sum(), batch.logp, retain_graph=True)[0] for x in (shown, result)]
                assert torch.allclose(*slopes), (meaning(one), one.knobs)
