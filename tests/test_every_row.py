"""What holds for every row of the table, whole: from rewards to loss and gradient, whatever parts it is made of.

A row is looked up in the registry, so a new one is held to all of this without a word here. Where a law does not hold
for a row, the exception says why; one that no longer needs to be made fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from by_hand import REGISTRY, learnt, part, row_of, scored, taught
from hypothesis import find, given, settings
from hypothesis import strategies as st

from rlm_plugins.batch import Batch
from rlm_plugins.builtin import policy_losses
from rlm_plugins.step import Equation, score
from rlm_plugins.testing import batches
from rlm_plugins.testing.moves import dirty, relabelled, reordered, wider, with_empty_row

quick = settings(max_examples=30, deadline=None, database=None, derandomize=True)
TABLE = [p for p in REGISTRY if p.hook == "rlm_algorithms" and p.target.trainer == "grpo"]
ROWS = [p.name for p in TABLE if "@" not in p.name]
"""(What other libraries make of a row is held to their numbers, not to these laws: `test_conventions`.)"""
SMALL: dict[str, dict[str, Any]] = {"clip_cov": {"token_weights": {"share": 0.2, "low": 0.0}}}
"""Knobs with which a row does something to a batch of a few dozen tokens."""


def row(name: str, **changes: Any) -> Equation:
    return row_of(name, **SMALL.get(name, {}) | changes)


def every_row(but: Mapping[str, str] | None = None) -> Any:
    """All rows by name; for those in `but` the test must fail, for the reason given."""
    marks = {name: [pytest.mark.xfail(strict=True, reason=why)] for name, why in (but or {}).items()}
    return pytest.mark.parametrize("name", [pytest.param(name, marks=marks.get(name, ())) for name in ROWS])


@st.composite
def right_or_wrong(draw: st.DrawFn, group_size: int = 6) -> Batch:
    """Batches whose rewards are 0 and 1, as a verifier gives them: what every row can learn from."""
    batch = draw(batches(groups=2, group_size=group_size))
    return replace(batch, rewards=(batch.rewards > 0.3).double())


def on_policy(batch: Batch) -> Batch:
    """π = π_old = π_ref = the engine."""
    return replace(batch, logp=batch.old_logp, ref_logp=batch.old_logp, rollout_logp=batch.old_logp)


def same(found: tuple[torch.Tensor, ...], expected: tuple[torch.Tensor, ...]) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)


@every_row()
def test_every_row_learns_from_some_batch(name: str) -> None:
    """So that the rest says something."""

    def teaches(batch: Batch) -> bool:
        return bool(taught(batch, row(name))[1].any())

    assert find(right_or_wrong(), teaches, settings=settings(database=None, derandomize=True))


# ---- what changes nothing


@every_row()
@quick
@given(batch=right_or_wrong(), columns=st.integers(1, 3), seed=st.integers(0, 9))
def test_padding_changes_nothing_and_learns_nothing(name: str, batch: Batch, columns: int, seed: int) -> None:
    loss, gradient = taught(dirty(wider(batch, columns), seed), row(name))
    tokens = batch.mask.shape[1]
    same((loss, gradient[:, :tokens]), taught(batch, row(name)))
    assert not gradient[:, tokens:].any()
    assert not gradient[:, :tokens][~batch.mask].any()


@every_row(but={"gfpo": "of rows that tie the first ones are kept"})
@quick
@given(batch=right_or_wrong(), data=st.data())
def test_the_order_of_the_rows_changes_nothing(name: str, batch: Batch, data: Any) -> None:
    order = torch.tensor(data.draw(st.permutations(range(len(batch.group)))))
    loss, gradient = taught(batch, row(name))
    same(taught(relabelled(reordered(batch, order)), row(name)), (loss, gradient[order]))


@every_row()
@quick
@given(batch=right_or_wrong())
def test_interleaved_groups_are_groups(name: str, batch: Batch) -> None:
    order = batch.group.argsort(stable=True)
    loss, gradient = taught(batch, row(name))
    same(taught(reordered(batch, order), row(name)), (loss, gradient[order]))


MICRO_BATCH = "its statistics are those of the micro-batch, as in every library"


@every_row(but={"bnpo": "a mean over micro-batches of their means", "clip_cov": MICRO_BATCH, "kl_cov": MICRO_BATCH})
@quick
@given(batch=right_or_wrong(), cut=st.integers(1, 11))
def test_micro_batches_add_up_to_the_whole(name: str, batch: Batch, cut: int) -> None:
    """Scored whole, learnt from in two pieces that know the counts of the whole."""
    whole = scored(batch, row(name))
    rows = torch.arange(len(batch.group))
    pieces = [learnt(reordered(whole, some), row(name)) for some in (rows[:cut], rows[cut:]) if len(some)]
    losses, gradients = zip(*pieces, strict=True)
    same((torch.stack(losses).sum(), torch.cat(gradients)), learnt(whole, row(name)))


@every_row()
@quick
@given(batch=right_or_wrong())
def test_an_empty_row_that_nobody_scored_changes_nothing(name: str, batch: Batch) -> None:
    more = with_empty_row(batch)
    more = replace(more, rewards=more.rewards.clone())
    more.rewards[-1] = torch.nan
    loss, gradient = taught(more, row(name))
    same((loss, gradient[:-1]), taught(batch, row(name)))
    assert not gradient[-1].any()


# ---- what teaches nothing, and what is left of a row on policy


@every_row(
    but={
        **dict.fromkeys(("ppo", "orz", "vc_ppo", "vapo"), "the baseline is the critic's, not the other rows'"),
        "reinforce_pp": "one mean for the whole batch: an easy prompt is praised for being easy",
        "reinforce_pp_baseline": "the mean over tokens, which it takes off last, moves such a group too",
        "srft": "its samples are judged, not compared",
        "spo": "its baseline is the past of the problem, not its group",
    }
)
@quick
@given(batch=right_or_wrong(), level=st.sampled_from([0.0, 1.0]))
def test_a_group_without_spread_has_advantage_zero(name: str, batch: Batch, level: float) -> None:
    """Exactly, and so no gradient but that of a penalty. (Without shapers, which may tell its rows apart.)"""
    tied = batch.group == batch.group[0]
    batch = replace(batch, rewards=batch.rewards.masked_fill(tied, level))
    made = row(name, shapers=(), penalties=())
    assert not score(batch, made).advantages[tied].any()
    assert not taught(batch, made)[1][tied].any()


@every_row()
@quick
@given(batch=right_or_wrong(group_size=1))
def test_a_group_of_one_is_defined(name: str, batch: Batch) -> None:
    loss, gradient = taught(batch, row(name))
    assert loss.isfinite()
    assert gradient.isfinite().all()


@every_row(
    but={
        "gepo": "its w is not 1: the denominator is the group's",
        "clip_cov": "the tokens that are drawn learn nothing",
        "luffy": "nobody knows how likely a demonstration was: f(π) stands for its ratio",
        "srft": "samples are judged, not compared, and demonstrations imitated",
        "hpt": "where no sample is right the demonstration is imitated",
    }
)
@quick
@given(batch=right_or_wrong())
def test_on_policy_every_row_has_the_gradient_of_reinforce(name: str, batch: Batch) -> None:
    """With the row's own advantages and its own sum: ratio, surrogate, weights and penalties say nothing yet."""
    made = row(name)
    loss = part("rlm_policy_losses", policy_losses.reinforce)
    bare = replace(made, importance=None, policy_loss=loss, token_weights=(), penalties=())
    same(taught(on_policy(batch), made)[1:], taught(on_policy(batch), bare)[1:])
