"""`evaluation`: the best model is kept, a stage without progress ends, pass@k before and after training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import yaml
from rlm_lab.evaluate import evaluate, render
from safetensors.torch import load_file

import rlm_plugins as rlm
from rlm_plugins.errors import RecipeError, RlmError
from rlm_plugins.evaluation.scores import SampledScores, compared, verdict
from rlm_plugins.recipe.compose import compose
from rlm_plugins.run.folder import EVALUATIONS
from rlm_plugins.run.judgement import as_data
from rlm_plugins.run.recipe_argument import read
from rlm_plugins.run.train import train
from rlm_plugins.run.trainer_callbacks import BestModel

REWARDS = """
from rlm_plugins import hookimpl

def none(completions):
    return [0.0 for _ in completions]


@hookimpl
def rlm_rewards():
    return {"none": none}
"""


LENGTH = ["trainer.max_completion_length=4"]


def recipe(folder: Path, **changes: Any) -> Path:
    trainer = {"max_steps": 6, "num_generations": 4, "max_completion_length": 4, "learning_rate": 1e-2}
    body = tiny.recipe({"layers": 1, "lora": {"r": 2}}, **trainer, save_strategy="no") | {
        "plugins": {"load": ["./rewards.py"]},
        "environment": {"name": "addition", "digits": 2, "test_rows": 8},
        "rewards": ["none"],
        "algorithm": {"name": "reinforce", "penalties": [{"name": "entropy", "beta": 1.0}]},
        "evaluation": {"metric": "none", "every": 2, **changes},
    }
    (folder / "rewards.py").write_text(REWARDS)
    (folder / "recipe.yaml").write_text(yaml.safe_dump(body))
    return folder / "recipe.yaml"


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "01-reinforce" / "adapter" / "adapter_model.safetensors")


def test_best_model_is_the_result(tmp_path: Path) -> None:
    path = recipe(tmp_path, metric="none", keep="best", samples=2)
    whole = train(*read(path, ()), tmp_path / "whole")
    assert json.loads((whole.folder / "summary.json").read_text())["kept"] == {"step": 0}, "all scores are equal"
    best = weights(whole.folder)
    assert all(not x.any() for name, x in best.items() if "lora_B" in name), "an adapter starts at 0"
    last = train(*read(path, ["evaluation.keep=last"]), tmp_path / "last")
    assert any(x.any() for name, x in weights(last.folder).items() if "lora_B" in name)
    (judged,) = evaluate(whole.folder)
    assert judged.report.score == 0.0


def test_weights_of_the_best_step_are_restored(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    best = BestModel(tmp_path / "best")
    kept = model.weight.detach().clone()
    best.update(model, 4, 0.5, 0.3, 0.7)
    with torch.no_grad():
        model.weight.add_(1.0)
    best.update(model, 6, 0.6, 0.2, 1.0)  # a larger score with a wider interval
    best.update(model, 8, float("nan"), float("nan"), float("nan"))
    again = BestModel(tmp_path / "best")
    again.load_score()
    assert again.score == {"step": 4, "score": 0.5, "low": 0.3, "high": 0.7}
    again.restore(model)
    assert torch.equal(model.weight, kept)
    (tmp_path / "best" / "weights.safetensors").write_bytes(b"damaged")
    with pytest.raises(RlmError, match="the best weights cannot be used"):
        again.restore(model)
    again.load_score()
    assert again.score is None


def test_stage_without_progress_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = recipe(tmp_path, stop=2)
    run = train(*read(path, ["trainer.max_steps=40"]), tmp_path / "run")
    steps = [record["step"] for record in run.records(EVALUATIONS)]
    assert steps == [0, 2, 4, 4], "two evaluations without improvement, then the last one"
    assert "2 evaluations in a row without a certain improvement" in capsys.readouterr().out


def test_sampled_evaluations_before_and_after(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = recipe(tmp_path, every=0, samples=4, k=[1, 2, 4])
    run = train(*read(path, ()), tmp_path / "run")
    records = run.records(EVALUATIONS)
    assert [(r["step"], len(r["scores"])) for r in records] == [(0, 8), (6, 8)]
    assert all([*map(len, r["sampled"]["answers"])] == [4] * 8 for r in records)
    summary = json.loads((run.folder / "summary.json").read_text())
    assert summary["sampled"]["verdict"] == "no certain change"
    assert list(summary["sampled"]["after"]["pass"]) == ["1", "2", "4"]
    assert (run.folder / "pass_at_k.png").read_bytes().startswith(b"\x89PNG")


def sampled(solved: list[int], n: int = 8) -> SampledScores:
    return SampledScores([[1.0] * c + [0.0] * (n - c) for c in solved], [[0] * c + [1] * (n - c) for c in solved])


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([4] * 20 + [0] * 20, [8] * 20 + [0] * 20, "sharpening"),
        ([4] * 20 + [0] * 20, [8] * 40, "discovery"),
        ([4] * 40, [8] * 20 + [0] * 20, "narrowing"),
        ([4] * 40, [4] * 40, "no certain change"),
        ([0] * 40, [1, 1, 1] + [0] * 37, "no certain change"),
    ],
)
def test_verdict(before: list[int], after: list[int], expected: str) -> None:
    assert verdict(sampled(before), sampled(after)) == expected
    actual = compared(sampled(before), sampled(after), [1, 8])
    mean, low, high = actual["change"]["pass"]["1"]
    assert mean == pytest.approx((sum(after) - sum(before)) / 8 / len(before))
    assert low < mean < high or abs(mean) > 0.4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("evaluation.every=0 evaluation.keep=best", "`keep: best` requires evaluations during training"),
        ("evaluation.every=0 evaluation.stop=3", "`stop: 3` requires evaluations during training"),
        ("evaluation.k=[1,4]", "k of 4 requires as many samples, got `samples: 0`"),
        ("trainer.load_best_model_at_end=true", "`load_best_model_at_end` cannot be set here"),
        ("trainer.save_strategy=best", "`save_strategy: best` is not supported"),
    ],
)
def test_refused(change: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as error:
        compose(*read(recipe(tmp_path), change.split()), build_environment=False)
    assert message in error.value.problem
    assert "evaluat" in error.value.hint + error.value.where


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with a run, `model` (a whole model), and recipes without model: `harder.yaml`, `rows.yaml`."""
    folder = tmp_path_factory.mktemp("trained")
    suite = {"harder": {"name": "addition", "digits": 3, "test_rows": 5}}
    path = recipe(folder, every=0, suite=suite)
    train(*read(path, ["model={name: scratch, hidden: 16, layers: 1, heads: 2, intermediate: 16}"]), folder / "run")
    (folder / "rewards_two.py").write_text(REWARDS.replace('"none"', '"two"').replace("[0.0 for", "[0.25 for"))
    harder: dict[str, Any] = {"plugins": {"load": ["./rewards_two.py"]}, "rewards": ["two"]}
    harder["environment"] = {"name": "addition", "digits": 3, "test_rows": 6}
    (folder / "harder.yaml").write_text(yaml.safe_dump(harder))
    (folder / "rows.jsonl").write_text("".join(json.dumps({"prompt": f"{n}+1=?"}) + "\n" for n in range(3)))
    rows = {**harder, "environment": {"name": "dataset", "path": "./rows.jsonl", "prompt": "prompt"}}
    (folder / "rows.yaml").write_text(yaml.safe_dump(rows))
    return folder


