"""Runs of self-play: recipes, players of real games, exact resume, and a proposer with weights of its own."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from rlm_selfplay import ProposeAndSolve, proposed_tasks
from rlm_selfplay.propose_and_solve import ProposerSettings
from rlm_selfplay.task_scoring import TaskScoring
from rlm_testing.auxiliary_models import RecordingLM, are_equal, tiny_recipe, train_and_resume
from transformers import LlamaConfig
from typer.testing import CliRunner

from rlm_plugins.cli import app

PACKAGE = Path(__file__).parents[1]
RECIPES = {"spiral": PACKAGE / "recipe.yaml", "absolute_zero": PACKAGE / "recipes" / "absolute_zero.yaml"}
R_ZERO = PACKAGE / "recipes" / "r_zero.yaml"
SMALL = ["stages.0.trainer.max_steps=2", "evaluation.rows=8", "stages.0.evaluation.rows=8"]


def train(name: str, folder: Path, *more: str) -> None:
    done = CliRunner().invoke(app, ["train", str(RECIPES[name]), "--out", str(folder), *SMALL, *more])
    assert done.exit_code == 0, done.output


@pytest.mark.slow
def test_published_settings_pass_check() -> None:
    """The model is a substitute whose vocabulary has all printable characters."""
    characters = "".join(map(chr, [10, *range(32, 127)]))
    model = f"model={{name: scratch, max_positions: 16384, characters: {json.dumps(characters)}}}"
    file = str(PACKAGE / "recipes" / "absolute_zero_7b.yaml")
    done = CliRunner().invoke(app, ["check", file, model, "trainer.use_vllm=false"])
    assert done.exit_code == 0, done.output


@pytest.mark.slow
@pytest.mark.parametrize("name", [*RECIPES])
def test_resumed_run_has_the_same_weights_and_state(name: str, tmp_path: Path) -> None:
    """The checkpoint of step 2 has baselines and buffer; a run resumed from it repeats steps 3 and 4."""
    steps = ["stages.1.trainer.max_steps=4", "stages.1.trainer.save_strategy=steps", "stages.1.trainer.save_steps=2"]
    size = ["stages.1.trainer.per_device_train_batch_size=48", "stages.1.trainer.learning_rate=1e-3"]
    size += [f"stages.0.trainer.max_steps={150 if name == 'absolute_zero' else 2}"]  # so that some proposals are valid
    size.append("stages.0.trainer.per_device_train_batch_size=16")
    train_and_resume(RECIPES[name], tmp_path / "run", "selfplay/", *SMALL, *steps, *size)


@pytest.mark.slow
def test_both_players_of_each_game_are_trained_and_payoffs_cancel(tmp_path: Path) -> None:
    """Rewards of a legal game sum to 0; a forfeit costs one player 1. Padding-free and padded passes agree."""
    options = ["stages.1.trainer.max_steps=1", "stages.1.trainer.per_device_train_batch_size=32"]
    losses = []
    for name, speed in (("packed", "true"), ("padded", "false")):
        train("spiral", tmp_path / name, *options, f"speed.padding_free={speed}", "evaluation=null")
        lines = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        (line,) = [line for line in lines if line.get("stage", "").endswith("spiral") and "loss" in line] or lines[-1:]
        losses.append((line["loss"], line["grad_norm"]))
        assert line["rewards/role/mean"] == 0.5
        assert -0.5 <= line["reward"] <= 0.0
        assert line["sources/both_seats/share"] == 1.0
    assert losses[0] == pytest.approx(losses[1], rel=1e-3, abs=1e-5)


class Tokenizer:
    def batch_decode(self, rows: list[list[int]], skip_special_tokens: bool) -> list[str]:
        return ["".join(map(chr, row)) for row in rows]


def played(source: ProposeAndSolve, model: RecordingLM) -> dict[str, Any]:
    """Run the source on one batch: a group of three proposals, and a group of three solutions."""
    rows = proposed_tasks(language="lines", kinds=["deduction"], train_rows=2, test_rows=0).train
    inputs = [dict(row) for row in rows for _ in range(3)]
    assert [row["job"] for row in inputs] == ["propose"] * 3 + ["solve"] * 3
    proposals, attempts = iter(["s+s;ab", "open(s);a", "hello"]), iter(["abab", "abab", "ab", "b"])

    def generate(prompts: list[Any]) -> list[list[int]]:
        letters = [prompt[0]["content"][0] for prompt in prompts]
        assert all(model.is_active is (letter == "d") for letter in letters), "proposals are those of the adapter"
        texts = [next(proposals) if letter == "d" else next(attempts, "a") for letter in letters]
        return [list(map(ord, text)) for text in texts]

    trainer = SimpleNamespace(
        prompt_ids=lambda prompts: [list(map(ord, prompt[0]["content"])) for prompt in prompts],
        components=SimpleNamespace(context=SimpleNamespace(log=lambda name, x: None)),
    )
    prompts, index = [row["prompt"] for row in inputs], [0, 1, 2] * 2
    return source(prompts, inputs, index, generate, Tokenizer(), step=0, seed=0, trainer=trainer)


def separate(model: RecordingLM, **settings: Any) -> ProposeAndSolve:
    source = ProposeAndSolve(language="lines", attempts=4, proposer=ProposerSettings(**settings))
    assert source.proposer is not None
    source.proposer._models = [model]  # type: ignore[list-item]
    return source


def test_value_and_gradient_of_the_proposer(monkeypatch: pytest.MonkeyPatch) -> None:
    """GRPO with w = 1 on the scores ¾, −½ and −1; the policy is trained on solutions only."""
    logp = -torch.rand(3, 9, generator=torch.Generator().manual_seed(0))
    model = RecordingLM(logp)
    source = separate(model)
    monkeypatch.setattr(TaskScoring, "is_right", lambda self, task, answer: answer == "b")  # one attempt of four
    out = played(source, model)
    scores, texts = out["score"][:3], ["s+s;ab", "open(s);a", "hello"]
    assert scores[1:] == [-0.5, -1.0]
    assert [any(row) for row in out["mask"]] == [False] * 3 + [True] * 3
    source.update(lambda name, x: None, step=0, logprobs_of=lambda prompts, completions: logp)
    expected, total = torch.zeros(3, 9), 0.0
    for i, text in enumerate(texts):
        advantage = (scores[i] - statistics.mean(scores)) / (statistics.stdev(scores) + 1e-4)
        for t in range(len(text)):
            total -= advantage * logp[i, t].item() / len(text) / 3
            expected[i, t] = -advantage / len(text) / 3
    assert ["".join(map(chr, ids)) for ids in model.completions] == texts
    assert model.value.item() == pytest.approx(total, rel=1e-5)
    torch.testing.assert_close(model.logp.grad, expected)
    assert source.proposer is not None
    assert not source.proposer.proposals.scores, "a batch that was trained on is forgotten"


@pytest.mark.slow
def test_proposer_learns_in_a_run_and_resume_is_exact(tmp_path: Path) -> None:
    first, second = yaml.safe_load(R_ZERO.read_text())["stages"]
    knobs = second["algorithm"]["rollouts"]["propose_and_solve"]
    knobs |= {"wrong": -0.5, "unreadable": -1.0}  # scores that an untrained model can reach
    model = {"characters": first["model"]["characters"]}
    sections = {"environment": {"train_rows": 64, "test_rows": 8}, "model": model, "algorithm": second["algorithm"]}
    run = train_and_resume(tiny_recipe(R_ZERO, tmp_path, **sections), tmp_path / "run", "propose_and_solve")
    assert b"proposer" not in run.weights, "PEFT's file is the policy's alone"
    assert not are_equal(run.early["proposer"], run.late["proposer"])


def test_memory_is_that_of_its_adapter_and_two_moments() -> None:
    """Rank 3 on two square layers of width 32, in float32."""
    config = LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, vocab_size=9)
    stage = SimpleNamespace(source=SimpleNamespace(config=config), lora={"r": 3, "target_modules": ["q_proj"]})
    assert ProposeAndSolve(proposer=ProposerSettings()).memory_bytes(stage) == 3 * 4 * 2 * 3 * (32 + 32)
    assert ProposeAndSolve().memory_bytes(stage) == 0
