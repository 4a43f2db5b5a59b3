"""Token weights, each against its definition written as loops."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rlm_algorithms.entropy_control import clip_cov
from rlm_algorithms.importance_ratios import truncated_importance, trust_gate
from rlm_testing import batches
from trl import GRPOTrainer

from rlm_plugins.builtin.token_weights import top_entropy
from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.step import with_own_step_batch


def test_top_entropy_is_trls_mask_bit_by_bit() -> None:
    stub = SimpleNamespace(
        accelerator=SimpleNamespace(pad_across_processes=lambda x, **_: x, gather=lambda x: x),
    )
    for seed in range(50):
        noise = torch.Generator().manual_seed(seed)
        entropy = torch.rand(8, 33, generator=noise) ** 4 * 3
        mask = torch.arange(33) < torch.randint(0, 34, (8, 1), generator=noise)
        share = (0.2, 0.5, 0.05)[seed % 3]
        theirs = GRPOTrainer.get_high_entropy_mask(stub, entropy, mask.int(), 1 - share)
        window = Batch(entropy=entropy, mask=mask)
        assert torch.equal(top_entropy(window, torch.arange(8), mask, share=share), theirs.float())


def test_equal_or_missing_rollout_logprobs_have_weight_one() -> None:
    old, mask = torch.tensor([[-1.0, -2.0]]), torch.tensor([[True, True]])
    silent = torch.tensor([[-1.0, torch.nan]])
    for weight in (truncated_importance, trust_gate):
        assert weight(old, silent, mask).tolist() == [[1.0, 1.0]]
        assert weight(old, silent, mask, level="sequence").tolist() == [[1.0]]


def band(batch: Batch, low: float, high: float) -> set[tuple[int, int]]:
    """Return the positions that may be drawn, by definition."""
    live = [(i, t) for i, t in batch.mask.nonzero().tolist()]
    advantages = batch.advantages.expand_as(batch.logp)
    mean_logp = sum(batch.logp[p].item() for p in live) / max(1, len(live))
    mean_advantage = sum(advantages[p].item() for p in live) / max(1, len(live))
    places = set()
    for p in live:
        w, a = batch.ratio.expand_as(batch.logp)[p].item(), advantages[p].item()
        clipped = (a > 0 and w > 1.2) or (a < 0 and w < 0.8)
        if low < (batch.logp[p].item() - mean_logp) * (a - mean_advantage) < high and not clipped:
            places.add(p)
    return places


@given(batches(group_size=6), st.floats(0.05, 1.0))
def test_sampled_tokens_lie_in_the_band_with_the_given_share(batch: Batch, share: float) -> None:
    knobs = {"share": share, "low": 0.05, "high": 2.0, "epsilon": 0.2}
    batch = with_own_step_batch(batch)
    weight = clip_cov(batch.step_batch, batch.step_batch_rows, batch.mask, 0, **knobs)
    drawn = {(i, t) for i, t in (weight == 0).nonzero().tolist()}
    candidates = band(batch, 0.05, 2.0)
    assert drawn <= candidates
    assert len(drawn) == min(len(candidates), max(1, int(share * int(batch.mask.sum()))))


def test_token_sampling_is_deterministic() -> None:
    noise = torch.Generator().manual_seed(0)
    window = Batch(
        logp=-torch.rand(64, 500, generator=noise),
        advantages=torch.randn(64, 1, generator=noise),
        mask=torch.ones(64, 500, dtype=torch.bool),
    )

    def draw(window: Batch, step: int, share: float = 0.05) -> torch.Tensor:
        return clip_cov(window, torch.arange(64), window.mask, step, share=share, low=0.0, high=9.0) == 0

    drawn = draw(window, 3)
    assert torch.equal(drawn, draw(window, 3))
    assert drawn.sum() == 1600
    rounded = replace(window, logp=window.logp - 1e-6 * torch.rand(64, 500, generator=noise))
    assert (drawn & draw(rounded, 3)).sum() > 1590  # rounding moves the band's edge, not the draw
    assert (drawn & draw(window, 4)).sum() < 400  # by chance about a tenth: 16000 candidates
    early = drawn[:, :250].float().mean() / drawn.float().mean()
    assert early == pytest.approx(1.0, abs=0.1)
    unlikely = window.logp < window.logp.median()
    in_band = draw(window, 3, share=1.0)
    shares = [drawn[in_band & half].float().mean().item() for half in (unlikely, ~unlikely)]
    assert shares[0] == pytest.approx(shares[1], rel=0.15)


def test_without_a_ratio_nothing_is_clipped() -> None:
    mask = torch.ones(1, 3, dtype=torch.bool)
    window = Batch(logp=torch.tensor([[-0.1, -4.0, -0.1]]), advantages=torch.tensor([[1.0, -2.0, 1.0]]), mask=mask)
    far = replace(window, ratio=torch.tensor([[9.0, 1.0, 1.0]]))
    weights = [clip_cov(w, torch.tensor([0]), mask, 0, share=1.0).tolist() for w in (window, far)]
    assert weights == [[[0.0, 1.0, 0.0]], [[1.0, 1.0, 0.0]]]
