"""The interface of a sandbox: inputs and outputs. Any object with this `run` is one, also on a remote machine.

    outputs = sandbox.run(Program(source), inputs, limits)

An implementation must guarantee that the program never shares a process with a `Check`, and never receives an
expected value; the caller compares.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
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


_SPACE = " \t\r\n\f\v"
_ROUNDING = 2.0**-48
"""Rounding error of a sum of some numbers near 1; a result far below it is none."""
_NUMBERS, _SEQUENCES = (int, float, Decimal, Fraction), (list, tuple, deque)


def same(found: Any, expected: Any, tolerance: float = 1e-9) -> bool:
    """Return True if equal as the tests of data sets mean it: a tuple equals a list, floats are close, True is not 1.

    Exact numbers must be equal, and a float within `tolerance` of an expected integer: 1e18 is not 10**18 + 1. A float
    other than 0 is compared relatively, or up to the rounding error of numbers near 1: 0 is not 3e-12.

    Args:
        found: A value that `decoding.decode` returned.
        expected: A value of the same types.
        tolerance: Relative tolerance of floats; absolute where an integer or 0 is expected.

    >>> same([1, 2.0], (1, 2)), same(0.1 + 0.2, 0.3), same(True, 1), same({"a": [1]}, {"a": [1.0]}), same("1", 1)
    (True, True, False, True, False)
    >>> same(1e18, 10**18 + 1), same(Fraction(10**18), 10**18 + 1), same(3.0000000000000004, 3)
    (False, False, True)
    >>> same(0.0, 3e-12), same(0.0, 5.6e-17), same(-6.6e-34, 6.6e-34), same(1e-17, 0.0)
    (False, True, False, True)
    """
    if type(found) is bool or type(expected) is bool:
        return type(found) is type(expected) and found == expected
    if isinstance(found, _NUMBERS) and isinstance(expected, _NUMBERS):
        return _is_close(found, expected, tolerance)
    if isinstance(found, _SEQUENCES) and isinstance(expected, _SEQUENCES):
        return len(found) == len(expected) and all(
            same(first, second, tolerance) for first, second in zip(found, expected, strict=True)
        )
    if isinstance(found, dict) and isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[key], expected[key], tolerance) for key in expected)
    return type(found) is type(expected) and bool(found == expected)


def _is_close(found: Any, expected: Any, tolerance: float) -> bool:
    try:
        if found == expected or (found != found and expected != expected):
            return True
        if not isinstance(found, float) and not isinstance(expected, float):
            return False
        if isinstance(expected, int):
            return abs(Fraction(found) - expected) <= tolerance
        magnitude = abs(float(expected))
        rounding = tolerance if magnitude == 0 else _ROUNDING if magnitude > _ROUNDING / 2**24 else 0.0
        return abs(float(found) - float(expected)) <= max(rounding, tolerance * magnitude) < float("inf")
    except (OverflowError, ArithmeticError, ValueError):  # beyond the range of floats; a signaling NaN
        return False


def same_text(found: str, expected: str) -> bool:
    """Return True if equal up to white space at the ends of lines and of the text, as in programming contests.

    A line ends with a line feed alone. White space is that of ASCII: a separator of Unicode is part of the output.

    >>> same_text("1 \\r\\n2\\n\\n", "1\\n2"), same_text("1 2", "1\\n2")
    (True, False)
    >>> same_text("1\\v2", "1\\n2"), same_text("1\\x85", "1")
    (False, False)
    """
    return _lines(found) == _lines(expected)


def _lines(text: str) -> list[str]:
    return [line.rstrip(_SPACE) for line in text.rstrip(_SPACE).split("\n")]
