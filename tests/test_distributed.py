"""Two processes on the CPU: the numbers of one process on the same global batch, and a complete run.

The runs to compare are all trained at once: here on one process, and on two in a single launch (`train_several.py`).
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from launch_runs import ROOT, logged, python, reinforcement, supervised
from safetensors.torch import load_file
from train_several import train_all

REFILLED = "algorithm.filters=[{name: accuracy_band, reward: digits, low: 0.03, high: 1.0, refill: 9}]"
HALVES = ("trainer.per_device_train_batch_size=32",)
pytestmark = [pytest.mark.slow, pytest.mark.full]

SOURCES = (
    "algorithm.rollouts=[{name: greedy, num_completions: 1}, {name: demonstrations, num_completions: 1}, canned]",
    "algorithm.penalties=[{name: policy_shaping, beta: 1.0, source: demonstrations}]",
)
"""One process holds the greedy row and the demonstration, where the group is cut the other one neither."""

TALK = (
    "environment={name: talk}",
    "rewards=[episode_return]",
    "algorithm={name: dapo, rollouts: [], filters: [], shapers: [by_turn], advantage: batch_whitened}",
    "trainer.top_k=1",
)
"""Several turns, without chance: the likeliest token each time; who writes longer than the others is waited for."""

FIRST_STEP = {
    "talk": TALK,
    "lesson": (),
    "short-cuts": (
        "speed={padding_free: true, skip_zero_advantage: true, group_micro_batches: true, "
        "max_tokens_per_micro_batch: 40}",
    ),
    "kl-sequence-mean": ("algorithm.penalties=[{name: kl, beta: 0.05}]", "algorithm.aggregator=sequence_mean"),
    "whitened-filtered": ("algorithm.advantage=batch_whitened", "algorithm.filters=[nonzero_std]"),
    "refilled": (REFILLED, "algorithm.penalties=[{name: kl, beta: 0.05}]"),
    "not-full": (REFILLED.replace("refill: 9", "refill: 2"), "algorithm.advantage=batch_whitened"),
    "gepo": ("algorithm={name: gepo, rollouts: [canned]}",),
    "tried": ("algorithm.advantage=continued",),
    "sources": SOURCES,
    "group-cut": (*SOURCES, "trainer.num_generations=64"),
}

OF_THE_STEP = {
    "clip-cov": "algorithm.token_weights=[{name: clip_cov, share: 0.2, low: 0.0}]",
    "top-entropy": "algorithm.token_weights=[{name: top_entropy, share: 0.4}]",
    "kl-cov": "algorithm.penalties=[{name: kl_cov, beta: 1.0, share: 0.2}]",
}
TWICE = ("trainer.num_iterations=2", "trainer.optim=sgd", "trainer.learning_rate=0.1")
"""Each generation is used twice: on policy KL-Cov is 0."""
ONCE = ("trainer.max_steps=1",)
TWO_STEPS = ("refilled", "not-full")
"""What the first step drew and left over decides the second."""
QUARTERS = ("trainer.per_device_train_batch_size=16", "trainer.gradient_accumulation_steps=2")

CUT = (REFILLED, "trainer.num_generations=16")
"""Three groups of 16 in a batch of 48: the middle one lies on both processes, whichever draw it came from."""

SPO = (
    "algorithm={name: spo, rollouts: [{name: canned, longest: 7}]}",
    "trainer.num_generations=1",
    "environment.train_rows=64",
)
"""On as many problems as a generation takes: the second step reads every first answer again."""

ADAPTIVE = (
    "algorithm.shapers=[{name: adaptive_kl_in_reward, target: 0.87}]",
    "algorithm.penalties=[{name: adaptive_kl, beta: 0.05, target: 0.22, unit: token}, "
    "{name: adaptive_entropy, beta: 1.0, target: 0.866, delta: 0.01}]",
    *("trainer.max_steps=3", "trainer.save_strategy=steps", "trainer.save_steps=3"),
)
"""Targets so near to what is measured that the rows of one process alone would say something else."""

AGAIN = ("trainer.num_iterations=2", "trainer.max_steps=3", "trainer.optim=sgd", "trainer.learning_rate=0.02")
CRITICS = {
    "shared": ("algorithm={name: ppo, rollouts: [canned]}",),
    "head": ("algorithm={name: vapo, penalties: {nll: {min_reward: 0.1}}, rollouts: [canned]}",),
    "separate": ("algorithm={name: orz, rollouts: [canned]}", "trainer.target_kl=1e-9"),
}
"""Kind of critic → a row: one each for KL in the reward, λ by length, and a generation that is left alone early."""

GENERATORS = {"transformers": "transformers", "fast": "fast", "inverse": "{name: fast, sampling: inverse_cdf}"}
CASES: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    **{
        name: (overrides if name in TWO_STEPS else (*overrides, *ONCE), (), HALVES)
        for name, overrides in FIRST_STEP.items()
    },
    **{name: ((overrides, *TWICE), (), QUARTERS) for name, overrides in OF_THE_STEP.items()},
    "refilled-cut": (CUT, ("trainer.per_device_train_batch_size=48",), ("trainer.per_device_train_batch_size=24",)),
    "spo": (SPO, (), HALVES),
    "adaptive": (ADAPTIVE, (), HALVES),
    **{
        kind: (
            (*overrides, f"critic={{kind: {kind}, learning_rate: 1e-3}}", *AGAIN),
            (),
            QUARTERS if kind == "separate" else HALVES,
        )
        for kind, overrides in CRITICS.items()
    },
}
"""Name → what both sides say, what one process says, what two say."""


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return supervised(tmp_path_factory.mktemp("start"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, start: Path) -> Path:
    """Train every case on one and two processes, in the folders `one` and `two`."""
    folder = tmp_path_factory.mktemp("runs")
    recipe = str(reinforcement(folder, start, canned=True))
    one = [(recipe, str(folder / "one" / name), [*both, *alone]) for name, (both, alone, _) in CASES.items()]
    two = [(recipe, str(folder / "two" / name), [*both, *halved]) for name, (both, _, halved) in CASES.items()]
    train_all(one)
    (folder / "own").mkdir()
    own = str(reinforcement(folder / "own", start, canned=False))
    two += [
        (own, str(folder / "two" / name), [f"generator={overrides}", *HALVES]) for name, overrides in GENERATORS.items()
    ]
    (folder / "two.json").write_text(json.dumps(two))
    python(2, str(ROOT / "tests" / "train_several.py"), str(folder / "two.json"), cwd=folder)
    return folder


def same(runs: Path, name: str, step: int, rel: float, absolute: float, *further: str) -> None:
    """Require equal logged values of a step of both runs, and a gradient to compare."""
    one, two = (logged(runs / side / name, step) for side in ("one", "two"))
    assert one["grad_norm"] > 1e-3, "nothing to compare"
    for what in ("loss", "grad_norm", "entropy", *further):
        assert two[what] == pytest.approx(one[what], rel=rel, abs=absolute), (step, what)


def test_two_processes_generate_the_same_with_either_generator(runs: Path) -> None:
    """Each process has its own stream of random numbers and a wrapped model."""
    usual, found, other = (runs / "two" / name for name in GENERATORS)
    samples = [(run / "samples.jsonl").read_text() for run in (usual, found, other)]
    assert samples[0]
    assert samples[0] == samples[1]
    assert samples[0] != samples[2], "it is asked indeed"
    for step in (1, 2):
        one, two = logged(usual, step), logged(found, step)
        assert {n: one[n] for n in ("loss", "grad_norm", "reward")} == {
            n: two[n] for n in ("loss", "grad_norm", "reward")
        }


@pytest.mark.parametrize("name", FIRST_STEP)
def test_first_step_equals_one_process(runs: Path, name: str) -> None:
    same(runs, name, 1, 2e-5, 1e-7, "reward", "advantage/abs_mean")


@pytest.mark.parametrize("name", ["refilled", "not-full", "refilled-cut"])
def test_samples_equal_those_of_one_process(runs: Path, name: str) -> None:
    """Dynamic sampling takes several rounds and continues in the next step; a group may be split over processes."""
    for step in (1, 2):
        one, two = (logged(runs / side / name, step) for side in ("one", "two"))
        assert one["dynamic_sampling/rounds"] > 1
        assert {what: two[what] for what in one if "refill" in what} == {w: one[w] for w in one if "refill" in w}
        same(runs, name, step, 2e-5 if step == 1 else 2e-4, 1e-6, "reward", "advantage/abs_mean")


@pytest.mark.parametrize("name", OF_THE_STEP)
def test_statistics_of_the_step_are_those_of_all(runs: Path, name: str) -> None:
    """Two processes of two micro-batches are compared with one of one."""
    for step in (1, 2):
        same(runs, name, step, 5e-5, 1e-6)


@pytest.mark.parametrize("name", ["spo", "adaptive"])
def test_state_equals_that_of_one_process(runs: Path, name: str) -> None:
    for step in (1, 2):
        same(runs, name, step, 2e-4, 1e-6, "reward", "advantage/abs_mean")


def test_adaptive_parts_gather_over_processes(runs: Path) -> None:
    """Coefficients of each step and the state in the checkpoint equal those of one process."""
    one, two = ([logged(runs / side / "adaptive", step) for step in (1, 2, 3)] for side in ("one", "two"))
    for what in ("penalties/kl_factor", "penalties/entropy_coefficient"):
        assert [line[what] for line in two] == pytest.approx([line[what] for line in one], rel=1e-5), what
    factors = [line["penalties/kl_factor"] for line in one]
    assert all(abs(new / old - 1) < 0.0199 for old, new in pairwise(factors)), "at its bound any KL says the same"
    paid = [line["penalties/entropy_coefficient"] for line in one]
    assert paid == pytest.approx([0.01, 0.02, 0.0]), "the entropy was never above its target, or never below"
    expected, actual = (remembered(runs / side / "adaptive" / "01-dapo" / "checkpoint-3") for side in ("one", "two"))
    assert len(expected) == 3
    assert expected.keys() == actual.keys()
    for part, memory in expected.items():
        assert actual[part] == pytest.approx(memory, rel=1e-5), part


def remembered(checkpoint: Path) -> dict[str, Any]:
    """Return the state of the parts in a checkpoint."""
    return torch.load(checkpoint / "parts.pt", weights_only=True)


OF_STEPS = ("reward", "shapers/reward", "advantage/abs_mean", "update/kl", "update/skipped")
OF_CRITICS = ("value", "return", "explained_variance", "grad_norm", "learning_rate")
OF_MICRO_BATCHES = ("penalties/value_loss", "penalties/value_clipped")


@pytest.mark.parametrize("name", CRITICS)
def test_critics_learn_as_with_one_process(runs: Path, name: str) -> None:
    """Rewards, losses and metrics of the critic equal those of one process."""
    names = ["loss", *OF_STEPS, *(f"critic/{what}" for what in OF_CRITICS)]
    names += OF_MICRO_BATCHES if name != "separate" else ()  # accumulated, these are means of means
    for step in (1, 2, 3):
        one, two = (logged(runs / side / name, step) for side in ("one", "two"))
        assert one["critic/grad_norm"] > 1e-3, "nothing to compare"
        for what in {*names} & {*one}:
            assert two[what] == pytest.approx(one[what], rel=2e-4, abs=1e-6), (step, what)
    assert one["critic/explained_variance"] != 0, "it has learned nothing"
    files = sorted((runs / "one" / name).glob("*/critic/*.safetensors"))
    assert len(files) == (1 if name == "head" else 2)
    for file in files:
        weights, others = load_file(file), load_file(runs / "two" / file.relative_to(runs / "one"))
        for weight, x in weights.items():
            torch.testing.assert_close(others[weight], x, rtol=1e-3, atol=1e-5)


def test_all_processes_skip_the_remaining_updates(runs: Path) -> None:
    """The second update exceeds `target_kl` on the completions of both."""
    lines = [logged(runs / "two" / "separate", step) for step in (1, 2, 3)]
    assert [line["update/skipped"] for line in lines] == [0.0, 1.0, 0.0]
    assert [line["grad_norm"] > 0 for line in lines] == [True, False, True]
