"""The role of the examiner: the tests. The program is in another process; here its names are proxies."""

from __future__ import annotations

import builtins
import sys
import types
from typing import Any

from rlm_sandbox.inside import pytest_like
from rlm_sandbox.inside.candidate import MODULE
from rlm_sandbox.inside.channel import Answer, Channel, serve
from rlm_sandbox.inside.exchange import Exchange
from rlm_sandbox.inside.protocol import Json


def install_stand_ins() -> None:
    """Install the stand-in for pytest, which test files import."""
    sys.modules["pytest"] = pytest_like  # type: ignore[assignment]


def examine(channel: Channel, job: dict[str, Any]) -> None:
    """Run the setup, then each check that is sent; a check passes if it finishes without a fault."""
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
        namespace["__builtins__"] = {name: value for name, value in vars(builtins).items() if name not in missing}
        exec(compile(job["source"], "<tests>", "exec", dont_inherit=True), namespace)
        namespace.update(program)  # the tests may include a stub of the program, which must not win
        for name in missing:
            namespace.pop(name, None)
        if fault := exchange.fault():
            raise exchange.undecidable(fault)
        return check

    def check(message: dict[str, Any]) -> dict[str, Json]:
        exchange.fault()
        exec(compile(message["check"], "<check>", "exec", dont_inherit=True), namespace)
        fault = exchange.fault()
        return {"error": {"names": ["Undecidable"], "text": fault}} if fault else {"passed": True}

    serve(channel, load)
