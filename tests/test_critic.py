"""The critic: its values, its training, the weights that it never changes, and values that are known exactly."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import tiny
import torch
from datasets import Dataset
from fixtures_critic import KINDS, critic, equation, part, rows, trainer, weights
from fixtures_trainer import OFTEN, interrupted, logged
from repetition import one_in
from safetensors.torch import load_file

from rlm_plugins.equation.knobs import Schedule
from rlm_plugins.errors import RlmError
from rlm_plugins.trainer import EquationTrainer


def values_of(equation_trainer: Any) -> torch.Tensor:
    """Return the values of two fixed completions."""
    return equation_trainer.components.critic.before_update(rows(equation_trainer)).clone()


def log_probs_of(equation_trainer: Any) -> torch.Tensor:
    """Return the policy's log-probs of two fixed completions."""
    with torch.no_grad():
        return equation_trainer.components.passes.of(equation_trainer.model, rows(equation_trainer))[0].clone()


class Trained(NamedTuple):
    """A critic after three steps, and its values before."""

    kind: str
    trainer: Any
    at_first: torch.Tensor


@pytest.fixture(scope="module", params=KINDS)
def trained(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Trained:
    equation_trainer = trainer(tmp_path_factory.mktemp("trained"), critic(request.param), max_steps=3)
    at_first = values_of(equation_trainer)
    equation_trainer.train()
    return Trained(request.param, equation_trainer, at_first)


def test_new_critic_has_value_zero_and_trains(trained: Trained) -> None:
    equation_trainer = trained.trainer
    assert not trained.at_first.any()
    assert values_of(equation_trainer).abs().min() > 1e-4
    assert all(norm > 0 for norm in logged(equation_trainer, "critic/grad_norm"))
    assert logged(equation_trainer, "critic/learning_rate") == [1e-2] * 3
    for name in ("critic/value", "critic/return", "critic/explained_variance", "penalties/value_loss"):
        assert len(logged(equation_trainer, name)) == 3, name
    assert logged(equation_trainer, "critic/value")[0] == 0.0


def test_value_depends_on_earlier_tokens_only(trained: Trained) -> None:
    equation_trainer, given = trained.trainer, rows(trained.trainer)
    before = equation_trainer.components.critic.before_update(given)
    given["completion_ids"] = given["completion_ids"].clone()
    given["completion_ids"][:, 2] = (given["completion_ids"][:, 2] + 1) % 15 + 3
    after = equation_trainer.components.critic.before_update(given)
    assert torch.equal(before[:, :3], after[:, :3])
    assert (before[:, 3:] != after[:, 3:]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_critic_does_not_change_an_untrained_policy(tmp_path: Path, kind: str) -> None:
    equation_trainer = trainer(tmp_path, critic(kind), max_steps=3, learning_rate=0.0)
    before, policy, log_probs = values_of(equation_trainer), weights(equation_trainer), log_probs_of(equation_trainer)
    equation_trainer.train()
    assert not torch.equal(values_of(equation_trainer), before)
    assert torch.equal(log_probs_of(equation_trainer), log_probs)
    moved = {name for name, x in weights(equation_trainer).items() if not torch.equal(x, policy[name])}
    assert all(".critic." in name for name in moved)
    assert bool(moved) == (kind == "shared")


@pytest.mark.parametrize("kind", ["shared", "separate"])
def test_policy_does_not_change_an_untrained_critic(tmp_path: Path, kind: str) -> None:
    equation_trainer = trainer(tmp_path, critic(kind), max_steps=2)
    equation_trainer.train()
    learned = equation_trainer.components.critic.optimizer.state_dict()
    again = trainer(tmp_path / "again", critic(kind, learning_rate=0.0), max_steps=3)
    again.critic.load_state_dict({"head": learned["head"], "body": learned["body"]})
    before, log_probs = values_of(again), log_probs_of(again)
    assert before.abs().min() > 1e-4
    again.train()
    assert torch.equal(values_of(again), before)
    assert not torch.equal(log_probs_of(again), log_probs)


def test_the_reference_is_the_base_at_every_step(tmp_path: Path) -> None:
    """The base equals a model without adapters bit for bit, after both adapters were trained."""
    plain = equation(advantage=part("rlm_advantages", "group_relative"), penalties=[])
    bare = trainer(tmp_path / "bare", None, plain, lora=None)
    equation_trainer = trainer(
        tmp_path,
        critic(),
        equation(shapers=[part("rlm_shapers", "kl_in_reward", beta=0.05)]),
        beta=1.0,
        max_steps=3,
        gradient_checkpointing=True,
    )
    seen: list[Any] = []
    scoring = equation_trainer.components.scoring.batch

    def watched(out: dict[str, Any]) -> Any:
        with torch.no_grad():
            seen.append((out["ref_per_token_logps"], bare.components.passes.of(bare.model, out)[0]))
        return scoring(out)

    equation_trainer.components.scoring.batch = watched
    equation_trainer.train()
    assert len(seen) == 3
    assert all(torch.equal(reference, alone) for reference, alone in seen)


def test_warmup_does_not_change_the_policy(tmp_path: Path) -> None:
    """Weight decay and momentum change no weight without a gradient."""
    equation_trainer = trainer(tmp_path, critic(warmup_steps=2), max_steps=2, weight_decay=0.1)
    before, values = weights(equation_trainer), values_of(equation_trainer)
    equation_trainer.train()
    assert not torch.equal(values_of(equation_trainer), values)
    assert all(torch.equal(x, before[name]) for name, x in weights(equation_trainer).items() if ".critic." not in name)
    equation_trainer = trainer(tmp_path / "on", critic(warmup_steps=2), max_steps=3, weight_decay=0.1)
    equation_trainer.train()
    assert any(
        not torch.equal(x, before[name]) for name, x in weights(equation_trainer).items() if ".critic." not in name
    )


@pytest.mark.parametrize("kind", KINDS)
def test_its_gradient_is_that_of_the_value_loss(tmp_path: Path, kind: str) -> None:
    """The gradient passed through the leaf equals that of one graph, over two micro-batches."""
    equation_trainer = trainer(
        tmp_path, critic(kind, learning_rate=0.0, max_grad_norm=0.0), max_steps=1, learning_rate=0.0
    )
    torch.nn.init.normal_(equation_trainer.critic.head.weight, generator=torch.Generator().manual_seed(1))
    taken: list[Any] = []
    share = equation_trainer.components.critic.optimizer._average_gradients

    def watched(moved: Any) -> None:
        share(moved)
        taken.append([x.grad.clone() for x in moved])

    equation_trainer.components.critic.optimizer._average_gradients = watched
    batches: list[Any] = []
    compute = equation_trainer._compute_loss
    equation_trainer._compute_loss = lambda model, inputs: batches.append(inputs) or compute(model, inputs)
    equation_trainer.train()
    (inputs,) = batches
    values = equation_trainer.components.critic.values(inputs)
    with equation_trainer.critic.active():
        wrong = (values - inputs["returns"]).square()
        kept = (inputs["old_values"] + (values - inputs["old_values"]).clamp(-0.2, 0.2) - inputs["returns"]).square()
        mask = inputs["mask"]
        loss = 0.5 * (torch.max(wrong, kept) * mask).sum() / mask.sum()
        expected = torch.autograd.grad(loss, equation_trainer.critic.parameters(), allow_unused=True)
    assert len(taken[0]) == len(expected)
    for ours, theirs in zip(taken[0], expected, strict=True):
        torch.testing.assert_close(ours, torch.zeros_like(ours) if theirs is None else theirs, rtol=1e-4, atol=1e-7)


def test_critic_graph_is_built_after_the_policy_backward_pass(tmp_path: Path) -> None:
    """With two micro-batches per generation, activations of policy and critic are never in memory together."""
    halves = {"per_device_train_batch_size": 8, "steps_per_generation": 2, "num_iterations": 2, "max_steps": 4}
    equation_trainer = trainer(tmp_path, critic(), **halves)
    policy = [x for name, x in equation_trainer.model.named_parameters() if x.requires_grad and ".critic." not in name]
    read, seen = equation_trainer.critic.values, []

    def watched(*given: Any) -> torch.Tensor:
        seen.append((torch.is_grad_enabled(), any(x.grad is not None for x in policy)))
        return read(*given)

    equation_trainer.critic.values = watched
    equation_trainer.train()
    scoring, now, learning = (False, False), (False, False), (True, True)
    assert seen == [scoring, scoring, learning, *3 * [now, learning]], "before it first moves, as the rows were scored"


def test_files_hold_the_critic(tmp_path: Path, trained: Trained) -> None:
    equation_trainer = trained.trainer
    equation_trainer.save_model(str(tmp_path / "adapter"))
    equation_trainer.save_critic(tmp_path / "critic")
    names = {path.name for path in (tmp_path / "adapter").rglob("*")}
    assert "critic" not in names
    assert not any("critic" in name for name in held(tmp_path / "adapter"))
    again = trainer(tmp_path / "b", critic(trained.kind), max_steps=2, learning_rate=0.0)
    again.critic.load(tmp_path / "critic")
    for x, y in zip(equation_trainer.critic.parameters(), again.critic.parameters(), strict=True):
        assert torch.equal(x, y)
    (tmp_path / "critic" / "value_head.safetensors").unlink()
    with pytest.raises(RlmError, match="no value head"):
        again.critic.load(tmp_path / "critic")


def held(folder: Path) -> list[str]:
    return list(load_file(folder / "adapter_model.safetensors"))


CUT = {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 8}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "buffer", "last", "steps"),
    one_in(3, [("shared", CUT, 5, (4,)), ("head", {"num_iterations": 2}, 6, (2, 4)), ("separate", CUT, 5, (1, 4))]),
    ids=["shared-accumulated", "head-two-epochs", "separate-accumulated"],
)
def test_resumed_equals_uninterrupted(
    tmp_path: Path, kind: str, buffer: dict[str, int], last: int, steps: tuple[int, ...]
) -> None:
    """The run is interrupted in the warm-up, inside the first epoch, at its end, and in the next epoch."""
    often = {"max_steps": last, **OFTEN, **buffer}
    build = partial(trainer, settings=critic(kind, warmup_steps=2), **often)
    whole, again = interrupted(tmp_path, steps, build)
    for step, found in again.items():
        for x, y in zip(whole.critic.parameters(), found.critic.parameters(), strict=True):
            assert torch.equal(x, y), step


