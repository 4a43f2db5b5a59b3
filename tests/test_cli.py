"""The command line: output, imports and errors."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_plugins import Installer, reward
from launch_runs import python
from typer.testing import CliRunner

from rlm_plugins import __version__
from rlm_plugins.cli import app, output
from rlm_plugins.equation.hooks import HOOKS

RECIPE = """
environment: {name: addition, digits: 2, train_rows: 64, test_rows: 8}
rewards: [accuracy, {name: length, limit: 8, weight: 0.1}]
evaluation: {metric: length, max_new_tokens: 4}
stages:
  - name: show
    model: {name: scratch, hidden: 16, heads: 2, intermediate: 16}
    algorithm: sft
    trainer: {max_steps: 1, per_device_train_batch_size: 2, save_strategy: "no"}
  - name: tell
    algorithm: grpo
    trainer: {max_steps: 2, per_device_train_batch_size: 8, num_generations: 4, max_completion_length: 4, save_steps: 1}
"""
BROKEN = "import nothing_of_that_name\n"


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a recipe that trains within seconds, and change to its folder."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine.yaml"
    file.write_text(RECIPE)
    return file


def rlm(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def output_of(*arguments: object) -> str:
    """Return the output of a command, and check that it succeeds."""
    result = rlm(*arguments)
    assert result.exit_code == 0, result.output + repr(result.exception)
    return str(result.stdout)


def process(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    outside = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=outside, capture_output=True, text=True, timeout=300
    )


# ------------------------------------------------------------------ finding one's way


def test_every_command_has_a_help_text() -> None:
    listed = output_of("--help")
    assert len(listed.splitlines()) <= 25
    commands = [words[-2] for line in re.findall(r"^  .*", listed, re.M) if len(words := re.split("  +", line)) > 2]
    assert len(commands) == 17
    for command in commands:
        assert len(output_of(command, "--help")) > 200
    assert output_of("--version") == f"rlm {__version__}\n"


@pytest.mark.parametrize(
    ("chosen", "expected"), [({}, "3000"), ({"GOMP_SPINCOUNT": "9"}, "9"), ({"OMP_WAIT_POLICY": "ACTIVE"}, None)]
)
def test_threads_wait_briefly_unless_the_environment_sets_it(
    tmp_path: Path, chosen: dict[str, str], expected: str | None
) -> None:
    """OpenMP reads the variable once, when torch is imported."""
    program = (
        "import os, sys; from rlm_plugins.cli import typer_app as cli\n"
        "cli.app = lambda: print(os.environ.get('GOMP_SPINCOUNT'), 'torch' in sys.modules)\n"
        "cli.main()"
    )
    unset = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    outside = unset | chosen
    run = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=outside, capture_output=True, text=True)
    assert run.stdout == f"{expected} False\n"


def test_ascii_terminal_gets_ascii_and_a_warning_has_the_form_of_an_error(tmp_path: Path) -> None:
    model = "{name: scratch, hidden: 32, layers: 2, heads: 2, intermediate: 32, lora: {r: 4}}"
    recipe = f"model: {model}\nenvironment: addition\nrewards: [accuracy]\nalgorithm: grpo\n"
    (tmp_path / "recipe.yaml").write_text(recipe + "trainer: {max_steps: 1, num_generations: 2}\n")
    command = ("-m", "rlm_plugins", "check", "recipe.yaml", "--full")
    checked = process(*command, cwd=tmp_path, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert checked.returncode == 0, checked.stderr
    assert "epsilon" in checked.stdout
    assert checked.stderr.startswith("warning: environment: the prompt of training example 0 has"), checked.stderr


def test_plugins() -> None:
    listed = output_of("explain", "plugins")
    for hook in HOOKS.values():
        if hook.key not in ("rollouts", "command", "observers"):  # without built-in parts
            assert f"  {hook.key} " in listed
    assert "GRPO without the two divisions" in listed


def test_plugins_for_programs() -> None:
    (builtin, *_) = json.loads(output_of("explain", "plugins", "--json"))
    assert set(builtin) == {"name", "origin", "error", "traceback", "warning", "parts"}
    assert (builtin["name"], builtin["error"]) == ("builtin", None)
    clip = next(part for part in builtin["parts"]["policy_loss"] if part["name"] == "clip")
    assert set(clip) == {"name", "full_name", "about"}


def test_a_broken_plugin_is_listed_with_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Installer(tmp_path, monkeypatch)("acme", BROKEN)
    listed = output_of("explain", "plugins")
    assert "acme  (rlm-acme 1.0)\n  NOT LOADED: ModuleNotFoundError: No module named 'nothing_of_that_name'" in listed
    assert f'File "{file}", line 1' in listed
    assert "importlib" not in listed, "the traceback begins where the plugin's code does"
    assert "clip" in listed, "the others are there"


def test_a_single_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(reward("politeness"))
    assert "politeness" in output_of("explain", "plugins", "--load", tmp_path / "mine.py")
    assert "from mine" in output_of("explain", "politeness", "--load", tmp_path / "mine.py")


def test_explain() -> None:
    assert "ℓ = −min(min(w, δ) Â" in output_of("explain", "clip")
    entries = json.loads(output_of("explain", "entropy", "--json"))
    assert [entry["kind"] for entry in entries] == ["part", "batch", "metric"]


# ------------------------------------------------------------------ recipes


def test_check(recipe: Path) -> None:
    override = "stages.1.algorithm.policy_loss.epsilon=0.3"
    brief, text = output_of("check", recipe, override), output_of("check", recipe, override, "--full")
    assert brief.splitlines()[-1].startswith("ok")
    assert len(brief.splitlines()) <= 8
    assert max(map(len, brief.splitlines())) <= 120
    assert text.splitlines()[-1] == "ok"
    for words in ("01-show", "02-tell", "1−0.3", "about"):
        assert words in brief
        assert words in text
    assert "column of addition" in text
    assert [stage["name"] for stage in json.loads(output_of("check", recipe, "--json"))] == ["01-show", "02-tell"]


def test_check_with_the_origin_of_each_value(recipe: Path) -> None:
    text = output_of("check", recipe, "--full", "stages.1.algorithm.policy_loss.epsilon=0.3")
    lines = {line.split()[0]: line for line in text.splitlines() if line}
    assert lines["stages[1].algorithm.policy_loss.epsilon"].endswith("command line")
    assert lines["stages[1].algorithm.penalties[0].beta"].endswith("algorithm grpo")
    assert lines["stages[0].environment.digits"].endswith("mine.yaml line 2")
    values = json.loads(output_of("check", recipe, "--json"))[1]["settings"]
    assert {"path": "stages[1].trainer.save_steps", "value": 1, "origin": "mine.yaml line 12"} in values


def test_schema(tmp_path: Path) -> None:
    assert "yaml-language-server" in output_of("explain", "--schema", tmp_path / "schema.json")
    written = json.loads((tmp_path / "schema.json").read_text())
    assert written == json.loads(output_of("explain", "--schema", "-"))
    assert "algorithm" in written["properties"]


def test_new(tmp_path: Path) -> None:
    folder, *files, advice = output_of("new", "reward", "politeness", "--folder", tmp_path / "mine").splitlines()
    assert folder == f"new folder: {tmp_path / 'mine'}"
    assert all(Path(file).is_file() for file in files)
    package = tmp_path / "mine" / "rlm-politeness"
    assert (package / "pyproject.toml").is_file()
    assert f"pip install -e {package}, " in advice
    assert rlm("new", "rewrad", "politeness", "--folder", tmp_path).exit_code == 2


# ------------------------------------------------------------------ failing


MISTAKES = {
    "check mine.yaml stages.1.algorithm.name=grppo": "did you mean 'grpo'",
    "train mine.yaml stages.1.algorithm.name=grppo": "did you mean 'grpo'",
    "eval mine.yaml stages.1.algorithm.name=grppo": "did you mean 'grpo'",
    "check mine.yaml algorithm.advantage=a.py:f": "algorithm (command line): has no effect: every stage has its own",
    "check mine.yaml --processes 0": "greater than or equal to 1, got '0'",
    "check line.yaml": "file not found\n",  # the suffix is no likeness
    "check .": "expected the folder of a run: there is no recipe.yaml",
    "compare . ./": "expected different runs, got this one twice",
    "doctor --disable rlm-mth": "no plugin 'rlm-mth' is installed",
    "eval nowhere": "there is no such run, recipe or model",
    "explain grpo --load a.py": "'--load': file 'a.py' does not exist",
    "explain mine.yaml": "`rlm check RECIPE` and `rlm why RUN`",
    "explain grpo dapoo": "did you mean 'dapo'",
    "fits sft": "sft generates no completions",
    "view .": "expected the folder of a run: there is no recipe.yaml",
    "view . . .": "expected one or two runs, got 3",
    "why .": "expected the folder of a run: there is no recipe.yaml",
}


@pytest.mark.parametrize(("words", "message"), MISTAKES.items())
def test_a_mistake_is_a_message_and_exit_code_2(recipe: Path, words: str, message: str) -> None:
    os.mkfifo("pipe")  # which a run must not have
    result = rlm(*words.split())
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not (recipe.parent / "runs").exists()


@pytest.mark.parametrize("debug", [["--debug", "check"], ["check", "--debug"], ["check"]])
def test_debug_shows_where_it_was_raised(debug: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLM_DEBUG", str(int("--debug" not in debug)))  # put back afterwards
    result = rlm(*debug, "nowhere.yaml")
    assert result.exception is not None
    assert not isinstance(result.exception, SystemExit)


def test_a_part_of_a_broken_plugin_fails_with_the_traceback_of_the_plugin(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Installer(tmp_path, monkeypatch)("acme", BROKEN)
    output_of("check", recipe)
    result = rlm("check", recipe, "rewards=[acme/brevity]")
    assert result.exit_code == 2
    assert "caused by" in result.stderr
    assert f'File "{file}", line 1' in result.stderr
    assert "nothing_of_that_name" in result.stderr


# ------------------------------------------------------------------ runs


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished run of the recipe."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "mine.yaml").write_text(RECIPE)
    output_of("train", folder / "mine.yaml", "--out", folder / "run")
    return folder / "run"


@pytest.mark.slow
def test_eval_of_a_run_and_of_its_start(run: Path) -> None:
    after = json.loads(output_of("eval", run, "--json", "--samples", 2))
    assert set(after) == {"set", "stage", "model", "metric", "score", "low", "high", "rows", "rewards", "samples"}
    assert (after["stage"], after["metric"], after["rows"], len(after["samples"])) == ("02-tell", "length", 8, 2)
    assert after["low"] <= after["score"] <= after["high"]
    summary = json.loads((run / "summary.json").read_text())
    assert after["score"] == summary["after"], "what was trained is what is judged"
    first = json.loads(output_of("eval", run, "--json", "--stage", "show"))
    assert first["score"] == summary["before"]
    start = json.loads(output_of("eval", run / "recipe.yaml", "--json", "--rows", 3))
    assert start["rows"] == 3
    assert "from scratch" in start["model"]


@pytest.mark.slow
def test_eval_for_people(run: Path) -> None:
    text = output_of("eval", run, "--samples", 1)
    assert text.count("prompt  ") == 1
    assert text.splitlines()[-1].startswith("02-tell: held-out length ")
    result = rlm("eval", run, "--stage", "shwo")
    assert "did you mean 'show'" in result.stderr


@pytest.fixture
def unfinished(recipe: Path, run: Path) -> Path:
    """Return the folder of a run of the recipe that was killed between its stages."""
    folder = Path(shutil.copytree(run, recipe.parent / "runs" / "mine"))
    (folder / "summary.json").unlink()
    (folder / "02-tell" / "done").unlink()
    return folder


@pytest.mark.slow
def test_resume_goes_on_with_the_newest_unfinished_run(recipe: Path, unfinished: Path) -> None:
    folder = unfinished
    text = output_of("train", recipe, "--resume")
    assert text.startswith("run folder: runs/mine\n01-show: complete, skipped")
    assert (folder / "02-tell" / "done").exists()
    assert [path.name for path in folder.parent.iterdir()] == ["mine"]
    nothing = rlm("train", recipe, "--resume")
    assert nothing.exit_code == 2
    assert "nothing to resume" in nothing.stderr


@pytest.mark.slow
def test_resume_rejects_another_recipe_with_its_differences(recipe: Path, unfinished: Path) -> None:
    folder = unfinished
    changed = ("stages.1.algorithm.policy_loss.epsilon=0.3", "rewards.1.weight=0.2")
    result = rlm("train", recipe, "--resume", *changed)
    assert result.exit_code == 2
    assert "stages[1].algorithm.policy_loss.epsilon: 0.2 in the run, 0.3 now" in result.stderr
    assert "stages[0].rewards[1].weight: 0.1 in the run, 0.2 now" in result.stderr
    assert not (folder / "02-tell" / "done").exists()
    one = ("--allow-changed", "stages[0].rewards[1].weight", *changed)
    assert "stages[0].rewards[1].weight" not in rlm("train", recipe, "--resume", *one).stderr.partition("hint")[0]
    output_of("train", recipe, "--resume", "--allow-changed", "stages", *changed)
    after = yaml.safe_load((folder / "recipe.yaml").read_text())
    assert after["stages"][1]["algorithm"]["policy_loss"]["epsilon"] == 0.3
    before = yaml.safe_load((folder / "recipe.old.yaml").read_text())
    assert before["stages"][1]["algorithm"]["policy_loss"]["epsilon"] == 0.2


@pytest.mark.slow
def test_a_run_folder_stands_for_its_recipe(unfinished: Path) -> None:
    output_of("train", unfinished, "--resume")
    assert (unfinished / "summary.json").exists()
    assert "ok" in output_of("check", unfinished)
    result = rlm("train", unfinished, "--resume", "--out", unfinished / "nowhere")
    assert "there is no run to resume" in result.stderr


@pytest.mark.slow
def test_interrupt_prints_the_resume_command(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rlm_plugins.run.train._train_stage", interrupt)
    result = rlm("train", recipe)
    assert result.exit_code == 130
    assert "--resume" in result.stderr


@pytest.mark.slow
def test_a_part_that_fails_in_a_run_fails_with_its_own_lines(recipe: Path) -> None:
    part = recipe.parent / "fragile.py"
    part.write_text(reward("fragility", "return [1 / 0 for text in completions]"))
    recipe.write_text("plugins: {load: [./fragile.py]}\n" + RECIPE.replace("[accuracy", "[fragility, accuracy"))
    result = rlm("train", recipe)
    assert result.exit_code == 2
    assert "reward 'fragility' (plugin 'fragile'" in result.stderr
    trace = result.stderr.partition("caused by")[2]
    assert f'File "{part}"' in trace
    assert "1 / 0" in trace
    assert "trl" not in trace


ODD = """from rlm_plugins import hookimpl


