"""The attack suite, as the current and as an ordinary user; and that the attacks are effective."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import attack_programs
import attack_suite
import pytest
from attack_programs import ATTACKS, ONE_LINERS
from attack_suite import CHECK, run_attacks
from rlm_sandbox import Limits, Local, Program
from rlm_sandbox.local import ZygotePool
from rlm_sandbox.sample import PACKAGE, Zygote, interpreter

NOBODY: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []}


def readable_python() -> str | None:
    """Return a Python that any user may run: this one, or the system's."""
    for path in (interpreter(), shutil.which("python3", path="/usr/bin:/usr/local/bin")):
        check = "import sys; sys.exit(sys.version_info < (3, 11))"
        with suppress(OSError):
            if path and subprocess.run([path, "-c", check], cwd="/", **NOBODY).returncode == 0:
                return path
    return None


@pytest.fixture(scope="module")
def suites() -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Run the suite as the current user, and as an ordinary user the attacks that depend on the user."""
    with tempfile.TemporaryDirectory() as folder:  # a checkout may lie where nobody may read
        Path(folder).chmod(0o755)
        shutil.copytree(PACKAGE, Path(folder) / "rlm_sandbox")
        for module in (attack_programs, attack_suite):
            shutil.copy(module.__file__, folder)
        command, environment = [f"{folder}/attack_suite.py", "tests"], {"PYTHONPATH": folder}
        running = {"self": begun([sys.executable, *command], env=environment)}
        python = readable_python() if os.getuid() == 0 else None
        if python:
            running["nobody"] = begun([python, *command, "machine"], env=environment, **NOBODY)
        yield running
        for suite in running.values():
            suite.kill()
            suite.communicate()


def begun(command: list[str], **more: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/", **more)


@pytest.mark.slow
@pytest.mark.parametrize("user", ["self", "nobody"])
def test_no_attack_succeeds(user: str, suites: dict[str, subprocess.Popen[str]]) -> None:
    if user not in suites:
        pytest.skip("is an ordinary user already, or there is no Python 3.11 that user nobody may run")
    output, errors = suites[user].communicate(timeout=600)
    assert output, errors[-2000:]
    report = json.loads(output)
    assert report["succeeded"] == []
    assert report["sandboxed"]
    assert report["user"] == (os.getuid() if user == "self" else NOBODY["user"])
    assert report["attacks"] == len(ATTACKS if user == "self" else ONE_LINERS) >= 60


def test_attacks_succeed_without_the_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without seccomp, attacks succeed that Landlock and the ordinary user do not cover."""
    sandbox = Local(1)
    monkeypatch.setattr(sandbox, "_pool", ZygotePool(1, lambda: Zygote((), [], unlocked=True)))
    harmless = ["stat_home", "udp_loopback", "memfd", "machine_code", "socketpair", "outlive", "host_facts", "fork"]
    got = run_attacks(sandbox, harmless, ways=("tests", "calls"))
    sandbox.close()
    assert {line.split()[0] for line in got} == set(harmless), got


def test_attacks_load_and_run() -> None:
    """The attacks load and run up to the rejected operation; a broken attack would prove nothing."""
    sandbox = Local(1)
    for name in ONE_LINERS:
        program = ATTACKS[name]
        for word in ("TCP", "UDP", "TRAINER"):
            program = program.replace(word, "1")
        (output,) = sandbox.run(Program(program), [CHECK], Limits(seconds=10))
        assert output.error.startswith("AssertionError"), (name, output)
    sandbox.close()