def test_a_checkpoint_without_its_head_is_refused(tmp_path: Path) -> None:
    often = {"max_steps": 2, "save_strategy": "steps", "save_steps": 1}
    trainer(tmp_path, critic(), **often).train()
    file = tmp_path / "checkpoint-1" / "parts.pt"
    state = torch.load(file, weights_only=True)
    headless = {**state, "critic": {name: x for name, x in state["critic"].items() if name != "head"}}
    none = {name: x for name, x in state.items() if name != "critic"}
    for broken, words in ((headless, "no value head"), (none, "the checkpoint has no critic")):
        torch.save(broken, file)
        with pytest.raises(RlmError, match=words):
            trainer(tmp_path / "again", critic(), **often).train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))


# ---- an environment of two tokens with known values

WORDS = tiny.tokenizer("01ab")
ZERO, ONE, *LETTERS = WORDS("01ab")["input_ids"]
END = WORDS.eos_token_id
ANSWERS = [END, ZERO, ONE]
UNSAID = [WORDS.pad_token_id, WORDS.unk_token_id, *LETTERS]
"""Questions are no answers: a model without absolute positions cannot tell `a` from `a` answered by `a`."""
BEST = 1.25


def reward_of(completion_ids: list[list[int]]) -> list[float]:
    """Return 1 for a first token of one, ½ for zero, and ¼ more if the second token is the other digit."""
    front = {ONE: 1.0, ZERO: 0.5, END: 0.0}
    return [front[ids[0]] + 0.25 * (sorted(ids) == [ZERO, ONE]) for ids in completion_ids]


