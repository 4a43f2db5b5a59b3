"""A place that cannot hold a run is an error that names it, without a traceback; nothing is written outside."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fault_cases import recipe, run
from repetition import one_in
from typer.testing import CliRunner

from rlm_plugins.cli import app
from rlm_plugins.errors import RlmError
from rlm_plugins.workers.distributed import num_launched

pytestmark = [pytest.mark.slow, pytest.mark.faults(group="places")]


def a_file(folder: Path) -> Path:
    (folder / "file").write_text("")
    return folder / "file"


def below_a_file(folder: Path) -> Path:
    return a_file(folder) / "run"


def a_dangling_link(folder: Path) -> Path:
    (folder / "link").symlink_to(folder / "nowhere")
    return folder / "link"


def a_link_to_itself(folder: Path) -> Path:
    (folder / "loop").symlink_to(folder / "loop")
    return folder / "loop"


def a_pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


PLACES: dict[str, str | Callable[[Path], Path]] = {
    "a_file": a_file,
    "below_a_file": below_a_file,
    "a_folder_of_a_file_system_that_has_no_files": "/sys/kernel/run",
    "a_device": "/dev/null",
    "a_pipe": a_pipe,
    "a_dangling_link": a_dangling_link,
    "a_link_to_itself": a_link_to_itself,
    "a_long_name": "x" * 300,
    "a_read_only_place": "/proc/run",
}


@pytest.mark.parametrize("name", one_in(3, [*PLACES]))
def test_out(tmp_path: Path, name: str) -> None:
    place = PLACES[name]
    out = tmp_path / place if isinstance(place, str) else place(tmp_path)
    result = CliRunner().invoke(app, ["train", str(recipe(tmp_path)), "--out", str(out)])
    assert result.exit_code == 2, result.output
    assert os.fspath(out.name if len(out.name) < 300 else out.name[:40]) in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("name", one_in(3, ["../../escape", "/absolute", "..", "", "a/b", "x" * 300]))
def test_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["train", str(recipe(tmp_path)), "--name", name, "trainer.max_steps=1"])
    assert result.exit_code == (0 if not name else 2), result.output
    assert "Traceback" not in result.stderr
    assert not (tmp_path.parent.parent / "escape").exists()


def rlm(*arguments: str | bytes, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rlm_plugins", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})


@pytest.mark.parametrize("left", ["WORLD_SIZE=2", "WORLD_SIZE=two", "LOCAL_RANK=0"])
def test_left_over_variables_of_a_launcher(tmp_path: Path, left: str) -> None:
    name, _, value = left.partition("=")
    done = rlm("train", str(recipe(tmp_path)), "--out", str(tmp_path / "run"), **{name: value})
    assert done.returncode == 2, done.stderr
    assert "error: environment: " in done.stderr
    assert name in done.stderr.partition("hint: unset ")[2]
    assert "Traceback" not in done.stderr


def test_accelerate_that_starts_one_process_for_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a MULTI_CPU config it sets an address for several, and starts one."""
    monkeypatch.setenv("ACCELERATE_USE_CPU", "True")
    assert num_launched() == 1
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    with pytest.raises(RlmError, match="several processes of the config of accelerate, got one"):
        num_launched()


@pytest.mark.parametrize("command", ["train", "export"])
def test_a_path_that_is_not_utf8(tmp_path: Path, command: str) -> None:
    out = os.fsencode(tmp_path) + b"/\xff"
    source, option = (recipe(tmp_path), "--out") if command == "train" else (run(tmp_path, max_steps=1), "--to")
    done = rlm(command, str(source), option, out)
    assert done.returncode == 2, done.stderr
    assert "udcff: a path is not UTF-8" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", one_in(3, ["train", "doctor", "explain"]))
def test_in_a_folder_that_was_removed(tmp_path: Path, command: str) -> None:
    """Python itself starts there."""
    (gone := tmp_path / "gone").mkdir()
    arguments = [sys.executable, "-m", "rlm_plugins", command, *(["recipe.yaml"] if command == "train" else [])]
    shell = ["sh", "-c", 'cd "$0" && rmdir "$0" && exec "$@"', str(gone), *arguments]
    done = subprocess.run(shell, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "the working directory was removed" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("target", ["file", "folder"])
def test_no_link_in_a_run_folder_leads_a_write_outside(tmp_path: Path, target: str) -> None:
    """This holds for a folder with a run, and for one that is prepared for a run."""
    outside, run = tmp_path / "outside", tmp_path / "run"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    run.mkdir()
    for name in ("metrics.jsonl", "summary.json", "lock") if target == "file" else ("01-grpo", "plugins"):
        (run / name).symlink_to(outside / "kept" if target == "file" else outside)
    result = CliRunner().invoke(app, ["train", str(recipe(tmp_path)), "--out", str(run), "trainer.max_steps=1"])
    assert result.exit_code in (0, 2), result.output
    assert [path.name for path in outside.iterdir()] == ["kept"]
    assert (outside / "kept").read_text() == "kept"
