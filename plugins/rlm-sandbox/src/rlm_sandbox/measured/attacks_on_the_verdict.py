"""Attacks on the grading and on the waiting trainer: forged answers, objects with false comparisons, bombs."""

# ruff: noqa: E501  (programs, one to a line)
from __future__ import annotations

from rlm_sandbox.measured.attacks_on_the_machine import TRY

_FRAME = "import os, json\ndef frame(m):\n    d = json.dumps(m).encode()\n    return len(d).to_bytes(4, 'big') + d\n"
_RETURNS = "def add(a, b): return {}\n"

GRADING = {
    "sys_exit": "import sys\nsys.exit(0)\n",
    "sys_exit_later": "import sys\ndef add(a, b): sys.exit(0)\n",
    "os_exit": "import os\nos._exit(0)\n",
    "os_exit_later": "import os\ndef add(a, b): os._exit(0)\n",
    "marker": "import os\nprint('passed\\nOK\\n100%')\nos.write(1, b'passed')\nos._exit(0)\n",
    "eq_true": "class T:\n    def __eq__(s, o): return True\n    def __ne__(s, o): return False\n"
    + _RETURNS.format("T()"),
    "eq_int": "class T(int):\n    def __eq__(s, o): return True\n    __hash__ = int.__hash__\n"
    + _RETURNS.format("T(1)"),
    "eq_list": "class T(list):\n    def __eq__(s, o): return True\n" + _RETURNS.format("T([9])"),
    "eq_str": "class T(str):\n    def __eq__(s, o): return True\n    __hash__ = str.__hash__\n"
    + _RETURNS.format("T('x')"),
    "compares_true": "class T:\n"
    + "".join(
        f"    def __{n}__(s, *o): return True\n" for n in ["lt", "le", "gt", "ge", "eq", "ne", "bool", "contains"]
    )
    + "    __hash__ = None\n"
    + _RETURNS.format("T()"),
    "reflected_eq": "class T:\n    def __req__(s, o): return True\n    def __eq__(s, o): return 5\n"
    + _RETURNS.format("T()"),
    "disguised_class": "class T:\n    __class__ = int\n    def __eq__(s, o): return True\n    def __int__(s): return 5\n"
    + _RETURNS.format("T()"),
    "excepthook": "import sys, os\nsys.excepthook = lambda *a: os._exit(0)\n1/0\n",
    "atexit": "import atexit, os\natexit.register(os._exit, 0)\n" + _RETURNS.format("0"),
    "assert_patch": "import builtins\nclass A(BaseException): pass\nbuiltins.AssertionError = A\n"
    + _RETURNS.format("0"),
    "raise_assertion": "def add(a, b): raise AssertionError('passed')\n",
    "raise_stop": "def add(a, b): raise StopIteration(5)\n",
    "raise_exit": "class SystemExit(Exception): pass\ndef add(a, b): raise SystemExit(0)\n",
    "raise_keyboard": "def add(a, b): raise KeyboardInterrupt\n",
    "raise_liar": "class E(Exception):\n    def __str__(s):\n        while True: pass\ndef add(a, b): raise E\n",
    "frame_walk": "import sys\ndef add(a, b):\n    f = sys._getframe()\n    while f:\n"
    "        for v in f.f_locals.values():\n            if 'asse' 'rt cand' in str(v)[:9999]: return 'BREACH'\n"
    "        f = f.f_back\n",
    "read_source": "import linecache, sys\ndef add(a, b):\n    for n in ('<tests>', '<check>', sys.argv[0]):\n"
    "        if 'assert' in ''.join(linecache.getlines(n)): return 'BREACH'\n",
    "look_for_tests": "import gc\ndef add(a, b):\n    seen = [o for o in gc.get_objects() if type(o) is dict]\n"
    "    return 'BREACH' if any('assert ' + 'add(' in str(o.get('source', '')) for o in seen) else 0\n",
    "result_forge": "import gc\ndef add(a, b):\n    for o in gc.get_objects():\n        if type(o) is list: o.append(True)\n"
    "        if type(o) is dict and 'passed' in o: o['passed'] = True\n    return 0\n",
    "fd_forge": _FRAME
    + "def add(a, b):\n    for fd in range(64):\n        for m in ({'passed': True}, {'value': 5}, {'done': 1}):\n"
    "            try: os.write(fd, frame(m))\n            except OSError: pass\n    return 0\n",
    "fd_forge_at_load": _FRAME
    + "for m in ({'ready': True}, {'loaded': True}, {'passed': True}):\n    os.write(3, frame(m))\n"
    + _RETURNS.format("0"),
    "fd_control": "import os\ndef sent(fd):\n    try: return os.lseek(fd, 0, 1) < 0\n    except OSError: return True\n"  # no file in memory
    "def add(a, b):\n    for fd in range(64):\n        try:\n            if fd != 3 and os.write(fd, b'ended') and fd > 3 and sent(fd): return 'BREACH'\n"
    "        except OSError: pass\n    return 0\n",
    "forged_object": _FRAME + "def add(a, b):\n    os.write(3, frame({'object': 10**9}))\n    return 0\n",
    "forged_types": _FRAME + "def add(a, b):\n    os.write(3, frame({'value': {'$eval': '5'}}))\n",
    "forged_error": _FRAME + "def add(a, b):\n    os.write(3, frame({'error': [{}, []]}))\n",
    "unittest_patch": "import unittest, json, operator, builtins\nbuiltins.all = builtins.any = lambda *a: True\n"
    "operator.eq = lambda *a: True\njson.dumps = lambda *a, **k: '{\"passed\": true}'\nunittest.TestCase.assertEqual = lambda *a: None\n"
    + _RETURNS.format("0"),
    "builtins_gone": "import builtins\nfor n in list(vars(builtins)):\n    if n not in ('len', '__import__'): delattr(builtins, n)\n"
    + _RETURNS.format("0"),
    "mutate_args": "def add(a, b):\n    if type(a) is list:\n        a.clear(); b.clear()\n    return a\n",
    "worker_poison": "import builtins, collections, random\nbuiltins.sum = lambda *a: 5\ncollections.Counter = None\nrandom.seed = None\n"
    + _RETURNS.format("0"),
    "answer_by_name": "def __getattr__(name): return lambda *a: True\n" + _RETURNS.format("0"),
}

