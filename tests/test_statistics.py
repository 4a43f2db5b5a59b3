"""Tensor statistics against loops in plain Python, and those of the whole distribution."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import fixtures_critic
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rlm_fast import linear_layers as sizes
from rlm_fast.passes import PackedPasses
from rlm_fast.speed import NO_SPEED
from rlm_testing import batches
from torch.distributions import Categorical, kl_divergence

from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.statistics import Groups, discounted, nanstd, next_live, whiten
from rlm_plugins.registry.part import Part
from rlm_plugins.trainer import EquationTrainer
from rlm_plugins.trainer.passes import prompt_completion, token_statistics


@given(batches())
def test_group_table_contains_every_value_once(batch: Batch) -> None:
    groups = Groups(batch.logp[:, 0], batch.group)
    assert torch.equal(groups.flatten(groups.table), batch.logp[:, 0])
    for line, label in zip(groups.table, batch.group.unique(), strict=True):
        there = line[~line.isnan()]
        assert torch.equal(there, batch.logp[batch.group == label, 0])  # in the order of the completions


@given(batches())
def test_group_statistic_is_broadcast_to_its_completions(batch: Batch) -> None:
    groups = Groups(batch.rewards, batch.group)
    spread = groups.flatten(groups.has_spread())
    for row, label in enumerate(batch.group):
        assert spread[row] == (len(set(batch.rewards[batch.group == label].tolist())) > 1)


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=9), st.integers(0, 3))
def test_nanstd_is_the_sample_standard_deviation(numbers: list[float], missing: int) -> None:
    x = torch.tensor([*numbers, *[torch.nan] * missing], dtype=torch.float64)
    assert nanstd(x, 0).item() == pytest.approx(statistics.stdev(numbers), abs=1e-12)


def test_nanstd_of_fewer_than_two_is_nan() -> None:
    assert nanstd(torch.tensor([1.0, torch.nan]), 0).isnan()


@given(batches())
def test_whitened_numbers_have_mean_zero_and_variance_one(batch: Batch) -> None:
    found = whiten(batch.values, batch.mask)
    live = found[batch.mask]
    assert not found[~batch.mask].any()
    if len(set(batch.values[batch.mask].tolist())) > 1:
        assert live.mean().item() == pytest.approx(0, abs=1e-9)
        assert live.var().item() == pytest.approx(1, rel=1e-3)  # eps reduces it slightly
    else:
        assert not live.any()


@given(batches(), st.sampled_from([0.0, 0.5, 0.9, 1.0]))
def test_discounted_and_following_skip_untrained_tokens(batch: Batch, factor: float) -> None:
    total, after = discounted(batch.values, factor, batch.mask), next_live(batch.values, batch.mask)
    for row, mask in enumerate(batch.mask):
        for t in range(len(mask)):
            ahead = [batch.values[row, s].item() for s in range(t, len(mask)) if mask[s]]
            expected = math.fsum(factor**i * x for i, x in enumerate(ahead))
            assert total[row, t].item() == pytest.approx(expected, abs=1e-9)
            assert after[row, t].item() == _first_after(batch, row, t)


def _first_after(batch: Batch, row: int, t: int) -> Any:
    later = [s for s in range(t + 1, batch.mask.shape[1]) if batch.mask[row, s]]
    return batch.values[row, later[0]].item() if later else 0.0


HEARD: list[tuple[torch.Size, ...]] = []


def sure(
    rewards: Any, self_certainty: Any, top2_margin: Any, sum_pi_squared: Any, entropy: Any, old_logp: Any, mask: Any
) -> Any:
    """Require every statistic of the pass before the update."""
    HEARD.append(tuple(x.shape for x in (self_certainty, top2_margin, sum_pi_squared, entropy, old_logp, mask)))
    return rewards + (self_certainty + top2_margin).where(mask, 0.0).sum(1)


def critic_trainer(folder: Path, **changes: Any) -> EquationTrainer:
    shaper = Part("rlm_shapers", "sure", "test", sure).bind({})
    relative = fixtures_critic.part("rlm_advantages", "group_relative")
    return fixtures_critic.trainer(
        folder, None, fixtures_critic.equation(advantage=relative, penalties=[], shapers=[shaper]), **changes
    )


@pytest.mark.parametrize("packed", [False, True])
def test_statistics_do_not_depend_on_padding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool) -> None:
    trainer, out = critic_trainer(tmp_path, temperature=0.7, per_device_train_batch_size=8), {}
    trainer.model.eval()
    passes = PackedPasses(
        replace(NO_SPEED, padding_free=packed), trainer.components.context, trainer.components.passes._trl_forward
    )
    trainer.components.old_logprobs.passes = passes
    assert passes.is_padding_free(*prompt_completion(fixtures_critic.rows(trainer))) is packed
    for name in ("LOGITS", "TOKENS"):
        monkeypatch.setattr(sizes, name, 1)  # one at a time
    out |= fixtures_critic.rows(trainer)
    stock, entropy, _ = passes.of(trainer.model, out, compute_entropy=True)
    calls = []
    handle = trainer.model.register_forward_hook(lambda *_: calls.append(1))
    found = trainer.components.old_logprobs.for_scoring(out)
    handle.remove()
    assert len(calls) == 1
    here = out["completion_mask"].bool()
    torch.testing.assert_close(out["old_per_token_logps"][here], stock[here])
    torch.testing.assert_close(found["entropy"][here], entropy[here])
    for row in range(2):
        prompt, answered = out["prompt_ids"][row], out["completion_ids"][row][here[row]]
        logits = trainer.model(torch.cat([prompt, answered]).unsqueeze(0)).logits[0, len(prompt) - 1 : -1] / 0.7
        step = Categorical(logits=logits)
        uniform = Categorical(logits=torch.zeros_like(logits))
        torch.testing.assert_close(
            found["self_certainty"][row][here[row]], kl_divergence(uniform, step), rtol=1e-4, atol=1e-5
        )
        first, second = step.probs.sort(descending=True).values[:, :2].unbind(1)
        torch.testing.assert_close(found["top2_margin"][row][here[row]], first - second, rtol=1e-4, atol=1e-5)
        energy = step.probs.square().sum(-1)
        torch.testing.assert_close(found["sum_pi_squared"][row][here[row]], energy, rtol=1e-4, atol=1e-5)
    assert not any(x[~here].any() for x in found.values())


def test_shaper_gets_requested_statistics(tmp_path: Path) -> None:
    HEARD.clear()
    critic_trainer(tmp_path, max_steps=1).train()
    assert HEARD
    assert all(len(set(shapes)) == 1 for shapes in HEARD)


def test_images_are_refused(tmp_path: Path) -> None:
    trainer = critic_trainer(tmp_path)
    with pytest.raises(Exception, match="require completions without images"):
        trainer.components.old_logprobs.for_scoring({**fixtures_critic.rows(trainer), "pixel_values": torch.zeros(1)})


def test_excluded_token_gives_finite_statistics() -> None:
    statistics = token_statistics(torch.tensor([[[0.0, float("-inf")]]]), torch.tensor([[0]]))
    assert all(x.isfinite().all() for x in statistics.values())
    assert statistics["top2_margin"].item() == 1.0
    assert statistics["entropy"].item() == 0.0
