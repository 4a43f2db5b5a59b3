"""Changes since the start of a run are listed before it is resumed, and allowed key by key."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from datasets import Dataset
from fault_cases import recipe, resume, unfinished, weights
from repetition import one_in

from rlm_plugins.builtin.models import scratch
from rlm_plugins.errors import RlmError
from rlm_plugins.models.fingerprints import STREAM, digest_of_rows, digest_of_tokenizer
from rlm_plugins.run.folder import Run
from rlm_plugins.run.launch import launch
from rlm_plugins.run.manifest import check_resumable, files_of
from rlm_plugins.run.recipe_argument import read

pytestmark = [pytest.mark.slow, pytest.mark.faults(group="changes")]
PLUGIN = '''from rlm_plugins import hookimpl

def polite(completions):
    """A reward."""
    return [1.0] * len(completions)

@hookimpl
def rlm_rewards():
    return {"polite": polite}
'''
OVERRIDES = {
    "seed": ("trainer.seed=7", "trainer.seed"),
    "group size": ("trainer.num_generations=2", "trainer.num_generations"),
    "clip": ("algorithm.policy_loss.epsilon=0.3", "algorithm.policy_loss.epsilon"),
    "algorithm": ("algorithm=rloo", "algorithm.name"),
    "penalty": ("algorithm.penalties=[{name: entropy, beta: 0.1}]", "algorithm.penalties"),
    "reward weight": ("rewards.0.weight=0.2", "rewards[0].weight"),
    "model size": ("model.hidden=32", "model.hidden"),
    "lora": ("model.lora={r: 4, target_modules: all-linear}", "model.lora"),
    "digits": ("environment.digits=3", "environment.digits"),
    "speed": ("speed.padding_free=false", "speed.padding_free"),
    "length": ("trainer.max_completion_length=5", "trainer.max_completion_length"),
    "generator": ("generator=transformers", "generator"),
    "a reward less": ("rewards=[{name: length, limit: 8}]", "rewards[1]"),
}


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run of one step on a local data set, with a single-file plugin."""
    folder = tmp_path_factory.mktemp("started")
    file = recipe(folder, max_steps=2)
    document = yaml.safe_load(file.read_text())
    rows = [{"prompt": f"{a}+2=", "answer": str(a + 2)} for a in range(8)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "polite.py").write_text(PLUGIN)
    document["plugins"] = {"load": ["polite.py"]}
    document["rewards"].insert(0, "polite")
    file.write_text(yaml.safe_dump(document))
    launch(file, [], out=folder / "run")
    return folder


def check(folder: Path, file: Path, *overrides: str, allowed: tuple[str, ...] = ()) -> None:
    check_resumable(folder, *read(file, overrides, allowed), allow_changed=allowed)


@pytest.mark.parametrize("change", one_in(8, [*OVERRIDES]))
def test_changed_recipe(started: Path, tmp_path: Path, change: str) -> None:
    override, key = OVERRIDES[change]
    copy, file = unfinished(started / "run", tmp_path / "run"), started / "full.yaml"
    with pytest.raises(RlmError, match="in the run") as error:
        check(copy, file, override)
    assert key in str(error.value)
    edited = yaml.safe_load((copy / "recipe.yaml").read_text())
    assert edited == Run(copy).manifest()["recipe"]


def edit_recipe(run: Path) -> None:
    document = yaml.safe_load((run / "recipe.yaml").read_text())
    document["trainer"]["learning_rate"] = 0.5
    (run / "recipe.yaml").write_text(yaml.safe_dump(document))


def edit_processes(run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps(manifest | {"processes": 4}))


def edit_manifest(section: str, key: str, value: object) -> Callable[[Path], None]:
    def edit(run: Path) -> None:
        manifest = json.loads((run / "manifest.json").read_text())
        section_of = manifest[section]
        section_of[key] = value
        (run / "manifest.json").write_text(json.dumps(manifest))

    return edit


BENEATH: dict[str, tuple[Callable[[Path], Any], str]] = {
    "recipe in the run": (edit_recipe, "trainer.learning_rate"),
    "TRL": (edit_manifest("packages", "trl", "1.15.0"), "packages.trl"),
    "torch": (edit_manifest("packages", "torch", "2.0.0"), "packages.torch"),
    "Python": (edit_manifest("packages", "python", "3.10"), "packages.python"),
    "examples": (edit_manifest("data", "01-grpo", "another"), "data.01-grpo"),
    "a package of parts": (edit_manifest("version", "builtin", "rlm-plugins 0.0"), "version.builtin"),
    "number of processes": (edit_processes, "processes"),
    "code": (lambda run: (run / "plugins" / "polite.py").write_text(PLUGIN.replace("1.0", "2.0")), "code.polite.py"),
}


