"""Rewards that fail, exit or change the process: each has a name and a function of a batch of four completions."""

# ruff: noqa: B904, SIM105, SIM115
from __future__ import annotations

import asyncio
import builtins
import decimal
import faulthandler
import gc
import io
import locale
import logging
import logging.config
import multiprocessing
import os
import random
import resource
import signal
import socket
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import torch
import torch.overrides
from torch.utils._python_dispatch import TorchDispatchMode

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
    "a string": lambda: "abcd",
    "bytes": lambda: b"abcd",
    "a bytearray": lambda: bytearray(4),
    "an empty dict": dict,
    "a dict of four": lambda: dict.fromkeys(range(4), 1.0),
    "a set": lambda: {1.0, 2.0, 3.0, 4.0},
    "a generator": lambda: (1.0 for _ in range(4)),
    "an iterator": lambda: iter([1.0] * 4),
    "a map": lambda: map(float, range(4)),
    "an empty list": list,
    "three scores": lambda: [1.0] * 3,
    "five scores": lambda: [1.0] * 5,
    "a million scores": lambda: [1.0] * 10**6,
    "a huge range": lambda: range(10**12),
    "a scalar tensor": lambda: torch.tensor(1.0),
    "an empty tensor": lambda: torch.empty(0),
    "a NumPy scalar": lambda: np.float32(1),
    "a class": lambda: list,
    "a function": lambda: len,
    "an object": object,
    "a coroutine that nobody awaits": lambda: asyncio.sleep(0).close(),
    "an endless sequence": Endless,
    "a list whose len raises": lambda: odd_list(__len__=raising(ValueError())),
    "a list whose len exits": lambda: odd_list(__len__=raising(SystemExit(0))),
    "a list whose len is lost": lambda: odd_list(__len__=raising(Lost())),
    "a list that claims nine": lambda: odd_list(__len__=lambda self: 9),
    "a list whose iterator raises": lambda: odd_list(__iter__=raising(KeyError("x"))),
    "a list whose tolist raises": lambda: odd_list(tolist=raising(RuntimeError("no"))),
    "a list whose tolist is lost": lambda: odd_list(tolist=raising(Lost())),
    "a list whose attributes raise": lambda: odd_list(__getattribute__=raising(Lost())),
    "an object whose repr raises": lambda: Odd(__repr__=raising(ValueError())),
    "an object whose repr is lost": lambda: Odd(__repr__=raising(Lost())),
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
    "inf": lambda: float("inf"),
    "-inf": lambda: float("-inf"),
    "1e39": lambda: 1e39,
    "-1e300": lambda: -1e300,
    "10**400": lambda: 10**400,
    "a string": lambda: "1",
    "bytes": lambda: b"1",
    "a list": lambda: [1.0],
    "a dict": dict,
    "a complex number": lambda: 1j,
    "an object": object,
    "a class": lambda: float,
    "NaN of NumPy": lambda: np.float16("nan"),
    "infinity of NumPy": lambda: np.float16("inf"),
    "a date of NumPy": lambda: np.datetime64("2020-01-01"),
    "an empty array": lambda: np.array([]),
    "two numbers": lambda: torch.tensor([1.0, 2.0]),
    "NaN of torch": lambda: torch.tensor(float("nan")),
    "Decimal": lambda: Decimal("NaN"),
    "a float that lies": lambda: LyingFloat("nan"),
    "item raises": lambda: Odd(item=raising(KeyError("x"))),
    "item is lost": lambda: Odd(item=raising(Lost())),
    "item exits": lambda: Odd(item=raising(SystemExit(0))),
    "item interrupts": lambda: Odd(item=raising(KeyboardInterrupt())),
    "item is a string": lambda: Odd(item=lambda self: "1"),
    "item is itself": lambda: Odd(item=lambda self: self),
    "item is no method": lambda: Odd(item=3),
    "attributes raise": lambda: Odd(__getattribute__=raising(Lost())),
    "repr raises": lambda: Odd(__repr__=raising(ValueError())),
    "repr is lost": lambda: Odd(__repr__=raising(Lost())),
    "repr of 10 MB": lambda: Odd(__repr__=lambda self: "x" * 10**7),
}
"""A score that is no number; all others are 1."""


def recursive() -> None:
    recursive()


def chained() -> None:
    try:
        raise ValueError("first")
    except ValueError:
        raise KeyError("second")


