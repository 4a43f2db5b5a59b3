"""The local sandbox: order of outputs, replacement, threads and forks, missing locks, and leaks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from attack_programs import GRADING
from attack_suite import CHECK, HONEST
from rlm_sandbox import Call, Check, Limits, Local, Program, SandboxError, Stdin, local
from rlm_sandbox.sample import PACKAGE, Zygote

ECHO = Program("def echo(x): return x")
PATIENT = Limits(seconds=30.0)


@pytest.fixture
def sandbox() -> Iterator[Local]:
    runner = Local(2)
    yield runner
    runner.close()


def values(sandbox: Local, program: Program, *inputs: Call | Check | Stdin) -> list[object]:
    return [output.value for output in sandbox.run(program, inputs, PATIENT)]


def test_inputs_after_a_late_one_are_skipped(sandbox: Local) -> None:
    slow = Program("import time\ndef f(n):\n    time.sleep(n)\n    return n")
    limits = Limits(seconds=0.5)
    found = [o.status for o in sandbox.run(slow, [Call("f", (0,)), Call("f", (60,)), Call("f", (0,))], limits)]
    assert found == ["ok", "late", "skipped"]
    assert values(sandbox, ECHO, Call("echo", (1,))) == [1]


def test_outputs_may_be_abandoned_early(sandbox: Local) -> None:
    for _ in range(20):
        outputs = sandbox.run(ECHO, [Call("echo", (n,)) for n in range(9)], PATIENT)
        assert next(outputs).value == 0
        outputs.close()  # type: ignore[attr-defined]
    assert values(sandbox, ECHO, Call("echo", (1,))) == [1]


def test_a_program_that_does_not_load_fails_every_input(sandbox: Local) -> None:
    outputs = list(sandbox.run(Program("def f(:"), [Call("f"), CHECK], PATIENT))
    assert [output.error.split(":")[0] for output in outputs] == ["SyntaxError"] * 2


def test_programs_are_deterministic(sandbox: Local) -> None:
    program = Program("import random\nprint(random.random(), {chr(n) for n in range(99)}, hash('x'))")
    assert len({str(values(sandbox, program, Stdin())) for _ in range(6)}) == 1


def test_installed_modules_can_be_listed() -> None:
    pytest.importorskip("numpy")
    sandbox = Local(1, modules=["numpy"])
    program = Program("import numpy as np\ndef f(n): return float(np.linalg.norm(np.ones((n, n))))")
    assert values(sandbox, program, Call("f", (3,))) == [3.0]
    sandbox.close()
    with pytest.raises(SandboxError, match="no_such_module"):
        next(Local(1, modules=["no_such_module"]).run(ECHO, [Call("echo", (1,))]))


def test_killed_zygote_is_replaced(sandbox: Local) -> None:
    assert values(sandbox, ECHO, Call("echo", (1,))) == [1]
    for zygote in list(sandbox._pool._idle):  # type: ignore[union-attr]
        os.kill(zygote._process.pid, signal.SIGKILL)
        zygote._process.wait()
    assert values(sandbox, ECHO, Call("echo", (1,))) == [1]


def test_more_threads_than_workers(sandbox: Local) -> None:
    found: list[object] = []
    threads = [
        threading.Thread(target=lambda n=n: found.extend(values(sandbox, ECHO, Call("echo", (n,))))) for n in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(12))  # type: ignore[type-var]


def descendants(pid: int) -> list[int]:
    """Return the processes that a process and its children have started."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found += [child, *descendants(child)]
    return found


def test_no_resource_leaks(sandbox: Local) -> None:
    """One in five of these samples is hostile, one in five wrong, and one in 50 never ends."""
    hostile = [Program(GRADING[name]) for name in ("os_exit", "eq_true", "fd_forge", "result_forge", "marker")]
    wrong, endless = Program("def add(a, b): return a - b"), Program("def add(a, b):\n    while True: pass")

    def held() -> tuple[int, int]:
        return len(descendants(os.getpid())), len(os.listdir("/proc/self/fd"))

    def run(count: int) -> None:
        for number in range(count):
            program = [HONEST, HONEST, HONEST, wrong, hostile[number // 5 % 5]][number % 5]
            is_endless = number % 50 == 49
            limits = Limits(seconds=0.2) if is_endless else PATIENT
            (output,) = sandbox.run(endless if is_endless else program, [CHECK], limits)
            assert (output.status == "ok") == (program is HONEST)

    run(50)
    before = held()
    run(250)
    assert held() == before
    sandbox.close()
    assert held()[0] <= before[0] - 2


SCRIPT = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
from rlm_sandbox import Call, Program, shared
run = lambda: next(shared(1).run(Program("def f(): return 7"), [Call("f")])).value
assert run() == 7
from test_local import descendants
print(*descendants(os.getpid()), flush=True)
{}
"""
BUSY = (
    "next(shared(1).run(Program('def f():\\n    while True: pass'), [Call('f')], __import__('rlm_sandbox').Limits(60)))"
)
FORKED = "pid = os.fork()\nassert run() == 7\nif pid: assert os.wait()[1] == 0\nelse: shared(1).close(); os._exit(0)"


def _listens() -> None:
    """Restore SIGINT, which background processes of a shell ignore and pass on to their children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize(
    ("ending", "sent"),
    [
        ("", None),
        ("os._exit(3)", None),
        ("time.sleep(60)", signal.SIGKILL),
        (BUSY, signal.SIGKILL),
        (BUSY, signal.SIGINT),
        (FORKED, None),
    ],
    ids=["end", "exit", "killed", "killed while busy", "interrupted while busy", "forked"],
)
def test_zygotes_end_with_the_trainer(ending: str, sent: int | None) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(ending)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{PACKAGE.parent}:{Path(__file__).parent}"},
        start_new_session=True,
        preexec_fn=_listens,
    )
    assert process.stdout is not None
    zygotes = [int(word) for word in process.stdout.readline().split()]
    assert len(zygotes) == 2
    if sent is not None:
        time.sleep(0.5)
        os.killpg(process.pid, sent)
    _, errors = process.communicate(timeout=180)
    assert sent or process.returncode in (0, 3), errors
    end = time.monotonic() + 20
    while any(Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes() for pid in zygotes):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_missing_locks_are_an_error_with_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "MACHINES", {})
    with pytest.raises(SandboxError, match="no locks for linux") as error:
        next(Local(1).run(ECHO, [Call("echo", (1,))]))
    assert local.ALLOW in str(error.value)


def test_error_names_a_successful_canary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "Zygote", lambda modules, jail, unlocked: Zygote(modules, jail, unlocked=True))
    with pytest.raises(SandboxError, match=r"succeeded with .*a process"):
        next(Local(1).run(ECHO, [Call("echo", (1,))]))


def test_unsandboxed_mode_prints_a_warning(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(local, "MACHINES", {})
    monkeypatch.setenv(local.ALLOW, "1")
    sandbox = Local(1)
    assert values(sandbox, ECHO, Call("echo", (1,))) == [1]
    assert not sandbox.sandboxed
    assert sandbox.status_line.startswith("code sandbox: NONE")
    assert sandbox.status_line in capsys.readouterr().err
    sandbox.close()


def test_status_line_lists_the_locks(capsys: pytest.CaptureFixture[str]) -> None:
    sandbox = Local(1)
    values(sandbox, HONEST, CHECK)
    assert sandbox.sandboxed
    assert "8/8 canaries caught" in capsys.readouterr().err
    sandbox.close()
