"""Algorithms that differ in Â, w, ℓ, c or βΩ, from rewards to gradient, against their papers."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
import torch
from fixtures_equations import equation_of, loss_and_gradient, loss_and_gradient_from_rewards, scored
from hypothesis import given
from rlm_testing import batches

from rlm_plugins.builtin.trainers import GRPO
from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.statistics import expected_logp
from rlm_plugins.specs import EnvironmentSpec
from rlm_plugins.stage import RunState, Stage

REWARDS = [[1.0, 0.0, 0.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]
LENGTHS = [[5, 2, 4, 3, 1, 4], [3, 3, 5, 1, 2, 4], [2, 5, 1]]
Tensor = torch.Tensor
Rows = list[float]


def example() -> Batch:
    """Return three groups, one of them all correct, with completions of 1 to 5 tokens and an updated policy."""
    generator = torch.Generator().manual_seed(0)
    old, ref, moved, spread = (torch.randn(15, 5, generator=generator, dtype=torch.float64) for _ in range(4))
    old = -old.abs() - 0.1
    return Batch(
        group=torch.tensor([0] * 6 + [1] * 6 + [2] * 3),
        mask=torch.arange(5) < torch.tensor([*chain(*LENGTHS)]).unsqueeze(1),
        max_completion_length=5,
        rewards=torch.tensor([*chain(*REWARDS)], dtype=torch.float64),
        named_rewards={},
        logp=(old + 0.3 * moved).requires_grad_(),
        old_logp=old,
        ref_logp=old + 0.3 * ref,
        entropy=spread.abs(),
    )


# ---- Â of a batch, in plain Python


def grouped(say: Callable[[Rows, list[int]], Rows]) -> Rows:
    """Return `say(rewards, lengths)` of all groups, concatenated."""
    return [x for rewards, lengths in zip(REWARDS, LENGTHS, strict=True) for x in say(rewards, lengths)]


def centred(rewards: Rows, _: object = None) -> Rows:
    return [r - statistics.mean(rewards) for r in rewards]


def spread_out(rows: Rows) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64).unsqueeze(1).expand(15, 5)


def lite_ppo(_: Batch) -> Tensor:
    return spread_out(grouped(centred)) / (statistics.stdev(chain(*REWARDS)) + 1e-4)


def gpg(_: Batch) -> Tensor:
    """Return the advantages of GPG: three of fifteen completions are in a group with zero advantage."""
    return spread_out(grouped(centred)) * 15 / 12


def gfpo(_: Batch) -> Tensor:
    """Return the advantages of GFPO, NaN for a completion that was filtered out."""

    def say(rewards: Rows, lengths: list[int]) -> Rows:
        kept = sorted(range(len(rewards)), key=lambda i: lengths[i])[:4]
        among = [rewards[i] for i in kept]
        spread = statistics.stdev(among) + 1e-4
        return [(r - statistics.mean(among)) / spread if i in kept else torch.nan for i, r in enumerate(rewards)]

    return spread_out(grouped(say))


# ---- loss


def clipped(batch: Batch, advantages: Tensor) -> Tensor:
    """Return the token mean of PPO's clipped loss, over the completions that have an advantage."""
    compared = batch.mask & ~advantages.isnan()
    ratio, gain = (batch.logp - batch.old_logp).exp()[compared], advantages[compared]
    return -torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()


def per_token(batch: Batch, advantages: Tensor) -> Tensor:
    return -(advantages * batch.logp)[batch.mask].mean()


def with_k3_and_entropy(batch: Batch, advantages: Tensor) -> Tensor:
    compared = batch.mask & ~advantages.isnan()
    apart = batch.logp - batch.ref_logp
    paid = (-apart).exp() + apart - 1 - batch.entropy
    return clipped(batch, advantages) + 0.001 * paid[compared].mean()


EXPECTED = {"lite_ppo": (lite_ppo, clipped), "gpg": (gpg, per_token), "gfpo": (gfpo, with_k3_and_entropy)}


@pytest.mark.parametrize("name", EXPECTED)
def test_algorithm_equals_its_formula(name: str) -> None:
    """Value and gradient are compared."""
    batch = example()
    advantage, loss = EXPECTED[name]
    expected = loss(batch, advantage(batch))
    (wanted,) = torch.autograd.grad(expected, batch.logp)
    actual, gradient = loss_and_gradient_from_rewards(batch, equation_of(name))
    torch.testing.assert_close(actual, expected.detach())
    torch.testing.assert_close(gradient, wanted)
    assert gradient.any()


@given(batches())
def test_gepo_uses_the_group_expectation(batch: Batch) -> None:
    """The expectation is Σq²/Σq; completions without tokens belong to no group."""
    actual = expected_logp(batch.old_logp, batch.mask, batch.group).exp()
    for row, label in enumerate(batch.group):
        members = [i for i in range(len(batch.group)) if batch.group[i] == label and batch.mask[i].any()]
        q = [batch.old_logp[i, batch.mask[i]].exp().log().mean().exp().item() for i in members]
        expected = sum(x * x for x in q) / sum(q) if q else 1.0
        assert actual[row].item() == pytest.approx(expected)


@given(batches())
def test_gepo_of_groups_of_one_is_gspo(batch: Batch) -> None:
    """The advantages are computed before, since a group of one would have none."""
    gepo = equation_of("gepo")
    alone = scored(replace(batch, group=torch.arange(len(batch.group))), gepo)
    alone = replace(alone, advantages=batch.advantages[:, :1])
    torch.testing.assert_close(
        loss_and_gradient(alone, gepo),
        loss_and_gradient(alone, equation_of("gspo", policy_loss={"epsilon": 0.2, "epsilon_high": None})),
    )


@pytest.mark.parametrize(
    ("name", "switched"), [("flash_rl", {"vllm_importance_sampling_correction": False}), ("gppo", {})]
)
def test_inference_engine_is_not_corrected_twice(name: str, switched: dict[str, bool], monkeypatch: Any) -> None:
    """A weight with the inference engine's log-probs disables TRL's own correction; no other part does."""

    class Enough(Exception):
        pass

    def arguments(stage: Any, run: Any, **machine: Any) -> None:
        raise Enough({key: value for key, value in machine.items() if key.startswith("vllm")})

    monkeypatch.setattr("rlm_plugins.trainer.options.arguments", arguments)
    stage = Stage("01-x", {}, GRPO(), {}, EnvironmentSpec(train=[]), source=None, equation=equation_of(name))  # type: ignore[arg-type]
    with pytest.raises(Enough) as stopped:
        GRPO().build(stage, RunState())
    assert stopped.value.args[0] == switched