@pytest.mark.parametrize("change", one_in(4, [*BENEATH]))
def test_changed_beneath_the_recipe(started: Path, tmp_path: Path, change: str) -> None:
    edit, key = BENEATH[change]
    copy = unfinished(started / "run", tmp_path / "run")
    edit(copy)
    with pytest.raises(RlmError, match="in the run") as error:
        check(copy, copy)
    assert key in str(error.value)
    assert f"--allow-changed '{key}" in error.value.hint
    check(copy, copy, allowed=(key,))
    check(copy, copy)
    assert key in Run(copy).manifest()["changes"][0]["key"]


@pytest.mark.parametrize(
    ("key", "problem"), [("tokenizer", "another tokenizer or chat template"), ("base", "other base weights")]
)
def test_another_base_at_the_same_path(started: Path, tmp_path: Path, key: str, problem: str) -> None:
    copy = unfinished(started / "run", tmp_path / "run")
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["stages"]["01-grpo"][key] = "0" * 64
    (copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(RlmError, match=rf"{problem}.*\n.*--allow-changed {key}\.01-grpo"):
        resume(copy)
    allowed = launch(copy, [], resume=True, allow_changed=(key,)).folder
    assert weights(allowed) == weights(started / "run")


def test_a_tokenizer_is_known_by_vocabulary_and_template() -> None:
    def made(**knobs: Any) -> Any:
        return scratch(hidden=16, heads=2, intermediate=16, **knobs).tokenizer()

    used, same, other = made(), made(), made(characters="0123456789+=?abc")
    used(["1+1", "1"], padding=True, truncation=True, max_length=2)
    assert digest_of_tokenizer(used) == digest_of_tokenizer(same) != digest_of_tokenizer(other)
    same.chat_template = f"{same.chat_template} "
    assert digest_of_tokenizer(used) != digest_of_tokenizer(same)


def test_a_reward_model_at_the_same_path(tmp_path: Path) -> None:
    """The digest of a path of a part changes with the content and the number of its files."""
    (folder := tmp_path / "model").mkdir()
    (folder / "weights").write_text("1")
    document = {"rewards": [{"name": "reward_model", "path": str(folder)}], "environment": {"path": str(folder)}}
    found = [files_of(document)]
    for change in (lambda: (folder / "weights").write_text("2"), lambda: (folder / "more").write_text("2")):
        change()
        found.append(files_of(document))
    assert [[*each] for each in found] == [["rewards[0].path"]] * 3
    assert len({each["rewards[0].path"] for each in found}) == 3


def test_another_machine_is_said(started: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = unfinished(started / "run", tmp_path / "run")
    edit_manifest("hardware", "threads", 99)(copy)
    edit_manifest("hardware", "capability", "AVX9")(copy)
    check(copy, copy)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "hardware" in line]
    assert 'hardware.capability: "AVX9" in the run' in line
    assert "hardware.threads: 99 in the run" in line


def test_order_of_the_examples_is_part_of_their_digest(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "n": 1.5, "image": b"\x00"}, {"prompt": "b", "n": None, "image": b"\x01"}]
    assert digest_of_rows(rows) == digest_of_rows(Dataset.from_list(rows))
    assert digest_of_rows(rows) != digest_of_rows(Dataset.from_list(rows).select([1, 0]))
    assert digest_of_rows(Dataset.from_list(rows).to_iterable_dataset()) == STREAM


def test_a_finished_run_says_so(started: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (started / "run" / "summary.json").read_bytes()
    resume(started / "run")
    assert "finished before" in capsys.readouterr().out
    assert (started / "run" / "summary.json").read_bytes() == before


def test_the_manifest_records_where_a_run_comes_from(started: Path) -> None:
    manifest = Run(started / "run").manifest()
    assert {"started", "command", "git", "hardware", "packages", "overrides", "recipe", "code", "data"} <= set(manifest)
    assert manifest["recipe"]["trainer"]["learning_rate"] == 1e-3
    assert manifest["recipe"]["plugins"] == {"load": ["plugins/polite.py"]}
    stage = manifest["stages"]["01-grpo"]
    assert len(stage["base"]) == len(manifest["data"]["01-grpo"]["train"]) == 64
    assert (stage["settings"]["seed"], stage["settings"]["adam_beta2"]) == (42, 0.999)
