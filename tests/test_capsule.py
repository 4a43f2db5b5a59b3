"""Capsules: a step stored whole, replayed without the model, under its own algorithm and others."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from launch_runs import launch as launch_processes
from repetition import one_in
from rlm_view.capsule import TreeEncoder, capsules_of, decode_tree, find_capsule, read_capsule
from rlm_view.replay import differences_from_record
from rlm_view.replay_report import policy_gradient, replays
from safetensors.torch import load_file
from test_papers import FILES, OF_DATA, WITH_CANNED, pool, two_steps
from typer.testing import CliRunner

from rlm_plugins import recipe
from rlm_plugins.cli import app
from rlm_plugins.durable.files import seal
from rlm_plugins.equation.batch import Batch
from rlm_plugins.errors import RlmError
from rlm_plugins.run.launch import launch
from rlm_plugins.run.recipe_argument import read
from rlm_plugins.trainer import EquationTrainer
from rlm_plugins.trainer.passes import OldLogProbs

__all__ = ["pool"]
CANNED = Path(__file__).parent / "fake_rollouts.py"
EQUATIONS = [file for file in OF_DATA if recipe.load(file).bodies[0].get("rewards")]
WITH_A_MODEL = ("prime", "vine_ppo", "gkd", "opsd")
"""Rows with a part that holds a model of its own, or requires the tokenizer."""
RECIPE = """
plugins: {load: [CANNED]}
environment: {name: addition, digits: 2, train_rows: 32, test_rows: 0}
rewards: [{name: coin, as: accuracy}, {name: digits, weight: 0.5}]
model: {name: scratch, layers: 1, hidden: 16, heads: 2, intermediate: 32, lora: {r: 2, target_modules: all-linear}}
algorithm: grpo
capsule: {every: 2}
trainer:
  max_steps: 3
  per_device_train_batch_size: 4
  gradient_accumulation_steps: 2
  num_generations: 4
  max_completion_length: 6
  learning_rate: 1.0e-2
  save_strategy: steps
  save_steps: 1
"""


@pytest.fixture(autouse=True)
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust the code of the recipes in this file without a question."""
    monkeypatch.setenv("RLM_TRUST", "1")


def run_of(folder: Path, *overrides: str, plugins: object = CANNED, name: str = "run") -> Path:
    """Train the recipe above, and return the folder of the run."""
    torch.set_num_threads(1)
    file = folder / "tiny.yaml"
    file.write_text(RECIPE.replace("CANNED", str(plugins)))
    launch(file, list(overrides), out=folder / name)
    return folder / name


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run with capsules, which tests only read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLM_TRUST", "1")
        return run_of(tmp_path_factory.mktemp("capsules"))


# ------------------------------------------------------------------ files