RAISES: dict[str, Callable[[], Any]] = {
    "ValueError": raising(ValueError("no")),
    "KeyError without text": raising(KeyError()),
    "an error whose message raises": raising(Mute()),
    "an error of 10 MB": raising(ValueError("x" * 10**7)),
    "an error with surrogates": raising(ValueError("\ud800")),
    "an error of several": raising(ExceptionGroup("several", [ValueError(1), KeyError(2)])),
    "a base exception": raising(Lost()),
    "GeneratorExit": raising(GeneratorExit()),
    "SystemExit(0)": raising(SystemExit(0)),
    "SystemExit of a text": raising(SystemExit("bye")),
    "sys.exit": sys.exit,
    "KeyboardInterrupt": raising(KeyboardInterrupt()),
    "CancelledError": raising(asyncio.CancelledError()),
    "StopIteration": raising(StopIteration()),
    "StopAsyncIteration": raising(StopAsyncIteration()),
    "MemoryError": raising(MemoryError()),
    "RecursionError": recursive,
    "a chain": chained,
    "a warning": raising(UserWarning("hm")),
    "ImportError": lambda: __import__("no_such_module_at_all"),
    "OSError": lambda: open("/no/such/file"),
    "ZeroDivisionError": lambda: 1 / 0,
    "os._exit(0)": lambda: os._exit(0),
    "os._exit(1)": lambda: os._exit(1),
    "os.abort": lambda: os.abort(),
}
"""A call that ends otherwise than by returning."""


KEPT: list[Any] = []
"""A mode ends with its object."""


class Sink:
    """An output stream whose `write` raises."""

    def write(self, text: str) -> None:
        raise Lost


def replace_stdout() -> None:
    sys.stdout = Sink()  # type: ignore[assignment]


def no_stdout() -> None:
    sys.stdout = None  # type: ignore[assignment]


def delete_path() -> None:
    del os.environ["PATH"]


def fork() -> None:
    """Fork without an exit in the child: it returns into the trainer, unless it is stopped."""
    if os.fork():
        os.wait()


def entered(context: Any) -> None:
    """Enter a context that stays."""
    KEPT.append(context)
    context.__enter__()


def limited(kind: int, soft: int) -> None:
    resource.setrlimit(kind, (soft, resource.getrlimit(kind)[1]))


class Functions(torch.overrides.TorchFunctionMode):
    """A mode that changes nothing."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


class Operators(TorchDispatchMode):
    """A mode that changes nothing."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


