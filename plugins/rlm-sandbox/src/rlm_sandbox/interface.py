"""The interface of a sandbox: inputs and outputs. Any object with this `run` is one, also on a remote machine.

    outputs = sandbox.run(Program(source), inputs, limits)

An implementation must guarantee that the program never shares a process with a `Check`, and never receives an
expected value; the caller compares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol


class SandboxError(Exception):
    """Missing isolation, or a failure to start it. The message names what is missing and the options."""


@dataclass(frozen=True)
class Program:
    """A program by a model, as source."""

    source: str


@dataclass(frozen=True)
class Stdin:
    """Run the program as a script, from the start; the value is its standard output."""

    text: str = ""


@dataclass(frozen=True)
class Call:
    """Call one of its functions; the value is the return value.

    Args:
        name: ``add``; ``Solution.add`` for the method of a class; ``add`` is also looked up in a class ``Solution``.
        args: Built-in values.
        kwargs: Built-in values.
    """

    name: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """Run tests in a process of their own; the value is True if they finished.

    Args:
        source: The tests: asserts, or calls of functions that `setup` defines.
        setup: Run once before them. Consecutive checks with the same setup share it.
        names: The program's names. In the tests they are proxies of objects in the program's process; module
            ``solution`` has them, too.
        classes: Those of `names` that are classes. Instances that the tests construct have the operators of the
            class. Other results of the program that are not of declared types have none, and no object is compared.
    """

    source: str
    setup: str = ""
    names: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()


Input = Stdin | Call | Check


@dataclass(frozen=True)
class Limits:
    """Limits per input.

    Args:
        seconds: Wall time of each input; loading the program counts as one.
        memory: Bytes.
        output: Bytes of standard output, of a returned value, of one message.
        total: Wall time of all inputs of a program together; None: no limit.
    """

    seconds: float = 2.0
    memory: int = 1 << 30
    output: int = 1 << 20
    total: float | None = None


Status = Literal["ok", "error", "late", "died", "garbled", "skipped"]


@dataclass(frozen=True)
class Output:
    """The outcome of one input.

    Args:
        status: ``ok``: there is a value. ``error``: the program raised, or a check failed. ``late``: no answer in
            time. ``died``: its process ended (too much memory, a crash, `os._exit`). ``garbled``: a malformed
            answer. ``skipped``: an input before this one was late, died or garbled.
        value: A value of exact built-in types.
        error: The exception: ``ValueError: …``.
    """

    status: Status
    value: Any = None
    error: str = ""


class Sandbox(Protocol):
    """An environment that runs programs in isolation."""

    def run(self, program: Program, inputs: Sequence[Input], limits: Limits = ...) -> Iterator[Output]:
        """Yield one output per input, in order, as they arrive; closing the iterator ends the program."""
        ...
