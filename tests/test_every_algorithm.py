"""Laws that hold for every algorithm, from rewards to loss and gradient, whatever its parts.

Algorithms come from the registry, so a new one is tested without a change here. An exception to a law states its
reason, and fails once it is not needed. All tests share the same batches,
and the loss and gradient of each.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from fixtures_equations import REGISTRY, equation_of, loss_and_gradient, loss_and_gradient_from_rewards, part, scored
from hypothesis import HealthCheck, Phase, given, settings
from rlm_testing import batches
from rlm_testing.strategies import (
    select_in_order,
    widened,
    with_empty_completion,
    with_other_group_numbers,
    with_other_padding,
)

from rlm_plugins.builtin import policy_losses
from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.dispatch import term_counts
from rlm_plugins.equation.equation import Equation
from rlm_plugins.equation.step import score

TABLE = [p for p in REGISTRY if p.hook == "rlm_algorithms" and p.target.trainer == "grpo"]
ROWS = [p.name for p in TABLE if "@" not in p.name]
"""Conventions of other libraries are compared with their numbers in `test_conventions`, not with these laws."""
WITHOUT_REWARD = ("opd", "iw_opd", "mopd", "gkd", "gkd_top", "sdft", "opsd")
SMALL: dict[str, dict[str, Any]] = {
    "clip_cov": {"token_weights": {"share": 0.2, "low": 0.0}},
    "gfpo": {"filters": {"k": 2}},
    "pass_at_k": {"advantage": {"k": 2}},
    "m2po": {"token_weights": {"threshold": 0.01}},
    "hierarchical": {"advantage": {"role": "format"}},
    "kpop": {"token_weights": {"high": 0.002}},
    "flash_reinforce": {"token_weights": {"high": 0.001}},
}
"""Knobs with which an algorithm has an effect on a batch of a few dozen tokens."""


def small_equation(name: str, **changes: Any) -> Equation:
    return equation_of(name, **SMALL.get(name, {}) | changes)


def every_algorithm(but: Mapping[str, str] | None = None) -> Any:
    """Parametrize a test by all algorithms; for those in `but` it must fail, for the reason given."""
    marks = {name: [pytest.mark.xfail(strict=True, reason=why)] for name, why in (but or {}).items()}
    return pytest.mark.parametrize("name", [pytest.param(name, marks=marks.get(name, ())) for name in ROWS])


def right_or_wrong(batch: Batch) -> Batch:
    """Replace rewards by 0 and 1, as a verifier returns them, which suit every algorithm."""
    return replace(batch, rewards=(batch.rewards > 0.3).double())


def drawn(strategy: Any, count: int) -> list[Batch]:
    """Draw `count` batches as a property test does, the simplest first; the same ones each time."""
    found: list[Batch] = []
    options = {"phases": (Phase.generate,), "suppress_health_check": list(HealthCheck), "deadline": None}
    settings(max_examples=count, derandomize=True, database=None, **options)(
        given(strategy)(lambda batch: found.append(batch))
    )()
    return found


BATCHES = [right_or_wrong(batch) for batch in drawn(batches(groups=2, group_size=6), 24)]
OF_ONE = [right_or_wrong(batch) for batch in drawn(batches(groups=2, group_size=1), 12)]


@functools.cache
def loss_and_gradient_of_batch(name: str, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return loss and gradient of an algorithm on one of the batches."""
    return loss_and_gradient_from_rewards(BATCHES[number], small_equation(name))


def on_policy(batch: Batch) -> Batch:
    """Return the batch with π = π_old = π_ref = π_rollout."""
    return replace(batch, logp=batch.old_logp, ref_logp=batch.old_logp, rollout_logp=batch.old_logp)


def same(found: tuple[torch.Tensor, ...], expected: tuple[torch.Tensor, ...]) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)


@every_algorithm()
def test_every_algorithm_has_a_gradient_on_some_batch(name: str) -> None:
    """Otherwise the other tests would compare zeros."""
    assert any(loss_and_gradient_of_batch(name, number)[1].any() for number in range(len(BATCHES)))


# ---- what changes nothing


@every_algorithm(but={"echo": "it learns from the tokens of the environment, which are outside of the mask"})
def test_padding_changes_nothing_and_learns_nothing(name: str) -> None:
    equation = small_equation(name)
    for number, batch in enumerate(BATCHES):
        loss, gradient = loss_and_gradient_from_rewards(
            with_other_padding(widened(batch, 1 + number % 3), seed=number), equation
        )
        tokens = batch.mask.shape[1]
        same((loss, gradient[:, :tokens]), loss_and_gradient_of_batch(name, number))
        assert not gradient[:, tokens:].any()
        assert not gradient[:, :tokens][~batch.mask].any()


@every_algorithm(but={"gfpo": "of rows that tie the first ones are kept"})
def test_order_of_completions_does_not_matter(name: str) -> None:
    equation = small_equation(name)
    for number, batch in enumerate(BATCHES):
        order = torch.randperm(len(batch.group), generator=torch.Generator().manual_seed(number))
        loss, gradient = loss_and_gradient_of_batch(name, number)
        same(
            loss_and_gradient_from_rewards(with_other_group_numbers(select_in_order(batch, order)), equation),
            (loss, gradient[order]),
        )