def test_suite_is_scored_before_and_after(trained: Path) -> None:
    summary = json.loads((trained / "run" / "summary.json").read_text())
    assert summary["suite"]["harder"] == {"before": [0.0, 0.0, pytest.approx(0.4345, abs=1e-3)]} | {
        "after": summary["suite"]["harder"]["before"]
    }
    assert [(each.name, each.report.rows) for each in evaluate(trained / "run")] == [("01-reinforce", 8), ("harder", 5)]


def test_run_on_other_examples(trained: Path) -> None:
    judged = evaluate(trained / "run", on=[trained / "harder.yaml", trained / "rows.yaml"], k=4)
    assert [(each.name, each.report.rows, each.report.score) for each in judged] == [
        ("harder", 6, 0.25),
        ("rows", 3, 0.25),
    ]
    assert all(each.sampled is not None and each.sampled.scores.samples == 4 for each in judged)
    assert {each.stage.settings["max_completion_length"] for each in judged} == {4}, "as the run was trained"
    data = as_data(judged, samples=1)
    assert [entry["set"] for entry in data["sets"]] == ["harder", "rows"]
    assert "rows: held-out two 25.0%" not in render(judged, 0), "0.25 is no share of completions"
    assert "rows: held-out two 0.25 [" in render(judged, 0)