def none_of_them(size):
    '''Chooses no row.'''
    return []


def too_many(size):
    '''Chooses rows twice.'''
    return [*range(size), 0]


def forgetful():
    '''Returns nothing.'''


@hookimpl
def rlm_samplers():
    return {"none_of_them": none_of_them, "too_many": too_many, "broken": lambda size: 1 / 0}


@hookimpl
def rlm_callbacks():
    return {"forgetful": forgetful}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("stages.1.algorithm.sampler=none_of_them", "the sampler 'none_of_them' returned 0 indices for"),
        ("stages.1.algorithm.sampler=too_many", "the sampler 'too_many' returned"),
        ("stages.1.algorithm.sampler=broken", "part 'odd/broken' (rlm_samplers"),
        ("stages.1.callbacks=[forgetful]", "part 'odd/forgetful' (rlm_callbacks"),
    ],
)
def test_a_sampler_or_callback_that_cannot_be_used_is_named(recipe: Path, override: str, words: str) -> None:
    (recipe.parent / "odd.py").write_text(ODD)
    recipe.write_text("plugins: {load: [./odd.py]}\n" + RECIPE)
    result = rlm("train", recipe, override)
    assert result.exit_code == 2
    assert words in result.stderr


AGREE = """
import os, time
from pathlib import Path
from rlm_plugins.run.launch import from_main_process
from rlm_plugins.workers.distributed import shutdown
from rlm_plugins.run.folder import fresh_folder

rank = int(os.environ["RANK"])
time.sleep(2 * rank)  # long enough for process 0 to make its folder, were it not to wait
folder = from_main_process(lambda: fresh_folder(Path("runs/mine")))
if rank == 0:
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").touch()
Path(f"process{rank}").write_text(str(folder))
shutdown()
"""


@pytest.mark.slow
def test_two_processes_agree_on_the_folder(tmp_path: Path) -> None:
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "runs" / "mine" / "recipe.yaml").touch()
    (tmp_path / "agree.py").write_text(AGREE)
    python(2, "agree.py", cwd=tmp_path)
    assert [(tmp_path / f"process{rank}").read_text() for rank in (0, 1)] == ["runs/mine-2"] * 2


def test_a_command_of_a_package_that_is_missing_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "plugin_commands", dict)
    result = CliRunner().invoke(app, ["reward"])
    assert result.exit_code == 2
    assert "unknown command 'reward'" in result.output
    assert "hint: pip install rlm-audit" in result.output
