"""Dynamic sampling: informative groups of each round, complete, in order, up to a limit; nothing else changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from fixtures_trainer import OFTEN, clipped, interrupted, logged, trainer, weights
from repetition import one_in

from rlm_plugins.equation.batch import Batch
from rlm_plugins.errors import RecipeError
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound, Part
from rlm_plugins.rollout.dynamic_sampling import RefillBuffer, SamplingRound
from rlm_plugins.trainer import EquationTrainer
from rlm_plugins.trainer.observer import StepObserver

REGISTRY = Registry()
PAD = 9

# ------------------------------------------------------------------ the batch that fills


def draw(number: int, wanted: list[bool], length: int) -> SamplingRound:
    """Return a sampling round of groups of two; the ids identify each completion."""
    rows = 2 * len(wanted)
    names = torch.arange(rows) + 100 * number
    want = torch.tensor(wanted).repeat_interleave(2)
    return SamplingRound(
        {
            "prompt_ids": names.unsqueeze(1).expand(rows, length).clone(),
            "prompt_mask": torch.ones(rows, length, dtype=torch.long),
            "completion_ids": names.unsqueeze(1).expand(rows, length + 1).clone(),
            "completion_mask": torch.ones(rows, length + 1, dtype=torch.long),
            "num_items_in_batch": torch.tensor(7),
        },
        Batch(
            group=torch.arange(rows) // 2,
            mask=torch.ones(rows, length + 1, dtype=torch.bool),
            keep_mask=want.clone(),
            counts_for_refill=want,
            prompt_index=names,
            rewards=names.float(),
            named_rewards={"r": names.float()},
            max_completion_length=5,
        ),
        {"prompt": [f"row {name}" for name in names.tolist()], "extra/odd": ["x"] * rows if number else []},
    )


def test_whole_groups_are_selected_in_order_until_the_batch_is_full() -> None:
    full = RefillBuffer(3, PAD)
    full.add(draw(0, [False, True, False], 2))
    assert (full.filled, full.full) == (1, False)
    full.add(draw(1, [True, False, True], 4))
    assert (full.filled, full.full, full.rounds) == (3, True, 2)
    whole = full.finish()
    names = [2, 3, 100, 101, 104, 105]
    assert whole.batch.prompt_index.tolist() == whole.batch.named_rewards["r"].tolist() == names
    assert whole.batch.group.tolist() == [0, 0, 1, 1, 2, 2]
    assert whole.batch.keep_mask.all()
    assert whole.columns["prompt"] == [f"row {name}" for name in names]
    assert whole.columns["extra/odd"] == [None, None, "x", "x", "x", "x"]
    assert whole.out["prompt_ids"][0].tolist() == [PAD, PAD, 2, 2]  # left, as TRL pads prompts
    assert whole.out["prompt_mask"][0].tolist() == [0, 0, 1, 1]
    assert whole.out["completion_ids"][0].tolist() == [2, 2, 2, PAD, PAD]
    assert whole.batch.mask.sum(1).tolist() == whole.out["completion_mask"].sum(1).tolist() == [3, 3, 5, 5, 5, 5]
    assert whole.batch.max_completion_length == 5


def test_images_are_rejected() -> None:
    with pytest.raises(RecipeError, match="`refill` does not support prompts with images"):
        SamplingRound({"num_images": [1]}, draw(0, [True], 1).batch, {})


# ------------------------------------------------------------------ in a run


def group_reward(completions: list[str], answer: list[str]) -> list[float]:
    """Return rewards that differ within a group, unless the answer is a multiple of three."""
    return [0.0 if int(a) % 3 == 0 else sum(map(ord, c)) % 8 / 8 for c, a in zip(completions, answer, strict=True)]


class Seen:
    """Advantage that records its arguments and counts its updates."""

    def __init__(self) -> None:
        self.times, self.problems = 0, torch.zeros(0, dtype=torch.long)

    def __call__(self, rewards: torch.Tensor) -> torch.Tensor:
        return rewards - rewards.mean()

    def update(self, mask: torch.Tensor, prompt_index: torch.Tensor | None = None) -> None:
        self.times += 1
        self.problems = torch.zeros(0) if prompt_index is None else prompt_index

    def state_dict(self) -> dict[str, Any]:
        return {"times": self.times, "problems": self.problems}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.times, self.problems = state["times"], state["problems"]


class Scored(StepObserver):
    """Keeps prompts, completions and batch of each generation."""

    def __init__(self) -> None:
        self.batches: list[Any] = []

    def attach(self, trainer: Any) -> None:
        self.rewards = trainer.components.rewards

    def scored(self, batch: Any, turn_ends: Any) -> None:
        self.batches.append((*self.rewards.texts, batch))


def keep_all(rewards: torch.Tensor) -> torch.Tensor:
    """Keep every completion."""
    return torch.ones_like(rewards, dtype=torch.bool)


def keep_none(rewards: torch.Tensor) -> torch.Tensor:
    """Keep no completion."""
    return torch.zeros_like(rewards, dtype=torch.bool)


def sieve(target: Any, **beside: Any) -> Bound:
    bound = Part("rlm_filters", target.__name__, "test", target).bind({})
    return Bound(bound.part, bound.knobs, bound.target, options=beside)


SPREAD = REGISTRY.find("rlm_filters", "nonzero_std").target


def refilling(
    folder: Path, filters: list[Bound], observers: Sequence[StepObserver] = (), **changes: Any
) -> EquationTrainer:
    """Return a trainer with four groups of four per generation, from thirty problems."""
    seen = Part("rlm_advantages", "seen", "test", Seen).bind({})
    settings = {"max_steps": 3, "per_device_train_batch_size": 16, **changes}
    pieces: dict[str, Any] = {"observers": observers}
    if not any("refill" in sieve.options for sieve in filters):
        pieces["prompt_source"] = None  # the data loader hands the problems out
    equation = clipped(filters=filters, advantage=seen)
    return trainer(folder, equation, group_reward, tiny.problems(30), pieces=pieces, **settings)


def test_a_refill_that_is_not_needed_changes_nothing(tmp_path: Path) -> None:
    plain = refilling(tmp_path / "plain", [sieve(keep_all)], max_steps=9)  # into the second epoch
    plain.train()
    full = refilling(tmp_path / "full", [sieve(keep_all, refill=3)], max_steps=9)
    full.train()
    assert logged(full, "dynamic_sampling/rounds") == [1.0] * 9
    assert logged(full, "refill/full") == [1.0] * 9
    assert logged(full, "loss") == logged(plain, "loss")
    assert all(torch.equal(p, weights(plain)[name]) for name, p in weights(full).items())


def test_batch_is_filled_with_informative_groups(tmp_path: Path) -> None:
    scored = Scored()
    shown, equation_trainer = scored.batches, refilling(tmp_path, [sieve(SPREAD, refill=9)], [scored])
    equation_trainer.train()
    draws = logged(equation_trainer, "dynamic_sampling/rounds")
    assert max(draws) > 1
    assert logged(equation_trainer, "refill/full") == [1.0] * 3
    assert equation_trainer.components.prompts.source.state_dict() == {"epoch": 0, "place": int(sum(draws)) * 4}
    answers = {row["prompt"]: row["answer"] for row in equation_trainer.train_dataset}
    for prompts, texts, batch in shown:
        assert len(prompts) == len(texts) == len(batch.rewards) == 16
        assert batch.rewards.tolist() == group_reward(texts, [answers[prompt] for prompt in prompts])
        assert (batch.rewards.view(4, 4).std(1) > 0).all()
    assert list(equation_trainer._logs["prompt"]) == shown[-1][0]
    assert list(equation_trainer._logs["rewards"]["group_reward"]) == shown[-1][2].rewards.tolist()
    assert list(equation_trainer._logs["advantages"]) == shown[-1][2].advantages.squeeze(1).tolist()
    memory = equation_trainer.equation.advantage.target.state_dict()
    assert memory["times"] == 3, "once per finished batch, not once per draw"
    prompts = [equation_trainer.train_dataset[i]["prompt"] for i in memory["problems"].tolist()]
    assert prompts == shown[-1][0]


def test_batch_at_the_round_limit_keeps_the_best_groups(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one = refilling(tmp_path / "one", [sieve(SPREAD, refill=1)], max_steps=2)
    one.train()
    without = refilling(tmp_path / "without", [sieve(SPREAD)], max_steps=2)
    without.train()
    assert logged(one, "refill/full") == logged(one, "filters/kept") == [1.0, 0.5]
    assert "groups passed the filters after 1 rounds" in caplog.text
    # The same completions in another order.
    assert logged(one, "loss") == pytest.approx(logged(without, "loss"), rel=1e-4)
    assert logged(one, "grad_norm") == pytest.approx(logged(without, "grad_norm"), rel=1e-4)


def test_smallest_limit_of_refilling_filters_is_used(tmp_path: Path) -> None:
    equation_trainer = refilling(
        tmp_path, [sieve(keep_none, refill=5), sieve(keep_all, refill=2), sieve(keep_none)], max_steps=1
    )
    equation_trainer.train()
    assert logged(equation_trainer, "dynamic_sampling/rounds") == [2.0]
    assert logged(equation_trainer, "refill/full") == [0.0]
    assert logged(equation_trainer, "grad_norm") == [0.0]
    equation_trainer = refilling(tmp_path, [sieve(keep_all, refill=5), sieve(keep_none)], max_steps=1)
    equation_trainer.train()
    assert logged(equation_trainer, "dynamic_sampling/rounds") == [1.0], "a filter without refill draws no new groups"
    assert logged(equation_trainer, "grad_norm") == [0.0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("buffer", "steps"),
    one_in(2, [({"gradient_accumulation_steps": 2, "num_iterations": 2}, (2,)), ({}, (4,))]),
    ids=["accumulated, twice", "plain"],
)
def test_resumed_equals_uninterrupted(tmp_path: Path, buffer: dict[str, int], steps: tuple[int, ...]) -> None:
    """The run is resumed from the first epoch and from the second one, which the fourth step reaches."""
    how = {"max_steps": 6, **OFTEN, **buffer}
    whole, again = interrupted(tmp_path, steps, lambda folder: refilling(folder, [sieve(SPREAD, refill=4)], **how))
    assert max(logged(whole, "dynamic_sampling/rounds")) > 1
    for step, found in again.items():
        assert found.components.prompts.source.state_dict() == whole.components.prompts.source.state_dict(), step
        assert torch.equal(found.equation.advantage.target.problems, whole.equation.advantage.target.problems), step