LOGGER = logging.getLogger("another_package")
CHANGES: dict[str, tuple[Callable[[], Any], str]] = {
    "random.seed": (lambda: random.seed(0), "`random`"),
    "random.random": (random.random, "`random`"),
    "random.shuffle": (lambda: random.shuffle([1, 2, 3]), "`random`"),
    "np.random.seed": (lambda: np.random.seed(0), "NumPy"),
    "np.random.rand": (np.random.rand, "NumPy"),
    "torch.manual_seed": (lambda: torch.manual_seed(0), "random numbers of torch"),
    "torch.rand": (lambda: torch.rand(3), "random numbers of torch"),
    "dropout": (lambda: torch.nn.functional.dropout(torch.ones(9)), "random numbers of torch"),
    "default dtype": (lambda: torch.set_default_dtype(torch.float64), "default dtype"),
    "default device": (lambda: torch.set_default_device("meta"), "default device"),
    "grad mode off": (lambda: torch.set_grad_enabled(False), "grad mode"),
    "no_grad entered": (lambda: torch.no_grad().__enter__(), "grad mode"),
    "inference mode": (lambda: (KEPT.append(torch.inference_mode()), KEPT[-1].__enter__()), "inference mode"),
    "autocast": (lambda: torch.autocast("cpu", torch.bfloat16).__enter__(), "autocast"),
    "deterministic": (lambda: torch.use_deterministic_algorithms(True), "deterministic"),
    "anomaly detection": (lambda: torch.autograd.set_detect_anomaly(True), "anomaly"),
    "float32 precision": (lambda: torch.set_float32_matmul_precision("medium"), "precision of float32"),
    "threads of torch": (lambda: torch.set_num_threads(torch.get_num_threads() + 1), "number of threads"),
    "chdir": (lambda: os.chdir("/"), "working directory"),
    "a variable added": (lambda: os.environ.update(HOSTILE="1"), "environment"),
    "a variable deleted": (delete_path, "environment"),
    "all variables deleted": (lambda: os.environ.clear(), "environment"),
    "recursion limit": (lambda: sys.setrecursionlimit(10**6), "recursion limit"),
    "switch interval": (lambda: sys.setswitchinterval(9.0), "switch interval"),
    "trace": (lambda: sys.settrace(lambda *_: None), "trace"),
    "garbage collection": (gc.disable, "garbage"),
    "locale": (lambda: locale.setlocale(locale.LC_ALL, "C.UTF-8"), "locale"),
    "decimal precision": (lambda: setattr(decimal.getcontext(), "prec", 3), "decimal"),
    "stdout closed": (lambda: sys.stdout.close(), "standard streams"),
    "stdout replaced": (replace_stdout, "standard streams"),
    "stdout deleted": (no_stdout, "standard streams"),
    "stderr closed": (lambda: sys.stderr.close(), "standard streams"),
    "descriptor 1 closed": (lambda: os.close(1), "standard streams"),
    "umask": (lambda: os.umask(0o777), "umask"),
    "warnings as errors": (lambda: warnings.simplefilter("error"), "filters of warnings"),
    "logging disabled": (lambda: logging.disable(), "`logging.disable`"),
    "NumPy raises": (lambda: np.seterr(all="raise"), "NumPy's errors"),
    "subnormal numbers": (lambda: torch.set_flush_denormal(True), "subnormal"),
    "oneDNN off": (lambda: setattr(torch.backends.mkldnn, "enabled", False), "kernels"),
    "cuDNN benchmark": (lambda: setattr(torch.backends.cudnn, "benchmark", True), "kernels"),
    "attention": (lambda: torch.backends.cuda.enable_math_sdp(False), "kernels"),
    "a device entered": (lambda: entered(torch.device("meta")), "modes"),
    "a mode of functions": (lambda: entered(Functions()), "modes of functions"),
    "a mode of operators": (lambda: entered(Operators()), "modes of functions"),
    "hooks of tensors": (lambda: entered(torch.autograd.graph.saved_tensors_hooks(abs, abs)), "hooks of saved tensors"),
    "file size": (lambda: limited(resource.RLIMIT_FSIZE, 2**40), "limits"),
    "open files": (lambda: limited(resource.RLIMIT_NOFILE, 300), "limits"),
    "TF32 of one backend": (lambda: setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32"), "kernels"),
    "bfloat16 of one backend": (lambda: setattr(torch.backends.mkldnn.matmul, "fp32_precision", "bf16"), "kernels"),
    "forward-mode gradients": (lambda: entered(torch.autograd.forward_ad.dual_level()), "forward-mode"),
    "root level": (lambda: logging.getLogger().setLevel(logging.CRITICAL), "level of the root logger"),
    "root handlers": (lambda: logging.getLogger().handlers.clear(), "loggers"),
    "loggers disabled": (lambda: logging.config.dictConfig({"version": 1}), "loggers"),
    "a logger disabled": (lambda: setattr(LOGGER, "disabled", True), "loggers"),
    "our loggers silent": (lambda: logging.getLogger("rlm_plugins.rewards.guard").setLevel(99), "loggers"),
    "a folder in front of sys.path": (lambda: sys.path.insert(0, "/hostile"), "sys.path"),
    "threading.stack_size": (lambda: threading.stack_size(2**20), "stack size"),
    "tempfile.tempdir": (lambda: setattr(tempfile, "tempdir", "/nowhere"), "temporary files"),
    "sys.excepthook": (lambda: setattr(sys, "excepthook", print), "hooks for exceptions"),
    "threading.excepthook": (lambda: setattr(threading, "excepthook", print), "hooks for exceptions"),
    "start method": (lambda: multiprocessing.set_start_method("spawn", force=True), "start method"),
    "decimal rounding": (lambda: setattr(decimal.getcontext(), "rounding", decimal.ROUND_UP), "decimal"),
    "decimal traps": (lambda: decimal.getcontext().clear_traps(), "decimal"),
    "gc debug": (lambda: gc.set_debug(gc.DEBUG_UNCOLLECTABLE), "garbage"),
    "faulthandler": (lambda: (faulthandler.disable if faulthandler.is_enabled() else faulthandler.enable)(), "fault"),
    "profile": (lambda: sys.setprofile(lambda *_: None), "trace"),
    "stack of the process": (lambda: limited(resource.RLIMIT_STACK, 2**22), "limits"),
    "nice": (lambda: os.nice(1), "priority"),
    "sys.path cleared": (lambda: sys.path.clear(), "sys.path"),
    "collection threshold": (lambda: gc.set_threshold(0), "garbage"),
    "digits of integers": (lambda: sys.set_int_max_str_digits(640), "longest integer"),
    "print deleted": (lambda: setattr(builtins, "print", None), "built-in"),
    "open replaced": (lambda: setattr(builtins, "open", io.open_code), "built-in"),
    "sockets time out": (lambda: socket.setdefaulttimeout(0.001), "sockets"),
    "one core": (lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}), "cores"),
    "SIGTERM blocked": (lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}), "blocked signals"),
    "a timer left": (lambda: signal.setitimer(signal.ITIMER_VIRTUAL, 1000), "SIGVTALRM"),
    "SIGINT ignored": (lambda: signal.signal(signal.SIGINT, signal.SIG_IGN), "signal handlers"),
    "SIGTERM handled": (lambda: signal.signal(signal.SIGTERM, lambda *_: None), "signal handlers"),
    "an alarm left": (lambda: signal.alarm(1000), "SIGALRM"),
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
    "a busy loop": busy,
    "a lock": lambda: threading.Lock().acquire() and threading.Event().wait(600),
    "a sleep that catches errors": swallow(lambda: time.sleep(600)),
    "a busy loop that catches errors": swallow(busy),
    "a read of a pipe": lambda: os.read(os.pipe()[0], 1),
}
"""A call that does not return."""
