"""Sandbox for Python from a model: processes that can compute and do nothing else.

>>> from rlm_sandbox import Call, Program, shared
>>> [output.value for output in shared().run(Program("def add(a, b): return a + b"), [Call("add", (2, 3))])]
[5]
"""

from rlm_sandbox.interface import (
    Call,
    Check,
    Input,
    Limits,
    Output,
    Program,
    Sandbox,
    SandboxError,
    Stdin,
    same,
    same_text,
)
from rlm_sandbox.local import Local, shared

__all__ = [
    "Call",
    "Check",
    "Input",
    "Limits",
    "Local",
    "Output",
    "Program",
    "Sandbox",
    "SandboxError",
    "Stdin",
    "same",
    "same_text",
    "shared",
]
