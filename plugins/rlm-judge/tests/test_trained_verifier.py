"""The verifier that is trained beside the policy: its rewards, its loss and gradient, and a run that resumes."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from rlm_judge.trained_verifier import TrainedVerifier
from rlm_testing.fake_packages import register
from typer.testing import CliRunner

from rlm_plugins.cli import app

RECIPE = Path(__file__).parents[1] / "recipes" / "tango.yaml"
YES, NO, NOISE = [1], [2], [3, 3]
TEXTS = {1: "1", 2: "0", 3: "?"}


@pytest.fixture
def registered(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the package by its entry point, even where the core's tests hide installed plugins."""
    site = tmp_path_factory.mktemp("site")
    register(site, "rlm-judge", "0", {"judge": "rlm_judge"})
    monkeypatch.syspath_prepend(str(site))


class Tokenizer:
    eos_token_id = 9

    def batch_decode(self, rows: list[list[int]], skip_special_tokens: bool) -> list[str]:
        return ["".join(TEXTS.get(token, chr(token)) for token in row) for row in rows]

    def apply_chat_template(self, messages: list[dict[str, str]], **_: Any) -> dict[str, list[int]]:
        return {"input_ids": list(map(ord, messages[0]["content"]))}


class Model:
    """Substitute for the verifier's weights that records the loss on log-probs of the test."""

    def __init__(self, logp: torch.Tensor) -> None:
        self.logp, self.is_active, self.steps = logp.requires_grad_(), False, 0

    @contextmanager
    def active(self) -> Iterator[None]:
        self.is_active = True
        yield
        self.is_active = False

    def train_step(self, _: Any, prompts: Any, completions: Any, width: int, loss: Any, step: int) -> float:
        self.asked, self.written, self.steps = prompts, completions, self.steps + 1
        mask = torch.tensor([[t < len(row) for t in range(width)] for row in completions])
        self.value = loss(self.logp.where(mask, 0.0), list(range(len(completions))))
        self.value.backward()
        return 0.0


def test_value_and_gradient_of_the_verifier() -> None:
    """Two answers, three verdicts each: share accepted, agreement with the outcome, REINFORCE with group advantages."""
    logp = -torch.rand(6, 2, generator=torch.Generator().manual_seed(0))
    model = Model(logp)
    part = TrainedVerifier(samples=3, weight=0.5, template="{task}{answer}", accept="1", reject="0")
    part._model = model  # type: ignore[assignment]
    verdicts = [YES, NO, NOISE, YES, YES, NO]

    def generate(asked: list[Any]) -> list[list[int]]:
        assert model.is_active, "verdicts are those of the verifier's adapter"
        assert [row[0]["content"] for row in asked] == ["1+1=2"] * 3 + ["1+1=3"] * 3
        return verdicts

    prompts = [[{"role": "user", "content": "1+1="}]] * 3
    completions = [[ord("2")], [ord("3")], [ord("2")]]  # the first and the last are one question
    shaped = part(torch.tensor([1.0, 0.0, 1.0]), prompts, completions, Tokenizer(), generate)
    assert shaped.tolist() == pytest.approx([1 + 0.5 / 3, 0.5 * 2 / 3, 1 + 0.5 / 3])

    logged: dict[str, float] = {}
    outcome = {"accuracy": torch.tensor([1.0, 0.0, 1.0])}
    part.update(torch.ones(3, 1).bool(), outcome, prompts, completions, Tokenizer(), None, 0, logged.__setitem__)  # type: ignore[arg-type]
    rewards = [1.0, 0.0, 0.0, 0.0, 0.0, 1.0]  # right: 2 is accepted, 3 is rejected; noise never is
    assert logged["trained_verifier/correct"] == pytest.approx(2 / 6)
    tokens, expected, total = sum(map(len, verdicts)), torch.zeros(6, 2), 0.0
    for j in range(6):
        own = rewards[:3] if j < 3 else rewards[3:]
        advantage = (rewards[j] - statistics.mean(own)) / (statistics.stdev(own) + 1e-4)
        for t in range(len(verdicts[j])):
            total -= advantage * logp[j, t].item() / tokens
            expected[j, t] = -advantage / tokens
    assert model.value.item() == pytest.approx(total, rel=1e-5)
    torch.testing.assert_close(model.logp.grad, expected)
    assert model.written == verdicts


def test_every_skips_batches() -> None:
    model = Model(torch.zeros(1, 1))
    part = TrainedVerifier(samples=1, every=3, template="{task}{answer}", accept="1", reject="0")
    part._model = model  # type: ignore[assignment]
    for _ in range(6):
        part(torch.zeros(1), ["1+1="], [[50]], Tokenizer(), lambda asked: [YES])
        part.update(torch.ones(1, 1).bool(), {"accuracy": torch.ones(1)}, ["1+1="], [[50]], Tokenizer(), None, 0, print)  # type: ignore[arg-type]
    assert model.steps == 2


def _recipe(folder: Path) -> Path:
    body = yaml.safe_load(RECIPE.read_text())
    stage = {**{k: v for k, v in body.items() if k not in ("stages", "evaluation")}, **body["stages"][1]}
    stage["environment"] |= {"train_rows": 64}
    stage["model"] |= {"name": "scratch", "layers": 1, "hidden": 32, "heads": 2, "intermediate": 64}
    stage["trainer"] |= {"max_steps": 4, "per_device_train_batch_size": 16, "save_strategy": "steps", "save_steps": 2}
    file = folder / "recipe.yaml"
    file.write_text(yaml.safe_dump(stage))
    return file


def _train(file: Path, folder: Path, *more: str) -> None:
    done = CliRunner().invoke(app, ["train", str(file), "--out", str(folder), *more])
    assert done.exit_code == 0, done.output


@pytest.mark.slow
@pytest.mark.usefixtures("registered")
def test_verifier_learns_in_a_run_and_resume_is_exact(tmp_path: Path) -> None:
    file = _recipe(tmp_path)
    _train(file, tmp_path / "run")
    stage = tmp_path / "run" / "01-dapo"
    policy = (stage / "adapter" / "adapter_model.safetensors").read_bytes()
    assert b"verifier" not in policy, "PEFT's file is the policy's alone"
    states = [torch.load(stage / f"checkpoint-{n}" / "parts.pt", weights_only=True) for n in (2, 4)]
    early, late = (next(x for name, x in state.items() if "trained_verifier" in name) for state in states)
    assert any(not torch.equal(early["model"][name], x) for name, x in late["model"].items() if name != "optimizer")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all("trained_verifier/correct" in json.dumps(line) for line in lines if "loss" in line)
    for folder in (stage / "checkpoint-4", stage / "adapter"):
        for path in sorted(folder.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        folder.rmdir()
    (stage / "done").unlink()
    _train(file, tmp_path / "run", "--resume")
    assert (stage / "adapter" / "adapter_model.safetensors").read_bytes() == policy
    again = torch.load(stage / "checkpoint-4" / "parts.pt", weights_only=True)
    (resumed,) = (x for name, x in again.items() if "trained_verifier" in name)
    assert all(torch.equal(resumed["model"][name], x) for name, x in late["model"].items() if name != "optimizer")


@pytest.mark.usefixtures("registered")
def test_recipe_passes_check_and_requires_an_adapter() -> None:
    done = CliRunner().invoke(app, ["check", str(RECIPE)])
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(app, ["check", str(RECIPE), "stages.1.model.lora=null"])
    assert done.exit_code != 0
    assert "requires a frozen base" in done.output