def exact(equation_trainer: EquationTrainer, question: int) -> tuple[float, list[float]]:
    """Compute by enumeration the value before the first token, and after a zero and a one."""
    ids = torch.tensor([[question, first] for first in (ZERO, ONE)])
    with torch.no_grad():
        chance = equation_trainer.model(ids).logits[:, :, ANSWERS].softmax(-1)
    pay = torch.tensor([reward_of([[first, second] for second in ANSWERS]) for first in (ZERO, ONE)])
    after = (chance[:, 1] * pay).sum(1)
    return (chance[0, 0, 1:] * after).sum().item(), after.tolist()


def values_at(equation_trainer: EquationTrainer, question: int) -> tuple[float, list[float]]:
    """Return the critic's values at the same places."""
    answers = torch.tensor([[ZERO, END], [ONE, END]])
    rows = {"prompt_ids": torch.full((2, 1), question), "completion_ids": answers}
    rows |= {"prompt_mask": torch.ones_like(rows["prompt_ids"]), "completion_mask": torch.ones_like(answers)}
    values = equation_trainer.components.critic.before_update(rows)
    assert values is not None
    return values[0, 0].item(), values[:, 1].tolist()


def environment_spec(
    folder: Path, kind: str, *, rate: float | Schedule, warmup_steps: int = 0, **changes: Any
) -> EquationTrainer:
    """Return a trainer on two questions with answers of two tokens."""
    settings = {
        "max_completion_length": 2,
        "per_device_train_batch_size": 256,
        "num_generations": 1,
        "generation_kwargs": {"suppress_tokens": UNSAID},
        "score": reward_of,
        "words": WORDS,
        "model": tiny.model(words=len(WORDS)),
        "problems": Dataset.from_dict({"prompt": ["a", "b"] * 128}),
    }
    return trainer(folder, critic(kind, learning_rate=rate, warmup_steps=warmup_steps), **{**settings, **changes})


