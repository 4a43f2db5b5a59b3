"""Rewards that fail, hang or change the process: each has a name and a function of a batch of four completions."""

# ruff: noqa: SIM105
from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

Reward = Callable[..., Any]


class Odd:
    """An object whose methods are set by a test."""

    def __init__(self, **methods: Any) -> None:
        self.__class__ = type("Odd", (Odd,), methods)


class OddList(list[float]):
    """A list of four scores whose methods are set by a test."""


def odd_list(**methods: Any) -> Any:
    return type("OddList", (OddList,), methods)([1.0] * 4)


def raising(error: BaseException) -> Callable[..., Any]:
    def method(*_: Any) -> Any:
        raise error

    return method


class Endless(Sequence[float]):
    """A sequence that never ends."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: Any) -> Any:
        return 1.0

    def __iter__(self) -> Iterator[float]:
        while True:
            yield 1.0


class Lost(BaseException):
    """An exception that no ``except Exception`` catches."""


class Mute(Exception):
    """An exception whose message raises."""

    def __str__(self) -> str:
        raise Lost

    __repr__ = __str__


RETURNS: dict[str, Any] = {
    "None": lambda: None,
    "a number": lambda: 1.0,
    "a dict of four": lambda: dict.fromkeys(range(4), 1.0),
    "three scores": lambda: [1.0] * 3,
    "a scalar tensor": lambda: torch.tensor(1.0),
    "a coroutine that nobody awaits": lambda: asyncio.sleep(0).close(),
    "an endless sequence": Endless,
    "a list whose len raises": lambda: odd_list(__len__=raising(ValueError())),
    "a list whose tolist is lost": lambda: odd_list(tolist=raising(Lost())),
    "an object whose class lies": lambda: Odd(__class__=property(raising(Lost()))),
}
"""A result that is no list of scores."""


class LyingFloat(float):
    """NaN whose comparisons return True for any range."""

    def __le__(self, _: object) -> bool:
        return True

    __ge__ = __lt__ = __gt__ = __eq__ = __le__
    __hash__ = float.__hash__


class RaisingFloat(float):
    """A valid number whose methods raise."""

    def __le__(self, _: object) -> bool:
        raise Lost

    __ge__ = __lt__ = __gt__ = __float__ = __repr__ = __le__  # type: ignore[assignment]


SCORES: dict[str, Callable[[], Any]] = {
    "nan": lambda: float("nan"),
    "10**400": lambda: 10**400,
    "a string": lambda: "1",
    "two numbers": lambda: torch.tensor([1.0, 2.0]),
    "a float that lies": lambda: LyingFloat("nan"),
    "item raises": lambda: Odd(item=raising(KeyError("x"))),
    "item is lost": lambda: Odd(item=raising(Lost())),
    "item interrupts": lambda: Odd(item=raising(KeyboardInterrupt())),
    "attributes raise": lambda: Odd(__getattribute__=raising(Lost())),
    "repr of 10 MB": lambda: Odd(__repr__=lambda self: "x" * 10**7),
}
"""A score that is no number; all others are 1."""


def recursive() -> None:
    recursive()


RAISES: dict[str, Callable[[], Any]] = {
    "ValueError": raising(ValueError("no")),
    "an error whose message raises": raising(Mute()),
    "an error of 10 MB": raising(ValueError("x" * 10**7)),
    "a base exception": raising(Lost()),
    "SystemExit(0)": raising(SystemExit(0)),
    "KeyboardInterrupt": raising(KeyboardInterrupt()),
    "RecursionError": recursive,
}
"""A call that ends otherwise than by returning."""


def delete_path() -> None:
    del os.environ["PATH"]


CHANGES: dict[str, tuple[Callable[[], Any], str]] = {
    "random.random": (random.random, "random numbers of python"),
    "np.random.rand": (np.random.rand, "random numbers of numpy"),
    "default dtype": (lambda: torch.set_default_dtype(torch.float64), "default dtype"),
    "no_grad entered": (lambda: torch.no_grad().__enter__(), "grad mode"),
    "chdir": (lambda: os.chdir("/"), "working directory"),
    "a variable deleted": (delete_path, "environment"),
}
"""A call that returns valid scores, with a change to the process: the call, and what the report names."""


def swallow(blocking: Callable[[], Any]) -> Callable[[], Any]:
    """Return a call that is interrupted, and continues once."""

    def call() -> None:
        try:
            blocking()
        except Exception:
            pass

    return call


def busy() -> None:
    end = time.monotonic() + 600
    while time.monotonic() < end:
        pass


HANGS: dict[str, Callable[[], Any]] = {
    "sleep": lambda: time.sleep(600),
    "a sleep that catches errors": swallow(lambda: time.sleep(600)),
    "a busy loop that catches errors": swallow(busy),
    "a read of a pipe": lambda: os.read(os.pipe()[0], 1),
}
"""A call that does not return."""
