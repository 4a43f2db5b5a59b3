"""Reference for the audit: a program and its tests in one plain Python process, as data sets mean them.

Only for programs of this package and their mutants: nothing isolates them but a time limit.
"""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
from typing import Any

SECONDS = 0.15
"""Processor time of a program with its tests. One that needs more is undecided."""
_RUNNER = """
import builtins, io, json, os, resource, signal, sys, types
from fractions import Fraction
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
sys.set_int_max_str_digits(100_000)
replies = os.fdopen(os.dup(1), 'w')
requests = os.fdopen(os.dup(0))
os.dup2(os.open(os.devnull, os.O_RDWR), 1)
try: import pytest  # some tests import it: that may take longer than a program may run
except ImportError: pass
class Late(BaseException): pass
def late(*_): raise Late
signal.signal(signal.SIGPROF, late)
def close(found, right):
    if type(found) is bool or type(right) is bool: return found is right
    if isinstance(found, (int, float)) and isinstance(right, (int, float)):
        if type(right) is int: return found == right or (type(found) is float and abs(Fraction(found) - right) <= 1e-9)
        return found == right or abs(found - right) <= 1e-9 * max(1.0, abs(right))
    if isinstance(found, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(found) == len(right) and all(map(close, found, right))
    if isinstance(found, dict) and isinstance(right, dict):
        return found.keys() == right.keys() and all(close(found[k], right[k]) for k in right)
    return type(found) is type(right) and found == right
def lines(text): return [line.rstrip() for line in text.rstrip().splitlines()]
def passes(program, tests):
    source = tests.get('prelude', '') + '\\n' + program
    if 'stdin' in tests:
        for given, right in tests['stdin']:
            sys.stdin, sys.stdout = io.StringIO(given), io.StringIO()
            exec(compile(source, 'program', 'exec'), {'__name__': '__main__'})
            if lines(sys.stdout.getvalue()) != lines(right): return False
        return True
    module = types.ModuleType('solution')
    exec(compile(source, 'program', 'exec'), vars(module))
    if 'calls' in tests:
        function = vars(module)[tests['calls']['name']]
        return all(close(function(*json.loads(json.dumps(args))), right) for args, right in tests['calls']['cases'])
    asserts = tests['asserts']
    space = {'__name__': 'tests'}
    sys.modules['solution'] = module
    exec(compile(asserts.get('setup', ''), 'tests', 'exec'), space)
    space.update({name: vars(module)[name] for name in asserts['names']})
    for check in asserts['checks']: exec(compile(check, 'check', 'exec'), space)
    return True
for line in requests:
    program, tests, seconds = json.loads(line)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try: answer = bool(passes(program, tests))
    except Late: answer = None
    except BaseException: answer = False
    finally: signal.setitimer(signal.ITIMER_PROF, 0)
    replies.write(json.dumps(answer) + '\\n')
    replies.flush()
"""


class PlainPython:
    """One process that runs programs with their tests, one after the other."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _RUNNER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        atexit.register(self._process.kill)
        self._known: dict[str, bool | None] = {}

    def passes(self, program: str, tests: dict[str, Any]) -> bool | None:
        """Return whether a program passes its tests in plain Python; None if it takes too long."""
        request = json.dumps([program, tests, SECONDS])
        if request not in self._known:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(request + "\n")
            self._process.stdin.flush()
            self._known[request] = json.loads(self._process.stdout.readline())
        return self._known[request]
