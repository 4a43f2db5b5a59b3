"""One program and its inputs: forks the processes they need, carries words between them, and makes outputs of them."""

from __future__ import annotations

import time
from typing import Any

from rlm_sandbox.conversation import Conversation, Odd
from rlm_sandbox.inside.wire import Json, Message, Unsendable, decode, encode
from rlm_sandbox.interface import Call, Check, Input, Limits, Output, Stdin
from rlm_sandbox.keeper import Zygote

LONGEST = 400
"""Characters of an error that are kept."""


class Sample:
    """A program while it is being asked; everything it started ends with `close`."""

    def __init__(self, zygote: Zygote, source: str, count: int, limits: Limits) -> None:
        self._zygote, self._source, self._limits = zygote, source, limits
        self._cpu = int(limits.seconds * (count + 1)) + 2
        self._candidate: Conversation | None = None
        self._examiner: Conversation | None = None
        self._stage: tuple[str, tuple[str, ...]] | None = None
        self._unfit: Output | None = None
        self._lines: list[Conversation] = []

    def answer(self, given: Input) -> Output:
        """What comes of one input.

        Raises:
            Odd: The program must not be asked anything else.
        """
        if isinstance(given, Stdin):
            return self._script(given)
        self._load()
        if self._unfit is not None:
            return self._unfit
        if isinstance(given, Call):
            args = [encode(each) for each in given.args]
            kwargs = {name: encode(each) for name, each in given.kwargs.items()}
            message = {"of": None, "name": given.name, "args": args, "kwargs": kwargs}
            return _output(_heard(self._candidate).ask(message, self._deadline()))
        return self._check(given)

    def _script(self, given: Stdin) -> Output:
        line = self._start("script", stdin=given.text)
        output = _output(line.hear(self._deadline()))
        self.close()
        return output

    def _load(self) -> None:
        if self._candidate is None:
            self._candidate = self._start("calls")
            reply = self._candidate.hear(self._deadline())
            self._unfit = None if reply.keys() == {"loaded"} else _output(reply)

    def _check(self, given: Check) -> Output:
        if self._stage != (given.setup, given.names):
            self._stage = (given.setup, given.names)
            self._examiner = self._start("examiner", source=given.setup, names=list(given.names))
            failed = self._relayed("loaded")
            if failed is not None:
                self._stage = None
                return failed
        _heard(self._examiner).say({"check": given.source}, self._deadline())
        return self._relayed("passed") or Output("ok", True)

    def _relayed(self, word: str) -> Output | None:
        """Carries questions to the program and answers back until the tests say `word` (None), or why they failed."""
        examiner, candidate, deadline = _heard(self._examiner), _heard(self._candidate), self._deadline()
        while True:
            message = examiner.hear(deadline)
            if "ask" in message:
                examiner.say(_checked(candidate.ask(message["ask"], deadline)), deadline)
                continue
            return None if message == {word: True} else _output(message)

    def _start(self, role: str, **job: Json) -> Conversation:
        limits = {
            "memory": self._limits.memory,
            "output": self._limits.output,
            "cpu": self._cpu,
            "tasks": self._zygote.tasks,
        }
        line = Conversation(self._zygote.fork(), self._limits.output)
        self._lines.append(line)
        line.start({"role": role, "source": self._source, "limits": limits, **job})
        return line

    def _deadline(self) -> float:
        return time.monotonic() + self._limits.seconds

    def close(self) -> None:
        """Ends what was started."""
        for line in self._lines:
            line.close()
        self._zygote.end_samples()
        self._lines, self._candidate, self._examiner, self._stage = [], None, None, None


def _heard(line: Conversation | None) -> Conversation:
    assert line is not None
    return line


def _checked(reply: Message) -> Message:
    """A candidate's answer on its way to the examiner: one of the four forms there are, or it is odd."""
    ((form, content),) = reply.items() if len(reply) == 1 else (("", None),)
    fits = {
        "value": True,
        "callable": content is True,
        "object": type(content) is int,
        "error": type(content) is list and len(content) == 2 and all(type(each) is str for each in content),
    }
    if not fits.get(form, False):
        raise Odd("garbled", "not an answer")
    return reply


def _output(reply: Message) -> Output:
    form = _checked(reply)
    if "error" in form:
        return Output("error", error=": ".join(filter(None, form["error"]))[:LONGEST])
    if "value" not in form:
        return Output("error", error="a value of a type of its own")
    try:
        value: Any = decode(form["value"])
    except Unsendable as error:
        raise Odd("garbled", str(error)) from None
    return Output("ok", value)
