"""One program and its inputs: forks the processes they need, relays messages between them, and returns outputs."""

from __future__ import annotations

import time
from typing import Any

from rlm_sandbox.connection import Connection, SampleFailure
from rlm_sandbox.inside.protocol import EncodingError, Json, Message, decode, encode
from rlm_sandbox.interface import Call, Check, Input, Limits, Output, Stdin
from rlm_sandbox.zygote_handle import Zygote

MAX_ERROR_LENGTH = 400
"""Largest number of characters of a reported error."""


class Sample:
    """A program while its inputs run; `close` ends everything that it started."""

    def __init__(self, zygote: Zygote, source: str, count: int, limits: Limits) -> None:
        self._zygote, self._source, self._limits = zygote, source, limits
        self._cpu = int(limits.seconds * (count + 1)) + 2
        self._candidate: Connection | None = None
        self._examiner: Connection | None = None
        self._examiner_key: tuple[str, tuple[str, ...]] | None = None
        self._load_error: Output | None = None
        self._connections: list[Connection] = []

    def run(self, item: Input) -> Output:
        """Return the output of one input.

        Raises:
            SampleFailure: The program must not get further inputs.
        """
        if isinstance(item, Stdin):
            return self._script(item)
        self._ensure_loaded()
        if self._load_error is not None:
            return self._load_error
        if isinstance(item, Call):
            args = [encode(each) for each in item.args]
            kwargs = {name: encode(each) for name, each in item.kwargs.items()}
            message = {"of": None, "name": item.name, "args": args, "kwargs": kwargs}
            return _output(_require(self._candidate).request(message, self._deadline()))
        return self._check(item)

    def _script(self, item: Stdin) -> Output:
        connection = self._start("script", stdin=item.text)
        output = _output(connection.receive(self._deadline()))
        self.close()
        return output

    def _ensure_loaded(self) -> None:
        if self._candidate is None:
            self._candidate = self._start("calls")
            reply = self._candidate.receive(self._deadline())
            self._load_error = None if reply.keys() == {"loaded"} else _output(reply)

    def _check(self, item: Check) -> Output:
        if self._examiner_key != (item.setup, item.names):
            self._examiner_key = (item.setup, item.names)
            self._examiner = self._start("examiner", source=item.setup, names=list(item.names))
            failure = self._relay("loaded")
            if failure is not None:
                self._examiner_key = None
                return failure
        _require(self._examiner).send({"check": item.source}, self._deadline())
        return self._relay("passed") or Output("ok", True)

    def _relay(self, final: str) -> Output | None:
        """Relay requests to the program until the tests send `final` (None), or return their failure."""
        examiner, candidate, deadline = _require(self._examiner), _require(self._candidate), self._deadline()
        while True:
            message = examiner.receive(deadline)
            if "ask" in message:
                examiner.send(_validated(candidate.request(message["ask"], deadline)), deadline)
                continue
            return None if message == {final: True} else _output(message)

    def _start(self, role: str, **job: Json) -> Connection:
        limits = {
            "memory": self._limits.memory,
            "output": self._limits.output,
            "cpu": self._cpu,
            "tasks": self._zygote.tasks,
        }
        connection = Connection(self._zygote.fork(), self._limits.output)
        self._connections.append(connection)
        connection.start({"role": role, "source": self._source, "limits": limits, **job})
        return connection

    def _deadline(self) -> float:
        return time.monotonic() + self._limits.seconds

    def close(self) -> None:
        """End all processes of the sample."""
        for connection in self._connections:
            connection.close()
        self._zygote.end_samples()
        self._connections, self._candidate, self._examiner, self._examiner_key = [], None, None, None


def _require(connection: Connection | None) -> Connection:
    assert connection is not None
    return connection


def _validated(reply: Message) -> Message:
    """Check a candidate's answer on its way to the examiner: it must have one of four forms."""
    ((form, content),) = reply.items() if len(reply) == 1 else (("", None),)
    is_valid = {
        "value": True,
        "callable": content is True,
        "object": type(content) is int,
        "error": type(content) is list and len(content) == 2 and all(type(part) is str for part in content),
    }
    if not is_valid.get(form, False):
        raise SampleFailure("garbled", "not an answer")
    return reply


def _output(reply: Message) -> Output:
    form = _validated(reply)
    if "error" in form:
        return Output("error", error=": ".join(filter(None, form["error"]))[:MAX_ERROR_LENGTH])
    if "value" not in form:
        return Output("error", error="a value of a type that is not built in")
    try:
        value: Any = decode(form["value"])
    except EncodingError as error:
        raise SampleFailure("garbled", str(error)) from None
    return Output("ok", value)
