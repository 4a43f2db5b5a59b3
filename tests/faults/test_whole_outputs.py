"""The output of a command that is killed, or whose disk is full, is whole or absent, and the next try succeeds."""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fault_cases import recipe, run
from fault_points import Points, error_of, in_child, start_child, status_of

from rlm_plugins.cli import app
from rlm_plugins.durable.files import write_file

pytestmark = [pytest.mark.slow, pytest.mark.full, pytest.mark.faults(group="outputs")]
MOMENTS = 20
COMMANDS: dict[str, tuple[list[str], str]] = {
    "export": (["export", "full", "--to", "out/model"], "out/model"),
    "merge": (["export", "adapter", "--merge", "--to", "out/merged"], "out/merged"),
    "view": (["view", "full", "--out", "out/page.html"], "out/page.html"),
    "schema": (["explain", "--schema", "out/recipe.json"], "out/recipe.json"),
    "new": (["new", "reward", "other", "--folder", "out"], "out/rlm-other"),
    "lesson": (["lesson", "1", "--write", "out/part.py"], "out/part.py"),
    "switch": (["doctor", "--disable", "rlm-gym"], "out/rlm-plugins/disabled.json"),
}
"""Arguments, and the file or folder that the command writes."""
CACHING = {
    "check": ["check", "full.yaml"],
    "eval": ["eval", "full", "--rows", "2"],
    "explain": ["explain", "algorithms"],
    "reward": ["reward", "probe", "accuracy"],
    "sample": ["sample", "full", "1+1=", "--temperature", "0"],
    "signal": ["signal", "full.yaml", "--prompts", "1"],
    "trust": ["check", "full.yaml", "--trust"],
}
"""Commands that write nothing but caches."""


def contents(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def tried(arguments: list[str], out: Path, action: Any, at: int = 0) -> tuple[Any, str]:
    """Run a command with an action at each file operation in `out`; return its status and output.

    With `nothing` it must succeed, and the operations at which to try the others take the place of the status.
    """

    def task() -> int:
        points = Points(out, lambda number, operation: action(number, operation, at))
        points.install()
        if code := app(arguments, standalone_mode=False):
            raise SystemExit(code)
        return points.count

    log = out.with_name("log")
    code, text = in_child(task, log), log.read_text()
    assert code == 0 or action is not nothing, text
    said, _, count = text.rstrip("\n").rpartition("\n")
    return (range(0, int(count), max(1, int(count) // MOMENTS)), said) if action is nothing else (code, text)


def without_measured(text: str) -> set[str]:
    """Return the lines of a command's output, without measured memory and seconds."""
    lines = [line for line in text.splitlines() if not line.startswith("memory")]
    return {" ".join(re.sub(r"\d+\.\d\d\b", "", line).split()) for line in lines}


def nothing(number: int, operation: str, at: int = 0) -> None:
    """Return: the operation goes on."""


def kill(number: int, operation: str, at: int) -> None:
    if number == at:
        os.kill(os.getpid(), signal.SIGKILL)


def fill(number: int, operation: str, at: int) -> None:
    if number >= at and not operation.startswith(("os.remove", "os.rmdir")):
        raise error_of(errno.ENOSPC, operation)


def emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> Path:
    """Make the recipe or the run that a command reads, and return an empty folder for what it writes."""
    monkeypatch.chdir(tmp_path)
    recipe(tmp_path)
    if source in ("full", "adapter"):
        run(tmp_path, source, max_steps=1)
    for variable in ("RLM_CACHE", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / ("out" if variable != "RLM_CACHE" else "cache")))
    return emptied(tmp_path / "out")


@pytest.mark.matrix
@pytest.mark.parametrize("command", COMMANDS)
def test_output_is_whole_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, cases: Any) -> None:
    arguments, name = COMMANDS[command]
    out, target = prepared(tmp_path, monkeypatch, arguments[1]), tmp_path / name
    moments, _ = tried(arguments, out, nothing)
    expected = contents(target)
    assert expected
    for action, at in itertools.product((kill, fill), moments):
        with cases(f"{command}, {action.__name__} at {at}"):
            status, text = tried(arguments, emptied(out), action, at)
            assert status == -signal.SIGKILL if action is kill else "cannot be" in text, text
            assert not target.exists() or contents(target) == expected
            if not target.exists():
                tried(arguments, out, nothing)
                assert contents(target) == expected
            assert [path.name for path in out.iterdir()] == [Path(name).parts[1]]


@pytest.mark.matrix
@pytest.mark.parametrize("command", CACHING)
def test_caches_are_whole_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, cases: Any) -> None:
    """A command that is killed, or cannot write its cache, misleads no later one; seconds and memory are measured."""
    cache = prepared(tmp_path, monkeypatch, CACHING[command][1])
    monkeypatch.setenv("RLM_CACHE", str(cache))
    moments, said = tried(CACHING[command], cache, nothing)
    for action, at in itertools.product((kill, fill), moments):
        with cases(f"{command}, {action.__name__} at {at}"):
            status, text = tried(CACHING[command], emptied(cache), action, at)
            assert status == -signal.SIGKILL if action is kill else status >= 0, text
            _, text = tried(CACHING[command], cache, nothing)
            assert command in ("signal", "eval") or without_measured(text) <= without_measured(said)


@pytest.mark.matrix
def test_a_killed_race_is_finished_by_the_same_command(tmp_path: Path, cases: Any) -> None:
    file, out = recipe(tmp_path, "adapter", max_steps=1), tmp_path / "out"
    arguments = ["sweep", str(file), "algorithm=grpo,rloo", "--race", "--out", str(out)]
    moments, _ = tried(arguments, out, nothing)
    expected = {str(file): file.read_bytes() for file in out.glob("*/01-*/adapter/*.safetensors")}
    assert len(expected) == 2
    for at in moments:
        with cases(f"race, kill at {at}"):
            status, text = tried(arguments, emptied(out), kill, at)
            assert status == -signal.SIGKILL, text
            tried(arguments, out, nothing)
            assert {str(file): file.read_bytes() for file in out.glob("*/01-*/adapter/*.safetensors")} == expected


@pytest.mark.matrix
@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="mounts a file system of 16 kB")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_disk_that_is_really_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    arguments, name = COMMANDS[command]
    out = prepared(tmp_path, monkeypatch, arguments[1])
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", out], check=False).returncode:
        pytest.skip("this container may not mount")
    try:
        (out / "filler").write_bytes(bytes(2**14))
        status, text = tried(arguments, out, kill, -1)
        assert status == 2, text
        assert "No space left" in text or "is the disk full" in text, text
        assert [path.name for path in out.iterdir() if path.is_file()] == ["filler"]
        subprocess.run(["mount", "-o", "remount,size=64m", out], check=True)
        tried(arguments, out, nothing)
        assert contents(tmp_path / name)
    finally:
        subprocess.run(["umount", out], check=True)


def test_processes_that_write_one_file_at_once(tmp_path: Path) -> None:
    """Commands share caches: each reads a whole file, whichever was written last."""
    file = tmp_path / "cache.json"

    def write(number: int) -> None:
        for _ in range(100):
            write_file(file, json.dumps([number] * 20000))
            assert len(set(json.loads(file.read_bytes()))) == 1

    children = [start_child(lambda number=number: write(number), tmp_path / f"log{number}") for number in range(4)]
    for number, child in enumerate(children):
        assert status_of(child) == 0, (tmp_path / f"log{number}").read_text()
    assert sorted(path.name for path in tmp_path.iterdir() if "cache" in path.name) == ["cache.json"]
