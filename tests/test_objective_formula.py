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

from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.dispatch import on_last_token
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
        ("spo", "loss = Σ [ −min(min(w, 10) Â, clip(w, 1−0.2, 1+0.28) Â) ] / Σ n"),
        ("reinforce_pp_baseline", "loss = Σ [ −min(w Â, clip(w, 1−0.2, 1+0.2) Â) + 0.01 Ω ] / Σ n"),
        ("gppo", "loss = Σ [ −b · Â ] / Σ n"),
        ("clip_cov", "loss = Σ [ c · −min(w Â, clip(w, 1−1, 1+1) Â) ] / Σ n"),
        ("kl_cov", "loss = Σ [ −w Â + 1 Ω ] / Σ n"),
        ("bnpo", "loss = mean_m( Σ [ −min(w Â, clip(w, 1−0.2, 1+0.2) Â) ] / Σ n )"),
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

EVALUATED = ("importance", "policy_loss", "penalties", "token_weights", "aggregator", "advantage")
IN_WORDS = {"clip_cov", "m2po", "reference_value", "vine", "tree", "step_relative", "turn_relative"}
"""Parts that draw or sort tokens, sample completions, or read steps, turns or a tree."""
IN_PROSE = {
    "singleton",
    "masked_tokens",
    "counted",
    "over",
    "negative",
    "empty_completions",
    "threshold",
    "lam_critic",
    "length",
}
"""Knobs that the text beside a formula explains."""
OF_RIGHT, WITH_ROLES = ("pass_at_k", "signed"), ("role_relative", "role_baseline", "role_whitened")
SHOWN = [part for part in REGISTRY if HOOKS[part.hook].key in EVALUATED and part.name not in IN_WORDS]


def variants(part: Part) -> list[Bound]:
    """Return a part with each value of each choice, and with other numbers for the others."""
    values: list[dict[str, Any]] = [{}]
    required = {name: 0.3 for name, field in part.knobs.model_fields.items() if field.is_required()}
    for name, field in part.knobs.model_fields.items():
        if name in IN_PROSE or (part.name, name) == ("per_reward", "weights"):
            continue
        kind = field.annotation
        choices = [x for x in get_args(kind) if isinstance(x, str)]
        choices += [True, False] if kind is bool else []
        choices += [None, 0.4] if type(None) in get_args(kind) else []
        choices += [0.4] if f"{{{name} 0.0 →" in formula(part) else []
        choices += [field.default / 2] if isinstance(field.default, float) and field.default else []
        values += [{name: value} for value in choices]
    return [part.bind(required | value) for value in values]


def scored(batch: Batch, part: Part) -> Batch:
    """Return a batch for an advantage: every completion has a token, and rewards are in the range of the part."""
    mask = batch.mask | (torch.arange(batch.mask.shape[1]) == 0)
    rewards = (batch.rewards > 0).double() if part.name in OF_RIGHT else batch.rewards
    rewards = rewards.abs() if part.name == "max_rl" else rewards
    named = {**batch.named_rewards, "accuracy": rewards}
    named |= {"role": batch.group % 2 + torch.arange(len(mask)) % 2.0} if part.name in WITH_ROLES else {}
    dense = batch.values.where(mask, 0.0)
    fields = {"token_rewards": on_last_token(rewards, mask), "dense_rewards": dense, "named_rewards": named}
    return replace(batch, mask=mask, rewards=rewards, **fields)


def compared(batch: Batch, part: Part) -> torch.Tensor:
    """Return True (B, T) where a formula holds; `otb` has no baseline beyond the second longest completion."""
    if part.name != "optimal_token_baseline":
        return batch.mask
    lengths = [batch.mask[batch.group == g].sum(1).sort().values for g in batch.group]
    second = torch.tensor([int(x[-2]) if len(x) > 1 else 0 for x in lengths])
    return batch.mask & (batch.mask.cumsum(1) <= second.unsqueeze(1))


@pytest.mark.parametrize("part", SHOWN, ids=lambda part: part.full_name)
@given(data=st.data())
@settings(max_examples=4)
def test_a_displayed_formula_has_the_value_and_gradient_of_its_part(part: Part, data: st.DataObject) -> None:
    batch = at_two_tokens(data.draw(batches(step_batch=False).filter(lambda x: x.mask.shape[1] > 2 and x.mask.any())))
    key = HOOKS[part.hook].key
    columns = 1 if part.name in ("trajectory_balance", "value_regression", "real") else None  # Â of a completion
    batch = replace(batch, rollout_logp=batch.rollout_logp.clamp(max=-1e-3), old_logp=batch.old_logp.clamp(max=-1e-3))
    ratio, advantages = (x[:, :columns] for x in ((batch.logp - batch.old_logp).exp(), batch.advantages))
    has_teacher = torch.ones(len(batch.mask), dtype=torch.bool)
    batch = replace(batch, ratio=ratio, advantages=advantages, has_teacher=has_teacher)
    counts = {"num_tokens": batch.mask.sum(), "num_sequences": batch.mask.any(1).sum(), "num_micro_batches": 1}
    batch = replace(batch, **{name: torch.as_tensor(max(int(x), 1)).double() for name, x in counts.items()})
    q = ((batch.old_logp * batch.mask).sum(1) / batch.mask.sum(1).clamp(min=1)).exp() * batch.mask.any(1)
    same = (batch.group.unsqueeze(1) == batch.group).double()
    batch = with_own_step_batch(replace(batch, expected_logp=((same @ q**2) / (same @ q)).log()))
    batch = at_two_tokens(replace(batch, logp=batch.logp.detach().clone().requires_grad_()))
    batch = scored(batch, part) if key == "advantage" else batch
    for one in variants(part):
        symbols = symbols_of(
            batch,
            in_loss=key != "advantage",
            unbiased=one.knobs.get("unbiased", True),
            by_prompt=part.name == "prompt_mean",
        )
        symbols |= {"f_old": 1.0, "c_old": one.knobs.get("start"), "v̂": one.knobs.get("start"), "b": 0.0}
        if part.name in ("divergence", "top_divergence"):
            symbols["D_β(π_T, π)"] = batch.divergence_of(one.knobs["beta"])
        if key == "penalties":
            one.update(batch)
        result = one(batch).exp() if key == "importance" else one(batch)
        result = result[0] if isinstance(result, tuple) else result
        result = result.unsqueeze(1) if result.dim() == 1 else result
        text = f"1/Z = {meaning(one)}" if key == "aggregator" else meaning(one)
        for value in sides(text, symbols):
            shown = torch.as_tensor(value).double().expand(result.shape)
            keep = torch.ones_like(result, dtype=torch.bool)
            if result.dim():
                keep = compared(batch, part) if result.shape[1] > 1 else batch.mask.any(1, keepdim=True)
            if key == "advantage":
                keep = keep & shown.isfinite()  # 0 / 0, where the part has 0
            assert torch.allclose(shown[keep], result[keep].double()), (meaning(one), one.knobs)
            if result.requires_grad and shown.requires_grad and not one.knobs.get("straight_through"):
                slopes = [torch.autograd.grad(x[keep].sum(), batch.logp, retain_graph=True)[0] for x in (shown, result)]
                assert torch.allclose(*slopes), (meaning(one), one.knobs)
