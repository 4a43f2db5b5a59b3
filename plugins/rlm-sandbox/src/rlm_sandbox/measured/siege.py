"""Runs every attack in every way a program is run: as functions under test, by calls, as a script.

    python -m rlm_sandbox.measured.siege [tests] [calls] [script] [machine]

``machine``: only those on files, processes, network and kernel, where it matters who runs them.

An attack has succeeded when its wrong answer passes, when it says BREACH or shows the secret, when something
planted was reached, when it held up whoever waited, or when the next, honest sample is graded wrongly.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator

from rlm_sandbox.comparing import same
from rlm_sandbox.interface import Call, Check, Input, Limits, Output, Program, Stdin
from rlm_sandbox.local import Local
from rlm_sandbox.measured.attacks_on_the_machine import ON_THE_MACHINE
from rlm_sandbox.measured.attacks_on_the_verdict import ON_THE_VERDICT
from rlm_sandbox.measured.target import TOKEN, Target

ATTACKS = {**ON_THE_MACHINE, **ON_THE_VERDICT}
SECONDS = 0.3
PATIENCE = 10.0
"""Seconds beyond its limits after which an attack has held us up."""

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
"""How a program is graded → (what is added to it, inputs, values a right one would give)."""


def besiege(sandbox: Local, names: Iterable[str] = ATTACKS, ways: Iterable[str] = WAYS) -> list[str]:
    """The attacks that succeeded, each with its way and what it got."""
    target, got, ways = Target(), [], list(ways)
    try:
        for name in names:
            got += [f"{name} by {way}: {what}" for way, what in _tried(sandbox, target, ATTACKS[name], ways)]
    finally:
        target.close()
    return got


def _tried(sandbox: Local, target: Target, attack: str, ways: Iterable[str]) -> Iterator[tuple[str, str]]:
    for way in ways:
        added, inputs, right = WAYS[way]
        program, begun = Program(target.aimed(attack) + added), time.monotonic()
        outputs = list(sandbox.run(program, inputs, LIMITS))
        took = time.monotonic() - begun
        if what := _got(outputs, right) or target.touched():
            yield way, what
        if took > PATIENCE + SECONDS * (len(inputs) + 2):
            yield way, f"held us up for {took:.1f} s"
        (after,) = sandbox.run(HONEST, [CHECK], Limits(seconds=10))
        if after.status != "ok":
            yield way, f"the next sample: {after}"


def _got(outputs: list[Output], right: list[object]) -> str:
    said = " ".join(f"{_shown(output.value)} {output.error}" for output in outputs)
    if "BREACH" in said or TOKEN in said:
        return said[:300]
    passed = all(
        output.status == "ok" and same(output.value, value) for output, value in zip(outputs, right, strict=True)
    )
    return "passed" if passed else ""


def _shown(value: object) -> str:
    try:
        return repr(value)[:100_000]
    except ValueError:  # an integer of more digits than Python writes
        return "a huge integer"


def main() -> None:
    """Prints what got through, as JSON."""
    begun = time.monotonic()
    sandbox = Local(1)
    ways = [word for word in sys.argv[1:] if word in WAYS] or list(WAYS)
    names = list(ON_THE_MACHINE if "machine" in sys.argv else ATTACKS)
    report = {"succeeded": besiege(sandbox, names, ways), "attacks": len(names), "ways": ways, "user": os.getuid()}
    report |= {"line": sandbox.line, "sandboxed": sandbox.sandboxed, "seconds": round(time.monotonic() - begun, 1)}
    print(json.dumps(report))
    sandbox.close()


if __name__ == "__main__":
    main()
