"""Algorithms with other completions than the policy's samples, each against its formula, token by token."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from fixtures_equations import equation, equation_of, loss_and_gradient, part
from hypothesis import given
from rlm_algorithms import ALGORITHMS
from rlm_algorithms.filters import gate
from rlm_algorithms.group_advantages import greedy_baseline
from rlm_testing import batches

from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.dispatch import term_counts
from rlm_plugins.equation.step import score
from rlm_plugins.errors import RecipeError
from rlm_plugins.registry import Registry

REGISTRY = Registry()
Tensor = torch.Tensor


# ------------------------------------------------------------------ the equations as their papers write them


def of_group(batch: Batch, i: int, kind: str | None = None) -> list[int]:
    """Return the completions of the group of i, of one source if given."""
    same = [j for j in range(len(batch.group)) if batch.group[j] == batch.group[i]]
    return [j for j in same if kind is None or batch.sources[kind][j]]


def centered(batch: Batch, i: int, rows: list[int], *, scaled: bool) -> float:
    """Return rᵢ − mean, divided by the std (n − 1) of `rows` if `scaled`; 0 if all are equal."""
    rewards = batch.rewards[rows].tolist()
    if len(set(rewards)) < 2:
        return 0.0
    mean = sum(rewards) / len(rewards)
    std = math.sqrt(sum((r - mean) ** 2 for r in rewards) / (len(rewards) - 1)) + 1e-4 if scaled else 1.0
    return (batch.rewards[i].item() - mean) / std


def tokens(batch: Batch, i: int) -> list[int]:
    return batch.mask[i].nonzero().squeeze(1).tolist()


def clipped(w: Tensor, advantage: float, low: float, high: float) -> Tensor:
    return -torch.min(w * advantage, w.clamp(1 - low, 1 + high) * advantage)


def remax(batch: Batch, logp: Tensor) -> Tensor:
    total = torch.zeros((), dtype=logp.dtype)
    for i in range(len(batch.group)):
        greedy = of_group(batch, i, "greedy")
        if i not in greedy and greedy:
            baseline = sum(batch.rewards[greedy].tolist()) / len(greedy)
            total = total - (batch.rewards[i] - baseline) * logp[i, tokens(batch, i)].sum()
    return total / batch.num_sequences


def clipped_sum(batch: Batch, logp: Tensor, high: float, *, scaled: bool) -> Tensor:
    """Return the sum of the clipped losses of all tokens, of any source."""
    total = torch.zeros((), dtype=logp.dtype)
    for i in range(len(batch.group)):
        advantage = centered(batch, i, of_group(batch, i), scaled=scaled)
        for t in tokens(batch, i):
            total = total + clipped((logp[i, t] - batch.old_logp[i, t]).exp(), advantage, 0.2, high)
    return total


def rlep(batch: Batch, logp: Tensor) -> Tensor:
    return clipped_sum(batch, logp, 0.28, scaled=True) / batch.num_tokens


def luffy(batch: Batch, logp: Tensor) -> Tensor:
    total = torch.zeros((), dtype=logp.dtype)
    for i in range(len(batch.group)):
        advantage = centered(batch, i, of_group(batch, i), scaled=False)
        for t in tokens(batch, i):
            p = logp[i, t].exp()
            if batch.sources["policy"][i]:
                total = total - (logp[i, t] - batch.old_logp[i, t]).exp() * advantage
            if batch.sources["demonstrations"][i]:
                total = total - p / (p + 0.1) * advantage
            total = total - 0.001 * batch.entropy[i, t]
    return total / batch.num_sequences / batch.max_completion_length


def token_count(batch: Batch, kind: str) -> int:
    return max(1, sum(len(tokens(batch, i)) for i in range(len(batch.group)) if batch.sources[kind][i]))


def srft(batch: Batch, logp: Tensor) -> Tensor:
    """Return the sum of three expectations: E_samples[−s log π] + E_demos[−0.5 e^−H log π] + E_demos[−π Â]."""
    sampled, shown = (torch.zeros((), dtype=logp.dtype) for _ in range(2))
    for i in range(len(batch.group)):
        advantage = centered(batch, i, of_group(batch, i), scaled=True)
        entropy = batch.entropy[i, tokens(batch, i)].mean().item() if tokens(batch, i) else 0.0
        for t in tokens(batch, i):
            if batch.sources["policy"][i]:
                sampled = sampled - (0.1 * math.exp(entropy) if batch.rewards[i] >= 1 else -1.0) * logp[i, t]
            if batch.sources["demonstrations"][i]:
                shown = shown - 0.5 * math.exp(-entropy) * logp[i, t] - logp[i, t].exp() * advantage
    return sampled / token_count(batch, "policy") + shown / token_count(batch, "demonstrations")


def hpt(batch: Batch, logp: Tensor) -> Tensor:
    """Return α L_RL + β L_SFT: Dr. GRPO over all samples, and 1/|τ*| Σ −log π over all demonstrations."""
    sampled, shown = (torch.zeros((), dtype=logp.dtype) for _ in range(2))
    for i in range(len(batch.group)):
        demonstrations = of_group(batch, i, "demonstrations")
        others = [j for j in of_group(batch, i) if j not in demonstrations]
        helped = bool(demonstrations) and not any(batch.rewards[j] >= 1 for j in others)
        if helped and i in demonstrations and tokens(batch, i):
            shown = shown - logp[i, tokens(batch, i)].mean()
        if not helped and i in others and batch.sources["policy"][i]:
            advantage = centered(batch, i, others, scaled=False)
            for t in tokens(batch, i):
                sampled = sampled + clipped((logp[i, t] - batch.old_logp[i, t]).exp(), advantage, 0.2, 0.2)
    sampled = sampled / max(1, int(batch.sources["policy"].sum())) / batch.max_completion_length
    return sampled + shown / max(1, int(batch.sources["demonstrations"].sum()))


def prefix_rft(batch: Batch, logp: Tensor) -> Tensor:
    """Return Dr. GRPO on all completions; what is trained of a prefix is in the mask of its source."""
    return clipped_sum(batch, logp, 0.2, scaled=False) / batch.num_sequences / batch.max_completion_length


def relift(batch: Batch, logp: Tensor) -> Tensor:
    """Return Σ −w Â over samples of groups with a right one, and the mean −log π of demonstrations of the others."""
    sampled, shown, entropy = (torch.zeros((), dtype=logp.dtype) for _ in range(3))
    samples = examples = 0
    for i in range(len(batch.group)):
        demonstrations = of_group(batch, i, "demonstrations")
        others = [j for j in of_group(batch, i) if j not in demonstrations]
        helped = bool(demonstrations) and not any(batch.rewards[j] >= 1 for j in others)
        if helped != (i in demonstrations):
            continue
        entropy = entropy - batch.entropy[i, tokens(batch, i)].sum()
        if helped:
            shown, examples = shown - logp[i, tokens(batch, i)].sum(), examples + len(tokens(batch, i))
        elif batch.sources["policy"][i] and tokens(batch, i):
            ratios = (logp[i, tokens(batch, i)] - batch.old_logp[i, tokens(batch, i)]).exp()
            sampled, samples = sampled - centered(batch, i, others, scaled=False) * ratios.sum(), samples + 1
    sampled = sampled / max(1, samples) / batch.max_completion_length
    return sampled + shown / max(1, examples) + 0.001 * entropy / batch.num_tokens


def chord(batch: Batch, logp: Tensor) -> Tensor:
    """Return (1 − μ) L_GRPO over the tokens of samples plus μ L_SFT over those of demonstrations, μ 0.1."""
    sampled, shown = (torch.zeros((), dtype=logp.dtype) for _ in range(2))
    for i in range(len(batch.group)):
        advantage = centered(batch, i, of_group(batch, i), scaled=True)
        for t in tokens(batch, i):
            if batch.sources["policy"][i]:
                sampled = sampled + clipped((logp[i, t] - batch.old_logp[i, t]).exp(), advantage, 0.2, 0.2)
            if batch.sources["demonstrations"][i]:
                p = batch.logp[i, t].exp()
                shown = shown - p * (1 - p) * logp[i, t]
    return 0.9 * sampled / token_count(batch, "policy") + 0.1 * shown / token_count(batch, "demonstrations")


PAPERS = {loss.__name__: loss for loss in (remax, rlep, luffy, srft, hpt, prefix_rft, relift, chord)}


def test_every_algorithm_with_sources_has_its_paper_here() -> None:
    assert {name for name, algorithm in ALGORITHMS.items() if algorithm.rollouts} == set(PAPERS)


@pytest.mark.parametrize("name", PAPERS)
@given(batch=batches())
def test_algorithm_equals_the_formula_of_its_paper(name: str, batch: Batch) -> None:
    logp = batch.logp.clone().requires_grad_()
    loss = PAPERS[name](batch, logp)
    (gradient,) = torch.autograd.grad(loss, logp, allow_unused=True) if loss.requires_grad else (None,)
    symbols = equation_of(name)
    found = loss_and_gradient(score(batch, symbols), symbols)
    torch.testing.assert_close(found[0], loss.detach())
    torch.testing.assert_close(found[1], torch.zeros_like(logp) if gradient is None else gradient)


# ------------------------------------------------------------------ identities


@given(batches())
def test_positive_example_term_is_the_mean_over_tokens_of_correct_completions(batch: Batch) -> None:
    """VAPO, arXiv 2504.05118 eq. 12: −μ / Σ_{correct} |oᵢ| · Σ log π."""
    mean = REGISTRY.find("rlm_aggregators", "token_mean").bind({})
    imitation = REGISTRY.find("rlm_penalties", "nll").bind({})
    imitation = replace(imitation, options={"beta": 0.1, "min_reward": 0.5, "aggregator": mean})
    alone = equation(policy_loss=part("rlm_policy_losses", silent), aggregator=mean, penalties=[imitation])
    right = batch.mask & (batch.rewards >= 0.5).unsqueeze(1)
    step = replace(batch, term_counts=term_counts(batch, alone.terms()), step_batch=None, step_batch_rows=None)
    loss, gradient = loss_and_gradient(step, alone)
    torch.testing.assert_close(loss, -0.1 * (batch.logp * right).sum() / right.sum().clamp(min=1))
    torch.testing.assert_close(gradient, -0.1 * right.to(gradient.dtype) / right.sum().clamp(min=1))


def silent(logp: Tensor) -> Tensor:
    """Compute ℓ = 0 · log π."""
    return 0.0 * logp


@given(batches())
def test_remax_with_dense_rewards_uses_returns(batch: Batch) -> None:
    """The advantage is Σ over l ≥ t of the token rewards, minus the return of the greedy completion."""
    dense = batch.loss.where(batch.mask, 0.0)
    actual = greedy_baseline(batch.rewards, dense, batch.group, batch.mask, batch.sources)
    for i in range(len(batch.group)):
        greedy, group = of_group(batch, i, "greedy"), of_group(batch, i)
        compared = greedy and i not in greedy and len(set(batch.rewards[group].tolist())) > 1
        for t in range(batch.mask.shape[1]):
            expected = (dense[i, t:].sum() - batch.rewards[greedy].mean()).item() if compared else 0.0
            assert actual[i, t].item() == pytest.approx(expected if batch.mask[i, t] else 0.0)


def test_missing_greedy_completion_is_an_error() -> None:
    row = torch.ones(1)
    with pytest.raises(RecipeError, match="unknown source 'gredy'") as error:
        greedy_baseline(row, row[None], row.long(), row[None].bool(), {"greedy": row > 0}, source="gredy")
    assert "did you mean 'greedy'" in str(error.value)


@pytest.mark.parametrize(
    ("rewards", "knobs", "kept"),
    [
        ([0.0, 0.0, 1.0], {}, [False, False, True]),
        ([0.0, 1.0, 1.0], {}, [True, True, False]),
        ([0.0, 1.0, 1.0], {"at_most": 1}, [False, False, True]),
        ([0.0, 0.5, 0.0], {"threshold": 0.5}, [True, True, False]),
        ([9.0, 9.0, 9.0], {"reward": "accuracy"}, [False, False, True]),
    ],
)
def test_the_gate(rewards: list[float], knobs: dict[str, Any], kept: list[bool]) -> None:
    shown = {"demonstrations": torch.tensor([False, False, True])}
    named = {"accuracy": torch.tensor([0.0, math.nan, 1.0])}
    found = gate(torch.tensor(rewards), named, torch.zeros(3).long(), shown, **knobs)
    assert found.tolist() == kept
