"""Scripts that use the standard streams, their end and event loops in less usual ways; each sums and sorts numbers."""

# ruff: noqa: E501  (programs, one to a line)
from __future__ import annotations

GIVEN, EXPECTED = "4\n-2 8 8 0\n", "14\n8 8 0 -2\n"
_PRINT = "print(sum(a)); print(*sorted(a, reverse=True))"
_READ = "n, a = input(), [*map(int, input().split())]\n"
_TOKENS = "a = [*map(int, d.split()[1:])]"

_READERS = {
    "path_of_input": "d = open('/dev/stdin').read()",
    "path_of_input_bytes": "d = open('/dev/stdin', 'rb').read()",
    "path_of_descriptor": "d = open('/dev/fd/0').read()",
    "path_of_own_descriptor": "d = open('/proc/self/fd/0', encoding='utf-8').read()",
    "path_object": "import pathlib\nd = pathlib.Path('/dev/stdin').read_text()",
    "path_in_io": "import io\nd = io.open('/dev/stdin').read()",
    "path_in_os": "import os\nd = os.read(os.open('/dev/stdin', os.O_RDONLY), 1 << 16)",
    "path_in_fileinput": "import fileinput\nd = ''.join(fileinput.input('/dev/stdin'))",
    "stdin_replaced": "import sys\nsys.stdin = open('/dev/stdin')\nd = sys.stdin.read()",
    "copied_descriptor": "import os\nd = os.fdopen(os.dup(0)).read()",
    "absent_file_tried": "import sys\ntry: sys.stdin = open('input.txt')\nexcept FileNotFoundError: pass\nd = sys.stdin.read()",
    "absent_file_exists": "import os\nif os.path.exists('input.txt'): raise ValueError\nd = open(0).read()",
}
_WRITERS = {
    "path_of_output": "with open('/dev/stdout', 'w') as out: print(sum(a), file=out); print(*sorted(a)[::-1], file=out)",
    "path_after_print": "print(sum(a), flush=True)\nprint(*sorted(a)[::-1], file=open('/dev/stdout', 'w'))",
    "path_of_errors": f"import sys\nsys.stderr = open('/dev/stderr', 'w')\nprint('x', file=sys.stderr)\n{_PRINT}",
    "null_device": f"import os\nprint('x', file=open(os.devnull, 'w'))\n{_PRINT}",
    "closed_output": f"import sys\n{_PRINT}\nsys.stdout.close()",
    "detached_output": f"import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.detach())\n{_PRINT}",
    "exit_after_flush": f"import os, sys\n{_PRINT}\nsys.stdout.flush()\nos._exit(0)",
    "exit_in_thread": f"import os, sys, threading\ndef main():\n    {_PRINT}\n    sys.stdout.flush(); os._exit(0)\n"
    "t = threading.Thread(target=main); t.start(); t.join()",
    "exit_after_write": "from os import _exit, write\n"
    "write(1, ('%d\\n' % sum(a) + ' '.join(map(str, sorted(a)[::-1]))).encode()); _exit(0)",
    "cores": f"import multiprocessing, mmap, tracemalloc\nmultiprocessing.cpu_count()\n{_PRINT}",
}
_BODIES = {
    "event_loop": "async def main():\n    await asyncio.sleep(0.001)\n    {}\nasyncio.run(main())",
    "event_loop_gather": "async def value(v):\n    await asyncio.sleep(0.001 * (v % 3)); return v\n"
    "async def main():\n    global a\n    a = await asyncio.gather(*map(value, a))\n    {}\nasyncio.run(main())",
    "event_loop_threads": "async def main():\n    global a\n    a = await asyncio.to_thread(sorted, a)\n    {}\nasyncio.run(main())",
    "event_loop_timeout": "async def main():\n    try: await asyncio.wait_for(asyncio.sleep(9), 0.01)\n"
    "    except asyncio.TimeoutError: {}\nasyncio.run(main())",
    "event_loop_new": "async def main():\n    {}\nloop = asyncio.new_event_loop()\nloop.run_until_complete(main())\nloop.close()",
    "event_loop_queue": "async def fill(q):\n    for v in a: await q.put(v)\nasync def main():\n    q = asyncio.Queue(1)\n"
    "    t = asyncio.create_task(fill(q))\n    assert [await q.get() for _ in a] == a\n    {}\nasyncio.run(main())",
}

STREAMS: dict[str, tuple[str, str, str]] = {
    **{name: (f"{source}\n{_TOKENS}\n{_PRINT}", GIVEN, EXPECTED) for name, source in _READERS.items()},
    **{name: (_READ + source, GIVEN, EXPECTED) for name, source in _WRITERS.items()},
    **{name: (f"import asyncio\n{_READ}{body.format(_PRINT)}", GIVEN, EXPECTED) for name, body in _BODIES.items()},
}
"""Name → (source, standard input, standard output)."""