@every_algorithm(but={"bnpo": "a mean over micro-batches of their means"})
def test_micro_batches_add_up_to_the_whole(name: str) -> None:
    """Two micro-batches of a scored, shuffled batch have the counts and the step batch of the whole."""
    equation = small_equation(name)
    for number, batch in enumerate(BATCHES):
        whole, cut = scored(batch, equation), 1 + number % 11
        whole = replace(whole, term_counts=term_counts(whole, equation.terms()))
        order = torch.randperm(len(batch.group), generator=torch.Generator().manual_seed(number))
        pieces = [
            loss_and_gradient(select_in_order(whole, some), equation)
            for some in (order[:cut], order[cut:])
            if len(some)
        ]
        losses, gradients = zip(*pieces, strict=True)
        loss, gradient = loss_and_gradient_of_batch(name, number)
        same((torch.stack(losses).sum(), torch.cat(gradients)), (loss, gradient[order]))


@every_algorithm(but={"hpt": "its means are over all prompts, also those of which nothing is trained on"})
def test_empty_unscored_completion_changes_nothing(name: str) -> None:
    equation = small_equation(name)
    for number, batch in enumerate(BATCHES):
        more = with_empty_completion(batch)
        more = replace(more, rewards=more.rewards.clone())
        more.rewards[-1] = torch.nan
        loss, gradient = loss_and_gradient_from_rewards(more, equation)
        same((loss, gradient[:-1]), loss_and_gradient_of_batch(name, number))
        assert not gradient[-1].any()


# ---- zero advantages, and on-policy gradients


@every_algorithm(
    but={
        **dict.fromkeys(("ppo", "orz", "vc_ppo", "vapo"), "the baseline is the critic's, not the other rows'"),
        "reinforce_pp": "one mean for the whole batch: an easy prompt is praised for being easy",
        "reinforce_pp_baseline": "the mean over tokens, which it takes off last, moves such a group too",
        "srft": "its samples are judged, not compared",
        "spo": "its baseline is the past of the problem, not its group",
        "flowrl": "its loss is a squared flow, in which the advantage is one term",
        **dict.fromkeys((*WITHOUT_REWARD, "sdpo"), "the teacher decides, and no reward is compared"),
        "flash_reinforce": "one mean for the whole batch",
        "a2po": "its baseline is the value of the reference policy",
        "dro": "the square of the log-ratio remains",
        **dict.fromkeys(("topr", "psr", "nsr", "w_reinforce"), "outcomes are weighted, not compared"),
    }
)
def test_a_group_without_spread_has_advantage_zero(name: str) -> None:
    """It is exactly zero, so only penalties have a gradient. Shapers are left out: they could change the rewards."""
    equation = small_equation(name, shapers=(), penalties=())
    for number, batch in enumerate(BATCHES):
        tied = batch.group == batch.group[0]
        named = {name: r.masked_fill(tied, number % 2) for name, r in batch.named_rewards.items()}
        batch = replace(batch, rewards=batch.rewards.masked_fill(tied, number % 2), named_rewards=named)
        assert not score(batch, equation).advantages[tied].any()
        assert not loss_and_gradient_from_rewards(batch, equation)[1][tied].any()


@every_algorithm()
def test_a_group_of_one_is_defined(name: str) -> None:
    equation = small_equation(name)
    for batch in OF_ONE:
        loss, gradient = loss_and_gradient_from_rewards(batch, equation)
        assert loss.isfinite()
        assert gradient.isfinite().all()


@every_algorithm(
    but={
        "gepo": "its w is not 1: the denominator is the group's",
        "clip_cov": "the tokens that are drawn learn nothing",
        "luffy": "nobody knows how likely a demonstration was: f(π) stands for its ratio",
        "srft": "samples are judged, not compared, and demonstrations imitated",
        "hpt": "where no sample is right the demonstration is imitated",
        "vapo": "right rows are imitated as well",
        "flowrl": "its loss is a squared flow, in which the advantage is one term",
        "relift": "demonstrations are imitated",
        **dict.fromkeys(("sdpo", "gkd", "gkd_top", "sdft", "opsd"), "the advantage is not read: the teacher decides"),
        "rlsd": "tokens are weighted by the teacher",
        "sdar": "tokens that the teacher prefers are pulled up as well",
        "chord": "demonstrations are imitated",
        "a2po": "a squared difference, in which the advantage is one term",
        "echo": "what the environment writes is learned",
        "real": "the gradient is a softmax over the group, whatever the size of Â",
    }
)
def test_on_policy_gradient_equals_reinforce(name: str) -> None:
    """With its own advantages and aggregator: ratio, clip, token weights and penalties have no effect yet."""
    equation = small_equation(name)
    loss = part("rlm_policy_losses", policy_losses.reinforce)
    bare = replace(equation, importance=None, policy_loss=loss, token_weights=(), penalties=())
    for batch in map(on_policy, BATCHES):
        same(loss_and_gradient_from_rewards(batch, equation)[1:], loss_and_gradient_from_rewards(batch, bare)[1:])
