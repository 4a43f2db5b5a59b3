"""`stale`: completions of an earlier policy; behavior, proximal and current policy are distinct."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from fixtures_trainer import OFTEN, clipped, interrupted, logged, trainer, weights
from repetition import one_in
from rlm_engines import SETTINGS
from rlm_engines.stale_policy import StalePolicy, batch_seed
from test_trainer_settings import CPU

from rlm_plugins.builtin.trainers import GRPO
from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.equation import Equation
from rlm_plugins.equation.step import objective
from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.trainer_settings import check
from rlm_plugins.registry import Registry
from rlm_plugins.trainer import EquationTrainer

REGISTRY = Registry()


def decoupled(high: float = 5.0) -> Equation:
    """Return the decoupled objective of AReaL: tokens whose weight exceeds 5 are left out."""
    weight = REGISTRY.find("rlm_token_weights", "trust_gate").bind({"low": 0.0, "high": high})
    return clipped(token_weights=[weight])


def stale_policy(equation_trainer: EquationTrainer) -> StalePolicy:
    """Return the observer that simulates staleness."""
    (found,) = (x for x in equation_trainer.observers if isinstance(x, StalePolicy))
    return found


class Watch:
    """Weights at each step, weights that generated, and batches of the loss, of one run."""

    def __init__(self, equation_trainer: EquationTrainer) -> None:
        self.made, self.at_step, self.sampled_by = equation_trainer, dict[int, Any](), dict[int, Any]()
        self.batches: dict[int, list[Any]] = defaultdict(list)
        batches = equation_trainer.components.loss.batches
        turn, loss = equation_trainer._generate_single_turn, batches.micro_batch

        def generate(*args: Any, **options: Any) -> Any:
            self.sampled_by.setdefault(equation_trainer.state.global_step, weights(equation_trainer))
            return turn(*args, **options)

        def batch(*args: Any, **options: Any) -> Any:
            self.at_step.setdefault(equation_trainer.state.global_step, weights(equation_trainer))
            self.batches[equation_trainer.state.global_step].append((args[0], loss(*args, **options)))
            return self.batches[equation_trainer.state.global_step][-1][1]

        equation_trainer._generate_single_turn, batches.micro_batch = generate, batch
        equation_trainer.train()


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(x, other[name]) for name, x in one.items())


def test_stale_zero_is_todays_run(tmp_path: Path) -> None:
    plain = trainer(tmp_path / "a")
    plain.train()
    zero = trainer(tmp_path / "b", stale=0)
    zero.train()
    assert same(weights(plain), weights(zero))
    assert "stale/steps" not in zero.state.log_history[0]
    assert not zero.observers


@pytest.mark.parametrize("pieces", [{}, {"peft_config": None}], ids=["lora", "full"])
def test_completions_come_from_the_policy_of_k_steps_before(tmp_path: Path, pieces: dict[str, Any]) -> None:
    equation_trainer = trainer(tmp_path, stale=2, max_steps=5, pieces=pieces)
    seen = Watch(equation_trainer)
    for step in range(5):
        assert same(seen.sampled_by[step], seen.at_step[max(step - 2, 0)]), step
    assert not same(seen.at_step[0], seen.at_step[1])
    assert logged(equation_trainer, "stale/steps") == [0.0, 1.0, 2.0, 2.0, 2.0]
    assert [int(seen.batches[step][0][0]["policy_version"][0]) for step in range(5)] == [0, 0, 0, 1, 2]
    assert sorted(stale_policy(equation_trainer)._weights) == [2, 3, 4]


def test_several_updates_per_generation_keep_only_the_weights_that_will_generate(tmp_path: Path) -> None:
    equation_trainer = trainer(tmp_path, stale=3, max_steps=8, num_iterations=2)
    seen = Watch(equation_trainer)
    for step in (0, 2, 4, 6):
        assert same(seen.sampled_by[step], seen.at_step[max(step - 3, 0)]), step
    assert sorted(stale_policy(equation_trainer)._weights) == [5, 7]


@pytest.mark.parametrize("equation", one_in(2, [decoupled, clipped]), ids=["proximal", "behavior"])
def test_resumed_equals_uninterrupted(tmp_path: Path, equation: Any) -> None:
    settings = {"stale": 2, "max_steps": 6, **OFTEN}
    interrupted(tmp_path, (1, 4), lambda folder: trainer(folder, equation(), **settings))


def logps(equation_trainer: EquationTrainer, state: dict[str, torch.Tensor], inputs: dict[str, Any]) -> torch.Tensor:
    """Return log-probs (B, T) under given weights, by the model's own forward pass and log-softmax."""
    own = weights(equation_trainer)
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    seen = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    with torch.no_grad():
        for name, p in equation_trainer.model.named_parameters():
            p.copy_(state[name])
        positions = (seen.cumsum(1) - 1).clamp(min=0)
        logits = equation_trainer.model(input_ids=ids, attention_mask=seen, position_ids=positions).logits
        for name, p in equation_trainer.model.named_parameters():
            p.copy_(own[name])
    chosen = logits[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
    return chosen[:, -inputs["completion_ids"].shape[1] :]


@pytest.mark.parametrize("old_policy", ["behavior", "proximal"])
@pytest.mark.parametrize("updates", [{}, {"num_iterations": 2}], ids=["once", "twice"])
def test_three_policies_equal_an_independent_forward_pass(
    tmp_path: Path, old_policy: str, updates: dict[str, int]
) -> None:
    """Behavior, proximal and current log-probs are compared with the model under the weights of their steps."""
    equation_trainer = trainer(
        tmp_path, decoupled(), stale=2, max_steps=4, old_policy=old_policy, learning_rate=2e-2, **updates
    )
    seen = Watch(equation_trainer)
    every = updates.get("num_iterations", 1)
    far = 0.0
    for step in range(4):
        sampled_at = step - step % every
        for inputs, batch in seen.batches[step]:
            behavior = logps(equation_trainer, seen.sampled_by[sampled_at], inputs)
            proximal = logps(equation_trainer, seen.at_step[sampled_at], inputs)
            current = logps(equation_trainer, seen.at_step[step], inputs)
            mask = batch.mask
            close(batch.rollout_logp[mask], behavior[mask])
            close(batch.old_logp[mask], (behavior if old_policy == "behavior" else proximal)[mask])
            close(batch.logp.detach()[mask], current[mask])
            far = max(far, (behavior - proximal)[mask].abs().max().item())
    assert far > 0.01, "the policies differ"


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-5)


