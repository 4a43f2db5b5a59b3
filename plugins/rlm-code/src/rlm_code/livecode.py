"""The rows of LiveCodeBench: tests as JSON, and the private ones packed as base64 of zlib of a pickled text."""

from __future__ import annotations

import base64
import binascii
import io
import json
import pickle
import zlib
from collections.abc import Mapping
from typing import Any

from rlm_code.cases import BadTests

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
"""What LiveCodeBench's own harness puts before a program."""
LARGEST = 1 << 28
"""Bytes of unpacked tests that are still believed."""


def livecode_question(row: Example) -> str:
    """The problem, and how the answer is to be given."""
    if row.get("starter_code"):
        return f"{row['question_content']}\n\nUse this starter code:\n```python\n{row['starter_code']}\n```"
    return f"{row['question_content']}\n\nRead from standard input and write to standard output."


def livecode_tests(row: Example) -> dict[str, Any]:
    """Public and private cases together: all by standard input, or all calls of one function."""
    cases = [*_listed(row["public_test_cases"], "public"), *unpacked(row.get("private_test_cases"))]
    kinds = {str(case["testtype"]) for case in cases}
    if kinds == {"stdin"}:
        return {"prelude": PRELUDE, "stdin": [[case["input"], case["output"]] for case in cases]}
    if kinds != {"functional"}:
        raise BadTests(f"test types {', '.join(sorted(kinds)) or '(none)'}: neither all stdin nor all functional")
    name = json.loads(row.get("metadata") or "{}").get("func_name")
    if not name:
        raise BadTests("metadata names no func_name")
    calls = [[[json.loads(line) for line in case["input"].split("\n")], json.loads(case["output"])] for case in cases]
    return {"prelude": PRELUDE, "calls": {"name": name, "cases": calls}}


def unpacked(packed: str | None) -> list[dict[str, Any]]:
    """The private cases. A pickle may only be a text: anything that would run code is refused.

    Raises:
        BadTests: It is not packed as it should be, or is no text.
    """
    if not packed:
        return []
    if packed.lstrip().startswith("["):
        return _listed(packed, "private")
    try:
        unzipper = zlib.decompressobj()
        data = unzipper.decompress(base64.b64decode(packed, validate=True), LARGEST)
        if unzipper.unconsumed_tail:
            raise BadTests("the private tests are too large")
        text = _OnlyText(io.BytesIO(data)).load()
    except (binascii.Error, zlib.error, pickle.UnpicklingError, EOFError, ValueError) as error:
        raise BadTests(f"the private tests cannot be unpacked: {error}") from None
    return _listed(text, "private")


class _OnlyText(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Nothing: a text needs no class."""
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def _listed(text: Any, which: str) -> list[dict[str, Any]]:
    try:
        cases = json.loads(text) if isinstance(text, str | bytes) else text
    except ValueError as error:
        raise BadTests(f"the {which} tests are no JSON: {error}") from None
    if not isinstance(cases, list):
        raise BadTests(f"the {which} tests are a {type(cases).__name__}, not a list")
    return cases
