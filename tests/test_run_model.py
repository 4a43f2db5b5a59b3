"""`Run.model()` for each kind of run: the weights that `rlm eval` loads, each adapter on its own base."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fixtures_reward_model as rlhf
import pytest
import tiny
import torch
from rlm_judge.reward_files import load_with_own_base
from rlm_lab.evaluate import model_of
from rlm_lab.export import export

import rlm_plugins as rlm
from rlm_plugins.errors import RlmError

LORA = {"r": 2, "target_modules": "all-linear"}
SCRATCH = {"name": "scratch", "hidden": 16, "heads": 2, "intermediate": 16}
STEPS = {"max_steps": 1, "per_device_train_batch_size": 4, "learning_rate": 5e-2}
SFT = {"algorithm": "sft", "rewards": [], "trainer": STEPS}
GRPO = {"algorithm": "dr_grpo", "trainer": {**STEPS, "num_generations": 2, "max_completion_length": 4}}


def spread(completions: list[str], **columns: Any) -> list[float]:
    """Return scores that differ between most completions, for gradients from the first step on."""
    return [sum(map(ord, str(text))) % 7 / 7 for text in completions]


def recipe(model: Any, *stages: dict[str, Any]) -> dict[str, Any]:
    environment = {"name": "addition", "digits": 2, "test_rows": 4}
    return {"model": model, "environment": environment, "rewards": [spread], "stages": [*stages]}


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(input_ids=torch.tensor([[5, 6, 7]])).logits


def judged(run: rlm.Run, stage: str | None = None) -> torch.Tensor:
    """Return logits of the merged model, as `rlm eval` loads it."""
    return logits(model_of(run.folder, stage, ())[0].load())


@pytest.mark.full
def test_an_adapter_on_weights_from_scratch(tmp_path: Path) -> None:
    run = rlm.train(recipe({**SCRATCH, "lora": LORA}, SFT), out=tmp_path / "run")
    model, _ = run.model()
    assert any("lora" in name for name, _ in model.named_parameters())
    torch.testing.assert_close(logits(model), judged(run))
    torch.testing.assert_close(logits(rlm.Run(run.folder).model()[0]), judged(run))


@pytest.mark.full
def test_each_of_two_adapters_is_on_its_own_base(tmp_path: Path) -> None:
    """The second adapter's base is the merged model of the first, never the initial checkpoint."""
    base = rlm.train(recipe(SCRATCH, SFT), out=tmp_path / "base")
    start = {"name": str(base.folder / "01-sft" / "model"), "lora": LORA}
    plain = recipe(start, SFT, SFT) | {"rewards": []}
    run = rlm.train(plain, out=tmp_path / "run")
    first, second = run.model("01-sft")[0], run.model()[0]
    torch.testing.assert_close(logits(second), judged(run))
    torch.testing.assert_close(logits(first), judged(run, "01-sft"))
    assert (logits(first) - logits(second)).abs().max() > 1e-3
    with pytest.raises(RlmError, match="does not name its base"):
        model_of(run.folder / "02-sft" / "adapter", None, ())
    with pytest.raises(RlmError, match="made by the run itself"):
        export(run.folder, str(tmp_path / "exported"))
    with pytest.raises(RlmError, match="unknown or unfinished stage 'grpo'"):
        run.model("grpo")


@pytest.mark.full
def test_supervised_reward_model_and_critic(tmp_path: Path) -> None:
    run = rlm.Run(rlhf.run(tmp_path / "run").folder)
    torch.testing.assert_close(logits(run.model()[0]), judged(run))
    torch.testing.assert_close(logits(run.model("sft")[0]), judged(run, "sft"))
    classifier, tokenizer = run.model("02-reward")
    scored = load_with_own_base(run.folder / "02-reward" / "adapter", "cpu")
    ids = tokenizer("12+30=?")["input_ids"]
    with torch.no_grad():
        score = classifier.eval()(input_ids=torch.tensor([ids])).logits.item()
    assert score == pytest.approx(scored.scores([ids], 1)[0], abs=1e-6)
    assert score != 0


@pytest.mark.full
def test_an_adapter_on_a_model_in_memory(tmp_path: Path) -> None:
    objects = {"model": tiny.model(), "tokenizer": tiny.tokenizer(), "train_dataset": tiny.problems()}
    objects["test_dataset"] = tiny.problems(4)
    base = logits(objects["model"])
    run = rlm.train(GRPO | {"model": {"lora": LORA}, "rewards": [spread]}, out=tmp_path / "run", **objects)
    model, _ = run.model()
    torch.testing.assert_close(logits(model), logits(run.model()[0]))
    assert not torch.equal(logits(model), base)
    with model.disable_adapter():
        torch.testing.assert_close(logits(model), base)
    assert run.resume() is run, "nothing is left to train"
    assert rlm.evaluate(run)["score"] == run.score, "of the same model"
    with pytest.raises(RlmError, match=r"(?s)python/.*an object of the Python process that trained"):
        rlm.Run(run.folder).model()