def test_adapter(trained: Path, tmp_path: Path) -> None:
    base = trained / "run" / "01-reinforce" / "model"
    model = json.dumps({"name": str(base), "lora": {"r": 2}})
    run = train(*read(recipe(tmp_path, every=0), [f"model={model}"]), tmp_path / "run")
    adapter = run.folder / "01-reinforce" / "adapter"
    (judged,) = evaluate(adapter, LENGTH, on=[trained / "harder.yaml"])
    assert judged.report.samples == evaluate(run.folder, on=[trained / "harder.yaml"])[0].report.samples


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere", "there is no such run, recipe or model"),
        ("run/01-reinforce/model", "no held-out examples of its own"),
    ],
)
def test_what_cannot_be_judged(source: str, message: str, trained: Path) -> None:
    with pytest.raises(RlmError, match=message):
        evaluate(trained / source)


HELD_OUT = """
from rlm_plugins import hookimpl
from rlm_plugins.specs import EnvironmentSpec


@hookimpl
def rlm_environments():
    return {"held_out": lambda: EnvironmentSpec(train=(), test=[{"prompt": "1+1=?"}] * 2)}
"""


def test_no_training_examples(trained: Path) -> None:
    (trained / "held_out.py").write_text(HELD_OUT)
    document = {"environment": "held_out", "rewards": ["none"]}
    document |= {"plugins": {"load": ["./rewards.py", "./held_out.py"]}}
    (trained / "held_out.yaml").write_text(yaml.safe_dump(document))
    (judged,) = evaluate(trained / "run", on=[trained / "held_out.yaml"])
    assert judged.report.rows == 2


def calls_of_reference(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, int]]:
    """Return the temperatures and lengths of the coming calls of the engine `reference`."""
    from rlm_engines.reference import Reference

    calls: list[tuple[float, int]] = []
    generate = Reference.generate

    def recorded(self: Reference, prompts: Any, sampling: Any) -> Any:
        calls.append((sampling["temperature"], sampling["max_tokens"]))
        return generate(self, prompts, sampling)

    monkeypatch.setattr(Reference, "generate", recorded)
    return calls


def test_evaluation_in_a_run_decodes_with_its_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = calls_of_reference(monkeypatch)
    document = tiny.recipe({"layers": 1}, max_completion_length=5) | {
        "environment": {"name": "addition", "digits": 2, "test_rows": 4},
        "rewards": [{"name": "length", "limit": 8, "as": "accuracy"}],
        "evaluation": {"every": 0, "samples": 2, "temperature": 0.5},
        "algorithm": "dr_grpo",
    }
    scores = []
    for engine in ("engines/reference", "none"):
        run = rlm.train(document, {"engine": engine}, out=tmp_path / engine)
        scores.append(json.loads((run.folder / "evaluations.jsonl").read_text().splitlines()[0])["scores"])
    assert scores[0] == scores[1]
    assert calls == [(0.0, 5), (0.5, 5), (1.0, 5), (0.0, 5), (0.5, 5)]
