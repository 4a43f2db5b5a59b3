"""The output of a command that is killed, or whose disk is full, is whole or absent, and the next try succeeds."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
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
    "switch": (["doctor", "--disable", "rlm-gym"], "out/cfg/rlm-plugins"),
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


def tried(arguments: list[str], out: Path, action: Callable[[int, str], None]) -> tuple[int, str]:
    """Run a command in a child process with an action at each file operation in `out`; return status and output."""

    def task() -> int:
        points = Points(out, action)
        points.install()
        if status := app(arguments, standalone_mode=False):
            raise SystemExit(status)
        return points.count

    log = out.with_name("log")
    return in_child(task, log), log.read_text()


def nothing(number: int, operation: str) -> None:
    """Let a file operation be."""


def kill(number: int, operation: str, at: int = 0) -> None:
    if number == at:
        os.kill(os.getpid(), signal.SIGKILL)


def fill(number: int, operation: str, at: int = 0) -> None:
    if number >= at and not operation.startswith(("os.remove", "os.rmdir")):
        raise error_of(errno.ENOSPC, operation)


def moments(count: int) -> range:
    return range(0, count, max(1, count // MOMENTS))


@pytest.mark.parametrize("command", COMMANDS)
def test_output_is_whole_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, cases: Any) -> None:
    arguments, name = COMMANDS[command]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "out" / "cfg"))
    if arguments[1] in ("full", "adapter"):
        run(tmp_path, arguments[1], max_steps=1)
    out = tmp_path / "out"
    out.mkdir()
    status, text = tried(arguments, out, nothing)
    assert status == 0, text
    expected, count = contents(tmp_path / name), int(text.split()[-1])
    assert expected
    for action in (kill, fill):
        for at in moments(count):
            with cases(f"{command}, {action.__name__} at {at} of {count}"):
                shutil.rmtree(out)
                out.mkdir()
                status, text = tried(arguments, out, lambda number, op, at=at, action=action: action(number, op, at))
                assert status == -signal.SIGKILL if action is kill else "cannot be" in text, text
                assert not contents(tmp_path / name) or contents(tmp_path / name) == expected or command == "switch"
                if contents(tmp_path / name) != expected:
                    status, text = tried(arguments, out, nothing)
                    assert status == 0, text
                    assert contents(tmp_path / name) == expected
                assert [path.name for path in out.iterdir()] == [Path(name).relative_to("out").parts[0]]


@pytest.mark.parametrize("command", CACHING)
def test_caches_are_whole_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, cases: Any) -> None:
    """A command that is killed, or cannot write its cache, leaves none that misleads the next one."""
    arguments, cache = CACHING[command], tmp_path / "cache"
    monkeypatch.chdir(tmp_path)
    for variable in ("RLM_CACHE", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(variable, str(cache))
    recipe(tmp_path)
    if arguments[1] == "full":
        run(tmp_path, max_steps=1)
    shutil.rmtree(cache, ignore_errors=True)
    cache.mkdir()
    status, text = tried(arguments, cache, nothing)
    assert status == 0, text
    said, count = text.rsplit("\n", 2)[0], int(text.split()[-1])
    for action in (kill, fill):
        for at in moments(count):
            with cases(f"{command}, {action.__name__} at {at} of {count}"):
                shutil.rmtree(cache)
                cache.mkdir()
                status, text = tried(arguments, cache, lambda number, op, at=at, action=action: action(number, op, at))
                assert status == (-signal.SIGKILL if action is kill else 0), text
                for file in cache.rglob("*.json"):
                    if not file.name.startswith("."):
                        json.loads(file.read_bytes())
                if action is kill:
                    status, text = tried(arguments, cache, nothing)
                    assert status == 0, text
                if command not in ("signal", "eval"):  # they print seconds
                    assert text.rsplit("\n", 2)[0] == said


def test_a_killed_race_is_finished_by_the_same_command(tmp_path: Path, cases: Any) -> None:
    file, whole, out = recipe(tmp_path, "adapter", max_steps=1), tmp_path / "whole", tmp_path / "out"
    arguments = ["sweep", str(file), "algorithm=grpo,rloo", "--race", "--out"]
    status, text = tried([*arguments, str(whole)], whole, nothing)
    assert status == 0, text
    expected, count = trained(whole), int(text.split()[-1])
    assert len(expected) >= 2
    for at in moments(count):
        with cases(f"race, kill at {at} of {count}"):
            shutil.rmtree(out, ignore_errors=True)
            status, text = tried([*arguments, str(out)], out, lambda number, op, at=at: kill(number, op, at))
            assert status == -signal.SIGKILL, text
            status, text = tried([*arguments, str(out)], out, nothing)
            assert status == 0, text
            assert trained(out) == expected


def trained(out: Path) -> dict[str, bytes]:
    return {str(file.relative_to(out)): file.read_bytes() for file in out.glob("*/01-*/adapter/*.safetensors")}


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="mounts a file system of 16 kB")
@pytest.mark.parametrize("command", [*COMMANDS, "sweep"])
def test_a_disk_that_is_really_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    arguments, name = COMMANDS.get(command, (["sweep", "full.yaml", "trainer.seed=1,2", "--out", "out/s"], "out/s"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "out" / "cfg"))
    recipe(tmp_path, max_steps=1)
    if arguments[1] in ("full", "adapter"):
        run(tmp_path, arguments[1], max_steps=1)
    (tmp_path / "out").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(tmp_path / "out")]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this container may not mount")
    try:
        (tmp_path / "out" / "filler").write_bytes(bytes(4096 * (3 if command in ("switch", "lesson", "new") else 2)))
        status, text = tried(arguments, tmp_path / "out", nothing)
        assert "Traceback" not in text
        assert status == 2, text
        assert "No space left" in text or "is the disk full" in text, text
        if command != "sweep":
            assert not contents(tmp_path / name)
        (tmp_path / "out" / "filler").unlink()
        subprocess.run(["mount", "-o", "remount,size=64m", str(tmp_path / "out")], check=True)
        status, text = tried(arguments, tmp_path / "out", nothing)
        assert status == 0, text
        assert contents(tmp_path / name)
    finally:
        subprocess.run(["umount", str(tmp_path / "out")], check=True)


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
