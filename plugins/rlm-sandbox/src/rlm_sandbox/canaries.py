"""Small attacks that every sandbox runs on itself when it starts; a successful one makes the start fail."""

from __future__ import annotations

from collections.abc import Iterator

from rlm_sandbox.interface import Call, Check, Input, Output, Program

_TRY = """
import ctypes, os, socket, threading
def attempt():
    try:
        return bool({})
    except BaseException:
        return False
"""

CANARIES: dict[str, tuple[Program, list[Input]]] = {
    name: (Program(_TRY.format(attack)), [Call("attempt")])
    for name, attack in {
        "reading a file": "open('/etc/passwd').read()",
        "writing a file": "open('/tmp/canary', 'w') or open('/dev/shm/canary', 'w')",
        "a socket": "socket.socket()",
        "a process": "os.fork() >= 0 and 'forked'",
        "another process's memory": "open(f'/proc/{os.getppid()}/mem', 'rb')",
        "a signal to the trainer": "os.kill(os.getppid(), 0) is None",
        "machine code": "__import__('mmap').mmap(-1, 4096, prot=7)",
    }.items()
}
_LIAR = """
class Liar(int):
    def __eq__(self, other): return True
    __hash__ = int.__hash__
def f(): return Liar(3)
"""
_EQUAL = "an answer equal to everything"
CANARIES[_EQUAL] = (Program(_LIAR), [Check("assert f() == 5", names=("f",))])


def is_blocked(name: str, outputs: Iterator[Output]) -> bool:
    """Return True if a canary ran and had no effect."""
    output = next(outputs)
    if name == _EQUAL:
        return output.status == "error" and output.error.startswith("AssertionError")
    return output.status == "ok" and output.value is False
