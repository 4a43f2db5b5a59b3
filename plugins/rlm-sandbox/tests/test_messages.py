"""Messages that a program writes to its own socket: none of another phase counts as success."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rlm_sandbox import Call, Check, Input, Limits, Local, Program, Stdin

SEND = """
import json, os
def send(message):
    data = json.dumps(message).encode()
    os.write(3, len(data).to_bytes(4, "big") + data)
"""
MESSAGES = [
    {"value": True},
    {"value": None},
    {"value": True, "heap": [], "forget": []},
    {"passed": True},
    {"loaded": 1},
    {"loaded": True, "value": True},
    {"loaded": True},
    {"ready": True},
    {"end": True},
    {"callback": {"number": 0, "args": [], "kwargs": {}}, "heap": [], "forget": []},
    {},
]
CHECK = Check("assert f(2) == 4", names=("f",))


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Local]:
    runner = Local(1)
    yield runner
    runner.close()


@pytest.mark.parametrize("message", MESSAGES, ids=repr)
@pytest.mark.parametrize("given", [CHECK, Call("f", (2,)), Stdin("2")], ids=["check", "call", "script"])
def test_no_message_while_loading_is_a_result(message: dict[str, object], given: Input, sandbox: Local) -> None:
    program = Program(f"{SEND}\nfor _ in range(8): send({message!r})\nf = lambda x: 0\nprint(0)\n")
    outputs = list(sandbox.run(program, [given, given], Limits(seconds=2.0)))
    assert not any(output.status == "ok" and output.value in (True, "4", 4) for output in outputs), outputs
