"""Statistics of the whole optimizer step: loss and gradient are equal for every split."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from fixtures_equations import equation, part
from fixtures_trainer import trainer
from hypothesis import given
from hypothesis import strategies as st
from rlm_algorithms import entropy_control
from rlm_testing import batches
from rlm_testing.strategies import select_in_order

from rlm_plugins.builtin import importance, policy_losses
from rlm_plugins.builtin import token_weights as weights
from rlm_plugins.builtin.token_weights import quantile
from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.equation import Equation
from rlm_plugins.equation.step import build_step_batch, objective, with_own_step_batch
from rlm_plugins.errors import PartError
from rlm_plugins.registry import Registry

REGISTRY = Registry()
TERMS = {
    "clip_cov": {"token_weights": [part("rlm_token_weights", entropy_control.clip_cov, share=0.3, low=0.0)]},
    "top_entropy": {"token_weights": [part("rlm_token_weights", weights.top_entropy, share=0.3)]},
    "kl_cov": {"penalties": [replace(part("rlm_penalties", entropy_control.kl_cov, share=0.3), options={"beta": 2.0})]},
}


def equation_with_term(name: str) -> Equation:
    """Return an equation with one term over the whole step."""
    return equation(
        importance=part("rlm_importance", importance.token),
        policy_loss=part("rlm_policy_losses", policy_losses.clip, epsilon=0.9),
        **TERMS[name],
    )


def loss_and_gradient(batch: Batch, parts: Equation) -> tuple[torch.Tensor, torch.Tensor]:
    logp = batch.logp.clone().requires_grad_()
    loss = objective(replace(batch, logp=logp, rollout_weight=None), parts)
    return loss.detach(), torch.autograd.grad(loss, logp)[0]


@pytest.mark.parametrize("name", TERMS)
@given(batches(group_size=6), st.integers(1, 12), st.integers(1, 12))
def test_split_into_micro_batches_changes_nothing(name: str, batch: Batch, first: int, second: int) -> None:
    batch, rows = with_own_step_batch(batch), torch.arange(len(batch.group))
    pieces = [rows[:first], rows[first : first + second], rows[first + second :]]
    found = [
        loss_and_gradient(select_in_order(batch, piece), equation_with_term(name)) for piece in pieces if len(piece)
    ]
    whole = loss_and_gradient(batch, equation_with_term(name))
    torch.testing.assert_close(torch.stack([loss for loss, _ in found]).sum(), whole[0])
    torch.testing.assert_close(torch.cat([gradient for _, gradient in found]), whole[1])


def test_the_ratio_of_the_whole_step_is_known() -> None:
    seen: list[torch.Tensor] = []

    def curious(step_batch: Batch, step_batch_rows: torch.Tensor, ratio: torch.Tensor) -> torch.Tensor:
        seen.extend([step_batch.ratio, step_batch.ratio[step_batch_rows]])
        return torch.ones_like(ratio)

    batch = replace(with_own_step_batch(_small()), old_logp=torch.tensor([[-1.0, -2.0], [-2.0, -9.0]]))
    batch.step_batch.old_logp = batch.old_logp
    parts = equation_with_term("clip_cov")
    objective(
        select_in_order(batch, torch.tensor([1])), replace(parts, token_weights=[part("rlm_token_weights", curious)])
    )
    torch.testing.assert_close(seen[0], torch.tensor([[1.0, 1.0], [torch.e, 1.0]]))  # padding: 1
    assert seen[1].tolist() == seen[0][1:].tolist()


def _small() -> Batch:
    logp = torch.tensor([[-1.0, -2.0], [-1.0, -1.0]], requires_grad=True)
    return Batch(
        group=torch.tensor([0, 0]),
        mask=torch.tensor([[True, True], [True, False]]),
        advantages=torch.tensor([[1.0], [-1.0]]),
        logp=logp,
        old_logp=logp.detach(),
        num_tokens=torch.tensor(3.0),
        step=0,
    )


def test_step_batch_must_come_from_the_trainer() -> None:
    """A micro-batch is never used as the step batch by mistake."""
    with pytest.raises(PartError, match="requires `step_batch`, which this configuration does not provide"):
        objective(_small(), equation_with_term("clip_cov"))


def test_micro_batches_keep_the_order_of_generation() -> None:
    """Two processes have two shuffled micro-batches each; those of the other process arrive by `gather`."""
    rows = {0: [torch.tensor([5, 0]), torch.tensor([3, 1])], 1: [torch.tensor([4, 7]), torch.tensor([6, 2])]}

    def numbered(places: torch.Tensor) -> Batch:
        return Batch(group=places, sources={"policy": places > 3}, num_tokens=torch.tensor(9.0))

    def gather(x: torch.Tensor) -> torch.Tensor:
        other = torch.cat(rows[1]) if x.dtype != torch.bool else torch.cat(rows[1]) > 3
        return torch.cat([x, other])

    whole, found = build_step_batch([numbered(r) for r in rows[0]], rows[0], gather, process=0)
    assert whole.group.tolist() == list(range(8))
    assert whole.sources["policy"].tolist() == [False] * 4 + [True] * 4
    assert [x.tolist() for x in found] == [[5, 0], [3, 1]]
    assert whole.num_tokens == 9.0


@given(st.lists(st.floats(0, 4, width=32), min_size=1, max_size=30), st.floats(0, 1))
def test_quantile_is_torchs(values: list[float], share: float) -> None:
    x = torch.tensor(values, dtype=torch.float32)
    assert quantile(x, share) == x.quantile(share)


class Trained:
    """A trainer after its run, with the loss of every micro-batch, its step batch, and the number of forward passes."""

    def __init__(self, folder: Path, parts: Equation, **changes: Any) -> None:
        self.losses: list[float] = []
        self.seen: list[tuple[Batch, torch.Tensor]] = []
        self.reads = 0
        made = trainer(folder, parts, pieces={"peft_config": None}, max_grad_norm=0.0, **changes)
        batches, passes = made.components.loss.batches, made.components.passes
        step_batch, of, compute = batches.step_batch, passes.of, made._compute_loss

        def watched(batch: Batch, inputs: Any) -> Any:
            self.seen.append(step_batch(batch, inputs))
            return self.seen[-1]

        def counted(*args: Any, **options: Any) -> Any:
            self.reads += 1
            return of(*args, **options)

        def learned(model: Any, inputs: Any) -> torch.Tensor:
            loss = compute(model, inputs)
            self.losses.append(loss.item())
            return loss

        batches.step_batch, passes.of, made._compute_loss = watched, counted, learned
        made.train()
        self.model = made.model


def weights_of(trained: Trained) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trained.model.parameters()])


def split(rows: int, micro_batches: int) -> dict[str, int]:
    return {"per_device_train_batch_size": rows, "gradient_accumulation_steps": micro_batches}


@pytest.mark.slow
@pytest.mark.parametrize("name", TERMS)
def test_accumulation_changes_nothing(tmp_path: Path, name: str) -> None:
    """Sixteen completions, used twice, in one, two and four micro-batches give the same losses and weights."""
    shared = {"num_iterations": 2, "max_steps": 4, "optim": "sgd", "learning_rate": 0.5}
    whole, halves, quarters = (
        Trained(tmp_path / str(n), equation_with_term(name), **split(16 // n, n), **shared) for n in (1, 2, 4)
    )
    start = torch.cat([p.detach().flatten() for p in tiny.model().parameters()])
    assert (weights_of(whole) - start).abs().max() > 1e-3, "nothing was trained: the comparison is empty"
    for other in (halves, quarters):
        count = len(other.losses) // 4
        losses = [sum(other.losses[i * count : (i + 1) * count]) for i in range(4)]
        assert losses == pytest.approx(whole.losses, abs=2e-6)
        torch.testing.assert_close(weights_of(other), weights_of(whole), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_contents_of_a_step_batch(tmp_path: Path) -> None:
    """One generation has two steps of two micro-batches: each step is a step batch; completions have one pass each."""
    run = Trained(tmp_path, equation_with_term("kl_cov"), **split(4, 2), steps_per_generation=4, max_steps=2)
    (first, mine), (same, rest), (second, _), _ = run.seen
    assert first is same
    assert first is not second
    assert sorted([*mine.tolist(), *rest.tolist()]) == list(range(8))
    assert len(first.mask) == 8
    assert not first.logp.requires_grad
    assert run.reads == 4 + 2, "four micro-batches, and the second of each step ahead"


@pytest.mark.slow
def test_a_step_over_two_generations_has_two_windows(tmp_path: Path) -> None:
    run = Trained(tmp_path, equation_with_term("kl_cov"), **split(4, 4), steps_per_generation=2, max_steps=2)
    sizes = [len(window.mask) for window, _ in run.seen]
    assert sizes == [8] * 8
    windows = [id(window) for window, _ in run.seen]
    assert windows[0] == windows[1] != windows[2] == windows[3]


@pytest.mark.slow
def test_single_micro_batch_needs_no_extra_pass(tmp_path: Path) -> None:
    run = Trained(tmp_path, equation_with_term("top_entropy"), **split(8, 1), max_steps=2)
    assert run.reads == 2