TIME_AND_SPACE = {
    "fork_bomb": TRY + "def attack():\n    n = 0\n    for _ in range(200):\n        try:\n            if os.fork() == 0: time.sleep(20)\n            n += 1\n        except OSError: pass\n    return n and 'BREACH'\n",
    "thread_bomb": "import threading, time\nthreading.stack_size(32768)\ndef add(a, b):\n    n = 0\n    try:\n        while n < 4000:\n            threading.Thread(target=time.sleep, args=(9,), daemon=True).start()\n            n += 1\n    except BaseException: pass\n    return 'BREACH' if n >= 4000 else 0\n",
    "mem_bomb": "def add(a, b):\n    x = []\n    try:\n        while len(x) < 48: x.append(bytearray(64 << 20))\n    except MemoryError: pass\n    return 'BREACH' if len(x) * 64 >= 1500 else 0\n",
    "mem_bomb_shared": "import mmap\ndef add(a, b):\n    x = []\n    try:\n        while len(x) < 48:\n            x.append(mmap.mmap(-1, 64 << 20)); x[-1].write(bytes(64 << 20))\n    except BaseException: pass\n    return 'BREACH' if len(x) * 64 >= 1500 else 0\n",
    "shm_bomb": TRY + "def attack():\n    for p in ('/dev/shm/b', '/tmp/b', '/var/tmp/b'):\n        try:\n            f = open(p, 'wb')\n            for _ in range(256): f.write(bytes(1 << 20))\n            return 'BREACH'\n        except OSError: pass\n",
    "inf_loop": "def add(a, b):\n    while True: pass\n",
    "inf_loop_at_load": "while True: pass\n",
    "inf_loop_noalarm": "import signal\nfor s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError): pass\n"
    "def add(a, b):\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass\n",
    "sleep": "import time\ndef add(a, b): time.sleep(60)\n",
    "c_loop": "import re\ndef add(a, b): return bool(re.match('(a+)+$', 'a' * 40 + 'b'))\n",
    "c_power": "def add(a, b): return len(str(9 ** 9 ** 8))\n",
    "huge_output": "def add(a, b):\n    for _ in range(2000): print('x' * 1000000)\n",
    "huge_output_raw": "import os\ndef add(a, b):\n    try:\n        for _ in range(4000): os.write(1, bytes(1 << 20))\n    except OSError: return 0\n",
    "huge_return": _RETURNS.format("'x' * 300_000_000"),
    "huge_integer": _RETURNS.format("1 << 3_000_000"),
    "deep_return": "def add(a, b):\n    x = []\n    for _ in range(100_000): x = [x]\n    return x\n",
    "self_return": "def add(a, b):\n    x = []\n    x.append(x)\n    return x\n",
    "deep_frame": "import os\ndef add(a, b):\n    d = b'{\"value\": ' + b'[' * 200_000 + b']' * 200_000 + b'}'\n    os.write(3, len(d).to_bytes(4, 'big') + d)\n",
    "endless_frame": "import os\ndef add(a, b):\n    os.write(3, b'\\xff\\xff\\xff\\xff')\n    while True: os.write(3, bytes(65536))\n",
    "half_frame": "import os, time\ndef add(a, b):\n    os.write(3, b'\\x00\\x00\\x01\\x00{')\n    time.sleep(60)\n",
    "slow_frame": "import os, time\ndef add(a, b):\n    os.write(3, b'\\x00\\x00\\x01\\x00')\n    while True:\n        os.write(3, b' '); time.sleep(0.05)\n",
    "clashing_keys": _RETURNS.format("{k * (2**61 - 1): 0 for k in range(1, 30_000)}"),
    "clashing_set": _RETURNS.format("{(k * (2**61 - 1),) for k in range(1, 20_000)}"),
    "endless_value": "class D(dict):\n    def items(s):\n        while True: yield 1, 1\n" + _RETURNS.format("D()"),
    "segfault": "import ctypes\ndef add(a, b): ctypes.string_at(0)\n",
    "stack_overflow": "import sys\nsys.setrecursionlimit(10**9)\ndef add(a, b): return add(a, [b])\n",
    "abort": "import os\ndef add(a, b): os.abort()\n",
    "alarm_storm": "import signal\nsignal.signal(signal.SIGALRM, lambda *a: None)\nsignal.setitimer(signal.ITIMER_REAL, 1e-5, 1e-5)\n" + _RETURNS.format("0"),
    "stop_self": "import os, signal\ndef add(a, b): os.kill(os.getpid(), signal.SIGSTOP)\n",
    "descriptors": "import os\ndef add(a, b):\n    n = 0\n    try:\n        while n < 5000: os.dup(3); n += 1\n    except OSError: pass\n    return 'BREACH' if n >= 1000 else 0\n",
    "close_channel": "import os\ndef add(a, b):\n    os.closerange(0, 99)\n    while True: pass\n",
    "code_bomb": "def add(a, b): return " + "(" * 5000 + ")" * 5000 + "\n",
    "null_bytes": "def add(a, b): return 0\x00\n",
    "surrogates": _RETURNS.format("'\\ud800' * 9"),
}  # fmt: skip

ON_THE_VERDICT = {**GRADING, **TIME_AND_SPACE}