def test_decoupled_loss_and_gradient_equal_the_paper() -> None:
    """arXiv 2505.24298: π_prox / π_behav · min(u Â, clip(u, 1 ± ε) Â), u = π / π_prox."""
    generator = torch.Generator().manual_seed(0)
    logp, proximal, behavior = (-torch.rand(3, 4, dtype=torch.float64, generator=generator) for _ in range(3))
    behavior[0, 0] = proximal[0, 0] - 2.0  # its weight e² exceeds the cap of 5
    advantages = torch.tensor([[1.0], [-1.0], [0.5]], dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 0, 0]], dtype=torch.bool)
    u, weight = (logp.requires_grad_() - proximal).exp(), (proximal - behavior).exp()
    low = torch.minimum(u * advantages, u.clamp(0.8, 1.2) * advantages)
    expected = -(torch.where(weight > 5, 0.0, weight) * low)[mask].sum() / mask.sum()
    counts = {"num_tokens": mask.sum().double()} | dict.fromkeys(
        ("num_sequences", "num_sequences_all"), torch.tensor(3.0)
    )
    batch = Batch(
        logp=logp, old_logp=proximal, rollout_logp=behavior, advantages=advantages, mask=mask, step=0, **counts
    )
    found = objective(batch, decoupled())
    torch.testing.assert_close(found, expected)
    gradient, of_paper = (torch.autograd.grad(loss, logp)[0] for loss in (found, expected))
    torch.testing.assert_close(gradient, of_paper)
    assert gradient[0, 0] == 0


def test_default_of_old_policy_follows_from_the_parts(tmp_path: Path) -> None:
    column = "old_per_token_logps"
    assert trainer(tmp_path / "a", stale=1).components.context.is_provided(column)
    assert not trainer(tmp_path / "b", decoupled(), stale=1).components.context.is_provided(column)
    chosen = trainer(tmp_path / "c", decoupled(), stale=1, old_policy="behavior")
    assert chosen.components.context.is_provided(column)
    assert not trainer(tmp_path / "d").components.context.is_provided(column)


def test_weights_are_restored_if_generation_fails(tmp_path: Path) -> None:
    equation_trainer = trainer(tmp_path, stale=1, max_steps=2)
    equation_trainer.train()
    before = weights(equation_trainer)
    equation_trainer.model.train()
    seen = []

    def fail() -> None:
        with stale_policy(equation_trainer).in_place():
            seen.append(weights(equation_trainer))
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()
    assert not same(seen[0], before)
    assert same(weights(equation_trainer), before)


def test_each_batch_has_random_numbers_of_its_own(tmp_path: Path) -> None:
    """They follow from seed, step, call and process; the random state of the trainer stays as it is."""
    numbers = {(1, step, call, rank) for step in range(9) for call in range(3) for rank in range(2)} | {(2, 0, 0, 0)}
    assert len({batch_seed(*each) for each in numbers}) == len(numbers)
    made = trainer(tmp_path, stale=1, max_steps=2)
    made.train()
    made.model.train()
    before, drawn = torch.get_rng_state(), []
    for _ in range(2):
        with stale_policy(made).sampling():
            drawn.append(torch.rand(4))
    assert torch.equal(torch.get_rng_state(), before)
    for call, found in enumerate(drawn):
        generator = torch.Generator().manual_seed(batch_seed(made.args.seed, 2, call))
        assert torch.equal(found, torch.rand(4, generator=generator))


def test_raised_staleness_of_a_resumed_run_uses_the_oldest_weights(tmp_path: Path) -> None:
    trainer(tmp_path / "a", stale=1, max_steps=3, **OFTEN).train()
    more = trainer(tmp_path / "b", stale=4, max_steps=5)
    more.train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-3"))
    assert logged(more, "stale/steps")[-2:] == [2.0, 3.0]


@pytest.mark.parametrize(
    ("settings", "where", "words"),
    [
        ({"stale": -1}, "stale", "0 or more"),
        ({"stale": 1.5}, "stale", "whole number"),
        ({"stale": 2, "use_vllm": True}, "stale", "vLLM"),
        ({"old_policy": "behavior"}, "old_policy", "without `stale`"),
        ({"stale": 1, "old_policy": "current"}, "old_policy", "behavior"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], where: str, words: str) -> None:
    added = {name: SETTINGS[name] for name in settings if name in SETTINGS}
    with pytest.raises(RecipeError, match=words) as caught:
        check(GRPO().config_class(), settings, "trainer", project_defaults=CPU, added=added)
    assert caught.value.where == f"trainer.{where}"
