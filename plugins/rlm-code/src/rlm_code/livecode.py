"""LiveCodeBench's examples: tests as JSON, private ones as base64 of zlib of a pickled string."""

from __future__ import annotations

import base64
import binascii
import io
import json
import pickle
import zlib
from collections.abc import Mapping
from typing import Any

from rlm_code.source import BadTests

Example = Mapping[str, Any]

PRELUDE = """from typing import *
from collections import *
from functools import *
from heapq import *
from itertools import *
from bisect import *
from math import *
import bisect, collections, functools, heapq, itertools, math, operator, random, re, string, sys
inf = float("inf")"""
"""Source that LiveCodeBench's own harness puts before a program."""
MAX_UNPACKED_BYTES = 1 << 28
"""Largest size of unpacked tests; it bounds decompression bombs."""


def livecode_question(row: Example) -> str:
    """Return the problem and the format of its solution."""
    if row.get("starter_code"):
        return f"{row['question_content']}\n\nUse this starter code:\n```python\n{row['starter_code']}\n```"
    return f"{row['question_content']}\n\nRead from standard input and write to standard output."


def livecode_tests(row: Example) -> dict[str, Any]:
    """Return public and private cases together: all by standard input, or all as calls of one function."""
    cases = [*_case_list(row["public_test_cases"], "public"), *unpack_cases(row.get("private_test_cases"))]
    kinds = {str(case["testtype"]) for case in cases}
    if kinds == {"stdin"}:
        return {"prelude": PRELUDE, "stdin": [[case["input"], case["output"]] for case in cases]}
    if kinds != {"functional"}:
        raise BadTests(f"test types {', '.join(sorted(kinds)) or '(none)'}: neither all stdin nor all functional")
    name = json.loads(row.get("metadata") or "{}").get("func_name")
    if not name:
        raise BadTests("the metadata has no func_name")
    calls = [[[json.loads(line) for line in case["input"].split("\n")], json.loads(case["output"])] for case in cases]
    return {"prelude": PRELUDE, "calls": {"name": name, "cases": calls}}


def unpack_cases(packed: str | None) -> list[dict[str, Any]]:
    """Return the private cases. The pickle may only hold a string: one that needs any class is an error."""
    if not packed:
        return []
    if packed.lstrip().startswith("["):
        return _case_list(packed, "private")
    try:
        unzipper = zlib.decompressobj()
        data = unzipper.decompress(base64.b64decode(packed, validate=True), MAX_UNPACKED_BYTES)
        if unzipper.unconsumed_tail:
            raise BadTests("the private tests are too large")
        text = _StringUnpickler(io.BytesIO(data)).load()
    except (binascii.Error, zlib.error, pickle.UnpicklingError, EOFError, ValueError) as error:
        raise BadTests(f"the private tests cannot be unpacked: {error}") from None
    return _case_list(text, "private")


class _StringUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Raise an error: a string needs no class."""
        raise pickle.UnpicklingError(f"it requires the class {module}.{name}")


def _case_list(text: Any, which: str) -> list[dict[str, Any]]:
    try:
        cases = json.loads(text) if isinstance(text, str | bytes) else text
    except ValueError as error:
        raise BadTests(f"the {which} tests are not JSON: {error}") from None
    if not isinstance(cases, list):
        raise BadTests(f"expected a list of {which} tests, got a {type(cases).__name__}")
    return cases
