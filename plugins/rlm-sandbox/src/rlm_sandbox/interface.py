"""What a sandbox is asked, and what it answers. Anything with this `run` is one: a machine elsewhere, too.

    outputs = sandbox.run(Program(source), inputs, limits)

Who writes one must keep its promise: the program never shares a process with a `Check`, and is never told what is
expected of it; whoever asks compares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol


class SandboxError(Exception):
    """No isolation, or none that could be started. The message says what is missing, and what the choices are."""


@dataclass(frozen=True)
class Program:
    """What a model wrote. Its text is all the sandbox gets of it."""

    source: str


@dataclass(frozen=True)
class Stdin:
    """Run the program as a script, from the start; the value is what it wrote to standard output."""

    text: str = ""


@dataclass(frozen=True)
class Call:
    """Call one of its functions; the value is what it returned.

    Args:
        name: ``add``; ``Solution.add`` for the method of a class, which ``add`` finds in a class ``Solution``, too.
        args: Built-in values.
        kwargs: Built-in values.
    """

    name: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """Run tests, in a process of their own; the value is True when they came to their end.

    Args:
        source: The tests: asserts, or calls of what `setup` defines.
        setup: Run once before them. Checks that follow each other with the same setup share it.
        names: The program's names. In the tests they stand for what answers from the program's process; module
            ``solution`` has them, too.
    """

    source: str
    setup: str = ""
    names: tuple[str, ...] = ()


Input = Stdin | Call | Check


@dataclass(frozen=True)
class Limits:
    """What each input may take.

    Args:
        seconds: Of the clock, for each input; loading the program counts as one.
        memory: Bytes.
        output: Bytes of standard output, of a returned value, of one message.
    """

    seconds: float = 2.0
    memory: int = 1 << 30
    output: int = 1 << 20


Status = Literal["ok", "error", "late", "died", "garbled", "skipped"]


@dataclass(frozen=True)
class Output:
    """What came of one input.

    Args:
        status: ``ok``: there is a value. ``error``: the program raised, or a check failed. ``late``: no answer in
            time. ``died``: its process ended (too much memory, a crash, `os._exit`). ``garbled``: it answered with
            something that is no answer. ``skipped``: an input before this one was late, died or garbled.
        value: Of exact built-in types.
        error: What it raised: ``ValueError: …``.
    """

    status: Status
    value: Any = None
    error: str = ""


class Sandbox(Protocol):
    """Where programs run."""

    def run(self, program: Program, inputs: Sequence[Input], limits: Limits = ...) -> Iterator[Output]:
        """One output per input, in order, as they come; who has seen enough closes the iterator."""
        ...
