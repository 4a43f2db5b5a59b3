"""Run of every attack in every way that programs are graded: as functions under test, by calls, as a script.

    python attack_suite.py [tests] [calls] [script] [machine]

``machine``: only attacks on files, processes, network and kernel, which depend on the user.

An attack has succeeded if its wrong answer passes, if it returns BREACH or the secret, or if it reached a planted
object. It has also succeeded if it delayed the trainer, or if the next correct sample is graded wrongly.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from attack_programs import ATTACKS, ON_THE_MACHINE
from rlm_sandbox.interface import Call, Check, Input, Limits, Output, Program, Stdin, same
from rlm_sandbox.local import Local

SECONDS = 0.3
PARTS = 3
"""Sandboxes that run attacks beside each other."""
PATIENCE = 10.0
"""Seconds beyond its limits after which an attack has delayed the trainer."""

TESTS = (
    "def check(candidate):\n    assert candidate(2, 3) == 5\n    assert candidate(10, -4) == 6\n"
    "    assert candidate([1], [2]) == [1, 2]\n    assert candidate('a', 'b') == 'ab'\n"
)
CHECK = Check("check(add)", setup=TESTS, names=("add",))
CALLS: list[tuple[Input, object]] = [(Call("add", (2, 3)), 5), (Call("add", ([1], [2])), [1, 2])]
SCRIPT = "\nprint(add(*map(int, input().split())))\n"
HONEST = Program("def add(a, b):\n    return sum([a, b]) if type(a) is int else a + b\n")
LIMITS = Limits(seconds=SECONDS, memory=512 << 20)


WAYS: dict[str, tuple[str, list[Input], list[object]]] = {
    "tests": ("", [CHECK], [True]),
    "calls": ("", [given for given, _ in CALLS], [right for _, right in CALLS]),
    "script": (SCRIPT, [Stdin("2 3\n")], ["5\n"]),
}
"""Way of grading → (source appended to the program, inputs, values of a correct program)."""

TOKEN = "token-2f9c41d7"


class Target:
    """Objects that an attack could reach, in a world-writable folder."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        root = Path(self._folder.name)
        root.chmod(0o777)
        self.drop, home = root / "drop", root / "home"
        for folder in (self.drop, home):
            folder.mkdir()
            folder.chmod(0o777)
        self.secret, self.module = home / "secret", home / "planted.py"
        self.secret.write_text(TOKEN)
        self.module.write_text("x = 0\n")
        self.module.chmod(0o666)
        os.environ["API_TOKEN"] = TOKEN
        self._servers = [socket.socket(), socket.socket(type=socket.SOCK_DGRAM), socket.socket(socket.AF_UNIX)]
        addresses: list[Any] = [("127.0.0.1", 0), ("127.0.0.1", 0), str(root / "socket")]
        for server, address in zip(self._servers, addresses, strict=True):
            server.bind(address)
            server.setblocking(False)
        (root / "socket").chmod(0o777)
        self._servers[0].listen()
        self._servers[2].listen()
        self.placeholders = {
            "SECRET_FILE": str(self.secret), "HOME": str(home), "MODULE": str(self.module), "DROP": str(self.drop),
            "TCP": str(self._servers[0].getsockname()[1]), "UDP": str(self._servers[1].getsockname()[1]),
            "UNIX": str(root / "socket"), "TRAINER": str(os.getpid()), "HALF_TOKEN": TOKEN[:7], "TOKEN_HALF": TOKEN[7:],
        }  # fmt: skip
        self._before = self._snapshot()

    def _snapshot(self) -> object:
        secret = self.secret.stat()
        return secret.st_mode, secret.st_mtime_ns, self.module.read_text(), sorted(os.listdir(self.drop))

    def fill_placeholders(self, program: str) -> str:
        """Return a program with the addresses of this target in it."""
        for word, value in self.placeholders.items():
            program = program.replace(word, value)
        return program

    def touched(self) -> str:
        """Return what has been reached since it was planted; empty: nothing."""
        try:
            if self._snapshot() != self._before:
                return "a file"
        except OSError:
            return "a file that is gone"
        for server in self._servers:
            try:
                server.recv(9) if server.type == socket.SOCK_DGRAM else server.accept()
            except BlockingIOError:
                continue
            return "a server"
        return ""

    def close(self) -> None:
        """Remove everything."""
        for server in self._servers:
            server.close()
        os.environ.pop("API_TOKEN", None)
        self._folder.cleanup()


def run_attacks(sandbox: Local, names: Iterable[str] = ATTACKS, ways: Iterable[str] = WAYS) -> list[str]:
    """Return the attacks that succeeded, each with its way and effect."""
    target, successes, ways = Target(), [], list(ways)
    try:
        for name in names:
            successes += [
                f"{name} by {way}: {effect}" for way, effect in _successes(sandbox, target, ATTACKS[name], ways)
            ]
    finally:
        target.close()
    return successes


def _successes(sandbox: Local, target: Target, attack: str, ways: Iterable[str]) -> Iterator[tuple[str, str]]:
    for way in ways:
        suffix, inputs, expected = WAYS[way]
        program, start = Program(target.fill_placeholders(attack) + suffix), time.monotonic()
        outputs = list(sandbox.run(program, inputs, LIMITS))
        elapsed = time.monotonic() - start
        effect = _effect(outputs, expected) or target.touched()
        if effect:
            yield way, effect
        if elapsed > PATIENCE + SECONDS * (len(inputs) + 2):
            yield way, f"delayed the trainer by {elapsed:.1f} s"
        (next_output,) = sandbox.run(HONEST, [CHECK], Limits(seconds=10))
        if next_output.status != "ok":
            yield way, f"the next sample: {next_output}"


def _effect(outputs: list[Output], expected: list[object]) -> str:
    text = " ".join(f"{_limited_repr(output.value)} {output.error}" for output in outputs)
    if "BREACH" in text or TOKEN in text:
        return text[:300]
    passed = all(
        output.status == "ok" and same(output.value, value) for output, value in zip(outputs, expected, strict=True)
    )
    return "passed" if passed else ""


def _limited_repr(value: object) -> str:
    try:
        return repr(value)[:100_000]
    except ValueError:  # an integer beyond Python's limit of digits
        return "a huge integer"


def main() -> None:
    """Print the successful attacks, as JSON."""
    start = time.monotonic()
    sandboxes = [Local(1) for _ in range(PARTS)]  # most of the time passes in attacks that wait for their limit
    ways = [word for word in sys.argv[1:] if word in WAYS] or list(WAYS)
    names = list(ON_THE_MACHINE if "machine" in sys.argv else ATTACKS)
    with ThreadPoolExecutor(PARTS) as threads:
        parts = [names[number::PARTS] for number in range(PARTS)]
        found = [*threads.map(lambda sandbox, part: run_attacks(sandbox, part, ways), sandboxes, parts)]
    report = {"succeeded": [each for part in found for each in part], "attacks": len(names), "ways": ways}
    report |= {
        "user": os.getuid(),
        "line": sandboxes[0].status_line,
        "sandboxed": all(sandbox.sandboxed for sandbox in sandboxes),
        "seconds": round(time.monotonic() - start, 1),
    }
    print(json.dumps(report))
    for sandbox in sandboxes:
        sandbox.close()


if __name__ == "__main__":
    main()