RATES = {"shared": 1e-2, "head": 3e-2, "separate": 1e-2}
"""All weights move in a separate critic: at 3e-2 it forgets what it reads, and says the same of everything."""


@pytest.mark.parametrize(
    "kind", [kind if kind == "shared" else pytest.param(kind, marks=pytest.mark.full) for kind in KINDS]
)
def test_the_critic_converges_to_the_exact_values(tmp_path: Path, kind: str) -> None:
    rate = Schedule(RATES[kind], RATES[kind] / 30, over=55)
    equation_trainer = environment_spec(tmp_path, kind, rate=rate, max_steps=60, warmup_steps=60, num_iterations=3)
    equation_trainer.train()
    for question in LETTERS:
        before, after = exact(equation_trainer, question)
        assert after[1] - after[0] > 0.4, "a constant would do"
        found_before, found_after = values_at(equation_trainer, question)
        assert found_before == pytest.approx(before, abs=0.05)
        assert found_after == pytest.approx(after, abs=0.05)


def test_ppo_finds_the_best_policy(tmp_path: Path) -> None:
    """With one answer per problem, only the critic is a baseline.

    All weights are trained: the random head of the model, if frozen, could not separate two answers.
    """
    equation_trainer = environment_spec(tmp_path, "separate", rate=3e-3, max_steps=20, learning_rate=1e-2, lora=None)
    assert max(exact(equation_trainer, question)[0] for question in LETTERS) < 0.7
    equation_trainer.train()
    assert min(exact(equation_trainer, question)[0] for question in LETTERS) > 0.97 * BEST
