"""The role of the examiner: the tests. The program is in another process; here its names are proxies."""

from __future__ import annotations

import builtins
import functools
import sys
import types
from typing import Any

from rlm_sandbox.inside import pytest_like
from rlm_sandbox.inside.candidate import MODULE
from rlm_sandbox.inside.channel import Answer, Channel, serve
from rlm_sandbox.inside.exchange import Exchange
from rlm_sandbox.inside.statements import SETTLE, compiled
from rlm_sandbox.inside.wire import Json


def install_stand_ins() -> None:
    """Install the stand-in for pytest, which test files import."""
    sys.modules["pytest"] = pytest_like  # type: ignore[assignment]


def _require_items_in_comparisons() -> None:
    if numpy := sys.modules.get("numpy"):
        for name in ("isclose", "allclose"):
            setattr(numpy, name, _both_or_none_empty(getattr(numpy, name), lambda value: numpy.asarray(value).size))


def _both_or_none_empty(close: Any, size: Any) -> Any:
    """Return `close`, failing where one operand is empty: numpy finds no difference there, so `[]` is close to 1.5."""

    @functools.wraps(close)
    def compare(a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
        assert (size(a) == 0) == (size(b) == 0), "an empty array is compared with numbers"
        return close(a, b, *args, **kwargs)

    return compare


def examine(channel: Channel, job: dict[str, Any]) -> None:
    """Run the setup, then each check that is sent; a check passes if it finishes without a fault."""
    _require_items_in_comparisons()
    namespace: dict[str, Any] = {"__name__": "tests"}
    exchange = Exchange(channel, frozenset(job["classes"]))

    def load() -> Answer:
        program: dict[str, Any] = {}
        missing: list[str] = []
        for name in job["names"]:
            try:
                program[name] = exchange.name(name)
            except Exception:
                missing.append(name)
        module = types.ModuleType(MODULE)
        sys.modules[MODULE] = module
        vars(module).update(program)
        # a name that the program does not define is a NameError, also where it is that of a stub or a built-in function
        available = {name: value for name, value in vars(builtins).items() if name not in missing}
        namespace["__builtins__"] = {**available, SETTLE: exchange.start_statement}
        exec(compiled(job["source"], "<tests>"), namespace)
        namespace.update(program)  # the tests may include a stub of the program, which must not win
        for name in missing:
            namespace.pop(name, None)
        if fault := exchange.fault():
            raise exchange.undecidable(fault)
        return check

    def check(message: dict[str, Any]) -> dict[str, Json]:
        exchange.fault()
        exec(compiled(message["check"], "<check>"), namespace)
        fault = exchange.fault()
        return {"error": {"names": ["Undecidable"], "text": fault}} if fault else {"passed": True}

    serve(channel, load)