def test_tree_keeps_every_kind_of_data() -> None:
    shared = torch.arange(6.0).view(2, 3)
    value = {
        "a": [None, True, 3, "x\u202e</script>", math.inf, -math.inf, (1, (2.5, "t"))],
        "b": {1: "int key", (2, "x"): shared, "$": "a key like the tag"},
        "c": shared,
        "batch": Batch(mask=torch.ones(2, 3).bool(), named_rewards={"a/b": torch.tensor([1.0, torch.nan])}, step=3),
        "numpy": np.arange(3, dtype=np.uint32),
    }
    encoder = TreeEncoder()
    text = json.dumps(encoder.encode(value, "v"), allow_nan=False)
    again = decode_tree(json.loads(text), encoder.tensors)
    assert again["a"] == value["a"]
    assert list(again["b"]) == [1, (2, "x"), "$"]
    assert torch.equal(again["c"], shared)
    assert sum(torch.equal(x, shared) for x in encoder.tensors.values() if x.shape == shared.shape) == 1, "written once"
    assert again["batch"].named_rewards["a/b"].isnan().tolist() == [False, True]
    assert again["numpy"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("file", ["step.json", "tensors.safetensors", "recipe.yaml"])
def test_damage_is_found(run: Path, tmp_path: Path, file: str) -> None:
    copy = shutil.copytree(find_capsule(run, 2), tmp_path / "capsule")
    content = bytearray((copy / file).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / file).write_bytes(content)
    with pytest.raises(RlmError, match=f"the capsule is damaged: {file} differs from its checksum"):
        read_capsule(copy)


@pytest.mark.parametrize("content", ["{}", "[]", '{"version": 2}', '{"version": 1, "step": "x", "stage": {"$": 1}}'])
def test_other_contents_are_refused(run: Path, tmp_path: Path, content: str) -> None:
    copy = shutil.copytree(find_capsule(run, 2), tmp_path / "capsule")
    (copy / "step.json").write_text(content)
    (copy / "checksums.json").unlink()
    seal(copy)
    with pytest.raises(RlmError, match="expected a capsule"):
        read_capsule(copy)


def test_capsule_has_no_path_of_this_machine(run: Path) -> None:
    folder = find_capsule(run, 2)
    for file in (path for path in folder.rglob("*") if path.suffix in (".json", ".yaml", ".safetensors")):
        assert str(run.parent).encode() not in file.read_bytes(), file.name
    assert (folder / "plugins" / CANNED.name).read_bytes() == CANNED.read_bytes()


# ------------------------------------------------------------------ replay under the same algorithm


@pytest.mark.parametrize("file", one_in(9, EQUATIONS), ids=lambda file: file.stem)
def test_replay_of_a_paper_is_equal_to_the_run(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlm_plugins.run.recipe_argument.Registry", lambda *_: WITH_CANNED)
    steps = two_steps(file, tmp_path / "run", "capsule={every: 1}")
    logged = [record for record in steps.records() if "loss" in record]
    found = capsules_of(tmp_path / "run")
    assert [read_capsule(path).step for path in found] == [1, 2]
    if file.stem in WITH_A_MODEL:
        with pytest.raises(RlmError, match=r"requires (a model|`tokenizer`)"):
            replays(found[0], [])
        return
    for path, record in zip(found, logged, strict=True):
        result = replays(path, [])
        assert differences_from_record(result.capsule, result.recorded) == []
        recorded = [portion["loss"] for update in result.capsule.updates for portion in update["portions"]]
        assert [x.item() for x in result.recorded.losses] == [x.item() for x in recorded]
        assert result.recorded.loss == pytest.approx(record["loss"], abs=1e-3 + 1e-3 * abs(record["loss"]))


def test_trainer_with_a_loss_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file,) = (file for file in FILES if file.stem == "sft")
    monkeypatch.setattr("rlm_plugins.equation.step.MAX_LOSS_OR_NORM", 1e-9)
    with pytest.raises(RlmError, match="training diverged in step 1"):
        two_steps(file, tmp_path / "run")
    (folder,) = capsules_of(tmp_path / "run")
    capsule = read_capsule(folder)
    assert capsule.fault["kind"] == "Divergence"
    assert torch.is_tensor(capsule.updates[0]["micro_batches"][0]["input_ids"])
    with pytest.raises(RlmError, match="loss of its own"):
        replays(folder, [])


def test_a_capsule_changes_nothing_in_the_run(tmp_path: Path) -> None:
    digests = []
    for every in (0, 1):
        folder = run_of(tmp_path, f"capsule={{every: {every}}}", name=f"run-{every}")
        weights = load_file(next(folder.glob("01-grpo/adapter/adapter_model.safetensors")))
        digests.append({name: x.view(torch.uint8).numpy().tobytes() for name, x in weights.items()})
    assert digests[0] == digests[1]


def test_completions_without_a_forward_pass_have_the_log_probs_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Log-probs are recorded during generation, or computed by a separate forward pass."""
    found = []
    settings = ["rewards=[accuracy]", "capsule={every: 1}", "algorithm=dr_grpo"]  # no completion has an advantage
    for name in ("recorded", "passed"):
        if name == "passed":
            monkeypatch.setattr(OldLogProbs, "of_samples", lambda *_: None)
        folders = capsules_of(run_of(tmp_path, *settings, name=name))
        updates = [update for folder in folders for update in read_capsule(folder).updates]
        found.append([portion["skipped"] for update in updates for portion in update["portions"]])
    assert len(found[0]) == len(found[1]) > 0
    assert "fast paths: generator fast" in capsys.readouterr().out
    for (rows, *recorded), (same, *passed) in zip(*found, strict=True):
        assert torch.equal(rows, same)
        assert rows.all()
        assert passed[0].any()
        torch.testing.assert_close(recorded, passed, rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------ replay under another algorithm


@pytest.mark.parametrize(
    "other",
    ["dr_grpo", "dapo"]
    + [
        pytest.param(x, marks=pytest.mark.full)
        for x in ("gspo", "cispo", "reinforce", "rloo", "opo", "lite_ppo", "sapo")
    ],
)
def test_replay_under_another_algorithm_equals_a_run_with_it(other: str, tmp_path: Path) -> None:
    """The first step of two runs with one seed samples the same completions under any algorithm."""
    settings = ["capsule={every: 1}", "trainer.max_steps=1", "trainer.save_strategy='no'"]
    own = replays(find_capsule(run_of(tmp_path, *settings, name="own"), 1), [f"algorithm={other}"]).changed
    path = find_capsule(run_of(tmp_path, *settings, f"algorithm={other}", name="other"), 1)
    direct = replays(path, []).recorded
    assert own is not None
    assert torch.equal(own.scored.advantages, direct.scored.advantages)
    assert own.loss == pytest.approx(direct.loss, rel=1e-4, abs=1e-6)
    assert torch.equal(own.rows, direct.rows)
    torch.testing.assert_close(own.tokens["gradient"], direct.tokens["gradient"], rtol=1e-4, atol=1e-7)


def test_gradient_of_a_token_is_that_of_the_formula(run: Path) -> None:
    """Vanilla policy gradient, per-token mean: ∂J/∂log π = Â / Z on every trained token."""
    result = replays(find_capsule(run, 2), ["algorithm=dr_grpo", "algorithm.aggregator=token_mean"]).changed
    assert result is not None
    batch, rewards = result.scored, result.scored.rewards
    means = torch.stack([rewards[batch.group == g].mean() for g in batch.group])
    expected = ((rewards - means).unsqueeze(1) * batch.mask / batch.mask.sum())[result.rows]
    ratio = result.step.ratio.detach()
    assert torch.allclose(ratio[result.step.mask], torch.ones(()), atol=1e-4), "one update per generation"
    torch.testing.assert_close(result.tokens["gradient"], expected * ratio, rtol=1e-5, atol=1e-8)


def test_missing_data_is_named(run: Path) -> None:
    with pytest.raises(RlmError, match="requires `values`, which the run did not compute"):
        replays(find_capsule(run, 2), ["algorithm=ppo"])


def test_capsule_of_two_processes(tmp_path: Path) -> None:
    """A capsule has the completions of both processes; a replay equals one process with the same completions."""
    file = tmp_path / "tiny.yaml"
    file.write_text(RECIPE.replace("CANNED", str(CANNED)))
    shared = ["algorithm={name: grpo, rollouts: [canned]}", "capsule={every: 1}", "trainer.max_steps=2"]
    two = launch_processes(file, tmp_path / "two", 2, *shared)
    one = launch_processes(file, tmp_path / "one", 1, *shared, "trainer.per_device_train_batch_size=8")
    other = ["algorithm=dr_grpo"]
    results = [replays(find_capsule(folder, 1), other) for folder in (two, one)]
    assert [len(result.capsule.updates) for result in results] == [2, 1]
    for result in results:
        assert differences_from_record(result.capsule, result.recorded) == []
    first, second = (result.changed for result in results)
    assert first is not None
    assert second is not None
    assert torch.equal(first.scored.advantages, second.scored.advantages)
    assert first.loss == pytest.approx(second.loss, rel=1e-4, abs=1e-6)
    torch.testing.assert_close(first.tokens["gradient"], second.tokens["gradient"], rtol=1e-4, atol=1e-7)


# ------------------------------------------------------------------ the command


def test_command_prints_the_changed_tokens(run: Path) -> None:
    output = CliRunner().invoke(app, ["view", str(run), "--step", "2", "algorithm=dr_grpo", "--json"])
    assert output.exit_code == 0, output.output
    data = json.loads(output.stdout)
    assert (data["step"], data["stage"], data["differences"]) == (2, "01-grpo", [])
    assert data["recorded"]["loss"] != data["replayed"]["loss"]
    token = data["tokens"][0]
    assert token["gradient"] != token["gradient_after"]
    assert "[" in token["text"]
    text = CliRunner().invoke(app, ["view", str(run), "--step", "2", "algorithm=dr_grpo"]).stdout
    assert "equal to the run, bit by bit" in text
    assert "tokens that change most" in text
    same = CliRunner().invoke(app, ["view", str(run), "--step", "2", "trainer.max_steps=9"]).stdout
    assert "the overrides change none of these numbers" in same


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--step", "7"], "no capsule of step 7"),
        (["--step", "2", "algorithm=nothing"], "nothing"),
        (["--step", "2", "rewards=[format]"], "no scores of the reward 'format'"),
        (["--step", "2", "algorithm.policy_loss.epsilon=x"], "epsilon"),
        (["--step", "2", "banana"], "expected one run, got 2"),
    ],
)
def test_wrong_words_are_errors(run: Path, words: list[str], problem: str) -> None:
    output = CliRunner().invoke(app, ["view", str(run), *words])
    assert output.exit_code == 2
    assert problem in output.stderr
    assert "Traceback" not in output.output


# ------------------------------------------------------------------ with the model


def test_gradient_with_the_model_is_that_of_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[dict[str, torch.Tensor]] = []
    clip = EquationTrainer._clip_grad_norm

    def record(self: Any, model: Any) -> Any:
        found.append({n: w.grad.detach().clone() for n, w in model.named_parameters() if w.grad is not None})
        return clip(self, model)

    monkeypatch.setattr(EquationTrainer, "_clip_grad_norm", record)
    folder = run_of(tmp_path, "capsule={every: 1}", "trainer.max_steps=2")
    monkeypatch.undo()
    monkeypatch.setenv("RLM_TRUST", "1")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    for step, recorded in enumerate(found, 1):
        path = find_capsule(folder, step)
        gradient = policy_gradient(path, read_capsule(path), *read(folder, []))
        assert gradient.keys() == recorded.keys()
        assert any(x.abs().max() > 1e-4 for x in recorded.values())
        for name in recorded:
            torch.testing.assert_close(gradient[name], recorded[name], rtol=1e-5, atol=1e-8)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before, "a replay writes nothing"
    output = CliRunner().invoke(app, ["view", str(folder), "--step", "2", "--model", "--json"])
    norms = json.loads(output.stdout)["gradient"]
    assert norms["replayed"] == pytest.approx(norms["recorded"], rel=1e-5)


# ------------------------------------------------------------------ faults

FAULTY = '''
import torch
from rlm_plugins import hookimpl


def fails(completions: list[str], trainer_state) -> list[float]:
    """Fail in the second step."""
    if trainer_state.global_step == 1:
        raise ValueError("no digits in " + completions[0][:0] + "this one")
    return [float(len(text)) / 64 for text in completions]


def explodes(rewards, step, *, at: int = 1):
    """Divide by nothing in the second step."""
    return rewards / (0 if step >= at else 1) if step < at else 1 / int(step - step)


def overflows(advantages, logp, step):
    """Return an infinite loss in the second step."""
    return -advantages * logp * (1e38 * 1e3 if step == 1 else 1.0)


@hookimpl
def rlm_rewards():
    return {"fails": fails}


@hookimpl
def rlm_advantages():
    return {"explodes": explodes}


@hookimpl
def rlm_policy_losses():
    return {"overflows": overflows}
'''
FAULTS = {
    "reward": ("rewards=[fails]", "no digits in this one"),
    "advantage": ("algorithm.advantage=explodes", "ZeroDivisionError"),
    "loss": ("algorithm.policy_loss=overflows", "diverged"),
}


@pytest.mark.parametrize("place", FAULTS)
def test_fault_is_repeated_elsewhere(place: str, tmp_path: Path) -> None:
    override, problem = FAULTS[place]
    plugin = tmp_path / "faulty.py"
    plugin.write_text(FAULTY)
    with pytest.raises(RlmError, match=problem):
        run_of(tmp_path, "capsule={}", override, plugins=f"{CANNED}, {plugin}")
    (path,) = capsules_of(tmp_path / "run")
    elsewhere = shutil.copytree(path, tmp_path / "elsewhere" / "attached")
    shutil.rmtree(tmp_path / "run")
    plugin.unlink()
    capsule = read_capsule(elsewhere)
    assert capsule.step == 2
    assert problem in capsule.fault["problem"]
    with pytest.raises(RlmError, match=problem):
        replays(elsewhere, [])
    output = CliRunner().invoke(app, ["view", str(elsewhere)])
    assert output.exit_code == 2
    assert output.stderr.startswith("error: ")
