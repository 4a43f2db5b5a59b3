"""The proposer with weights of its own: its loss and gradient, and a run that resumes."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from rlm_selfplay import ProposeAndSolve, proposed_tasks
from rlm_selfplay.separate_proposer import ProposerSettings
from typer.testing import CliRunner

from rlm_plugins.cli import app

RECIPE = Path(__file__).parents[1] / "recipes" / "r_zero.yaml"


class Tokenizer:
    def batch_decode(self, rows: list[list[int]], skip_special_tokens: bool) -> list[str]:
        return ["".join(map(chr, row)) for row in rows]


class Model:
    """Substitute for the proposer's weights that records the loss on log-probs of the test."""

    def __init__(self, logp: torch.Tensor) -> None:
        self.logp, self.is_active, self.steps = logp.requires_grad_(), False, 0

    @contextmanager
    def active(self) -> Iterator[None]:
        self.is_active = True
        yield
        self.is_active = False

    def train_step(self, _: Any, prompts: Any, completions: Any, width: int, loss: Any, step: int) -> float:
        self.written, self.steps = ["".join(map(chr, ids)) for ids in completions], self.steps + 1
        mask = torch.tensor([[t < len(row) for t in range(width)] for row in completions])
        self.value = loss(self.logp[:, :width].where(mask, 0.0), list(range(len(completions))))
        self.value.backward()
        return 0.0


def played(source: ProposeAndSolve, model: Model) -> dict[str, Any]:
    """Run the source on one batch: a group of three proposals, and a group of three solutions."""
    rows = proposed_tasks(language="lines", kinds=["deduction"], train_rows=2, test_rows=0).train
    inputs = [dict(row) for row in rows for _ in range(3)]
    assert [row["job"] for row in inputs] == ["propose"] * 3 + ["solve"] * 3
    proposals, attempts = iter(["s+s;ab", "open(s);a", "hello"]), iter(["abab", "abab", "ab", "b"])

    def generate(asked: list[Any]) -> list[list[int]]:
        letters = [prompt[0]["content"][0] for prompt in asked]
        assert all(model.is_active is (letter == "d") for letter in letters), "proposals are those of the adapter"
        texts = [next(proposals) if letter == "d" else next(attempts, "a") for letter in letters]
        return [list(map(ord, text)) for text in texts]

    trainer = SimpleNamespace(
        prompt_ids=lambda prompts: [list(map(ord, prompt[0]["content"])) for prompt in prompts],
        components=SimpleNamespace(context=SimpleNamespace(log=lambda name, x: None)),
    )
    prompts, index = [row["prompt"] for row in inputs], [0, 1, 2] * 2
    return source(prompts, inputs, index, generate, Tokenizer(), step=0, seed=0, trainer=trainer)


def separate(model: Model, **settings: Any) -> ProposeAndSolve:
    source = ProposeAndSolve(language="lines", attempts=4, proposer=ProposerSettings(**settings))
    assert source.proposer is not None
    source.proposer._model = model  # type: ignore[assignment]
    return source


def test_value_and_gradient_of_the_proposer() -> None:
    """GRPO with w = 1 on the scores ¾, −½ and −1; the policy is trained on solutions only."""
    logp = -torch.rand(3, 9, generator=torch.Generator().manual_seed(0))
    model = Model(logp)
    source = separate(model)
    source.is_right = lambda task, answer: answer == "b"  # type: ignore[method-assign]  # one attempt of four
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
    assert model.written == texts
    assert model.value.item() == pytest.approx(total, rel=1e-5)
    torch.testing.assert_close(model.logp.grad, expected)


def test_every_skips_batches() -> None:
    model = Model(-torch.ones(3, 9))
    source = separate(model, every=2)
    for _ in range(4):
        played(source, model)
        source.update(lambda name, x: None, step=0, logprobs_of=lambda prompts, completions: model.logp)
    assert model.steps == 2
    assert source.proposer is not None
    assert not source.proposer.proposals.scores, "a batch is forgotten, trained on or not"


def recipe(folder: Path) -> Path:
    body = yaml.safe_load(RECIPE.read_text())
    stage = {**{k: v for k, v in body.items() if k not in ("stages", "evaluation")}, **body["stages"][1]}
    stage["environment"] |= {"train_rows": 64, "test_rows": 8}
    small = {"name": "scratch", "layers": 1, "hidden": 32, "heads": 2, "intermediate": 64}
    stage["model"] |= {**small, "characters": body["stages"][0]["model"]["characters"]}
    stage["trainer"] |= {"max_steps": 4, "per_device_train_batch_size": 16, "save_strategy": "steps", "save_steps": 2}
    knobs = stage["algorithm"]["rollouts"]["propose_and_solve"]
    knobs |= {"wrong": -0.5, "unreadable": -1.0}  # scores that an untrained model can reach
    file = folder / "recipe.yaml"
    file.write_text(yaml.safe_dump(stage))
    return file


@pytest.mark.slow
def test_proposer_learns_in_a_run_and_resume_is_exact(tmp_path: Path) -> None:
    file, stage = recipe(tmp_path), tmp_path / "run" / "01-r_zero"
    command = ["train", str(file), "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    weights = (stage / "checkpoint-4" / "adapter_model.safetensors").read_bytes()
    assert b"proposer" not in weights, "PEFT's file is the policy's alone"
    states = [torch.load(stage / f"checkpoint-{n}" / "parts.pt", weights_only=True) for n in (2, 4)]
    early, late = (next(x for name, x in state.items() if "propose_and_solve" in name)["proposer"] for state in states)
    assert any(not torch.equal(early["model"][name], x) for name, x in late["model"].items() if name != "optimizer")
    for folder in (stage / "checkpoint-4", stage / "adapter"):
        for path in sorted(folder.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        folder.rmdir()
    (stage / "done").unlink()
    done = CliRunner().invoke(app, [*command, "--resume"])
    assert done.exit_code == 0, done.output
    assert (stage / "checkpoint-4" / "adapter_model.safetensors").read_bytes() == weights
    again = torch.load(stage / "checkpoint-4" / "parts.pt", weights_only=True)
    assert repr(again) == repr(states[1])
