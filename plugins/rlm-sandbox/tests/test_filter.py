"""The seccomp filter on both processors: allowed calls, and call numbers."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from rlm_sandbox.inside import lock
from rlm_sandbox.inside.lock import ALLOWED, MACHINES

PID = 4242
THREAD = 0x3D0F00
"""Flags with which glibc creates a thread."""
EXECUTABLE, KILLED, UNKNOWN, REFUSED, FINE = 4, lock.KILL, lock.UNKNOWN, lock.REFUSE, lock.ALLOW


def decided(machine: str, number: int, *arguments: int, audit: int | None = None) -> int:
    """Interpret the filter's program for one call, and return its action."""
    here = MACHINES[machine]
    fields = {0: number, 4: here.audit if audit is None else audit}
    for place, value in enumerate((*arguments, *[0] * (6 - len(arguments)))):
        fields[16 + 8 * place], fields[20 + 8 * place] = value & 0xFFFFFFFF, value >> 32
    program, at, register = lock.rules(here, PID), 0, 0
    while True:
        code, when, unless, constant = program[at]
        at += 1
        if code == lock.RETURN:
            return constant
        if code == lock.LOAD:
            register = fields[constant]
        elif code == lock.AND:
            register &= constant
        else:
            tests = {lock.EQUAL: register == constant, lock.AT_LEAST: register >= constant}
            at += when if (tests[code] if code in tests else bool(register & constant)) else unless


@pytest.mark.parametrize("machine", MACHINES)
def test_allowed_calls(machine: str) -> None:
    number = MACHINES[machine].numbers
    for name in ALLOWED:
        assert name not in number or decided(machine, number[name], 1, 2, 3) == FINE
    assert decided(machine, number["clone"], THREAD) == FINE
    assert decided(machine, number["clone"], 17) == REFUSED
    assert decided(machine, number["clone"], 0x100 | 17) == REFUSED
    for namespace in (0x80, 0x20000, 0x2000000, 0x10000000, 0x20000000, 0x40000000):
        assert decided(machine, number["clone"], THREAD | namespace) == REFUSED
    assert decided(machine, number["clone3"]) == UNKNOWN
    for name in ("mmap", "mprotect"):
        assert decided(machine, number[name], 0, 4096, 3) == FINE
        assert decided(machine, number[name], 0, 4096, 3 | EXECUTABLE) == REFUSED
    for name in ("kill", "tgkill"):
        assert decided(machine, number[name], PID) == FINE
        for other in (0, 1, PID + 1, 2**32 - 1):
            assert decided(machine, number[name], other) == REFUSED
    assert decided(machine, number["prlimit64"], 0) == FINE
    assert decided(machine, number["prlimit64"], PID) == REFUSED


@pytest.mark.parametrize("machine", MACHINES)
def test_other_calls_fail_with_eperm(machine: str) -> None:
    special = {"clone", "clone3", "mmap", "mprotect", "kill", "tgkill", "prlimit64"}
    known = {n for name, n in MACHINES[machine].numbers.items() if name in ALLOWED or name in special}
    assert {decided(machine, n) for n in range(700) if n not in known} == {REFUSED}


@pytest.mark.parametrize("machine", MACHINES)
def test_foreign_call_table_kills(machine: str) -> None:
    for audit in (0x40000003, 0x40000028, 0):
        assert decided(machine, 0, audit=audit) == KILLED
    assert decided(machine, 0x40000000) == KILLED


def test_no_call_takes_a_path_opens_a_socket_or_makes_a_process() -> None:
    bad = re.compile(
        r"open|stat\b|stat(x|64)|link|access|dir|sock|send|recv|exec|fork|mount|chmod|chown|fcntl|ioctl|prctl"
    )
    assert not [name for name in ALLOWED if name != "fstat" and bad.search(name)]


WANTED = [f"-D__ARCH_WANT_{name}" for name in ("NEW_STAT", "SYS_CLONE3", "SET_GET_RLIMIT")] + ["-D__BITS_PER_LONG=64"]


@pytest.mark.parametrize(("machine", "header"), [("x86_64", "asm/unistd_64.h"), ("aarch64", "asm-generic/unistd.h")])
def test_numbers_match_the_kernel_headers(machine: str, header: str) -> None:
    compiler = shutil.which("cc") or pytest.skip("no compiler, so perhaps no kernel headers")
    done = subprocess.run(
        [compiler, "-E", "-dM", "-x", "c", *WANTED, "-"], input=f"#include <{header}>\n", capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"no {header}")
    words = {"__NR3264_lseek": 62, "__NR3264_mmap": 222, "__NR3264_fstat": 80}
    found = {name: int(n) for name, n in re.findall(r"#define __NR_(\w+) (\d+)$", done.stdout, re.M)}
    found |= {name.removeprefix("__NR3264_"): n for name, n in words.items() if f"{name} {n}" in done.stdout}
    for name, number in MACHINES[machine].numbers.items():
        assert found.get(name) == number, name
