"""Tests of contest data sets (LiveCodeBench, DeepCoder, Code-R1, LeetCodeDataset): formats of `rlm_code.cases`."""

from __future__ import annotations

import base64
import binascii
import io
import json
import pickle
import zlib
from collections.abc import Mapping
from typing import Any

from rlm_code.program_names import class_names, program_names
from rlm_code.source import BadTests

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


Example = Mapping[str, Any]


def contest_tests(cases: Any, metadata: Any = None) -> dict[str, Any]:
    """Return pairs of input and output as standard input, or as calls of one function.

    Args:
        cases: As JSON or plain data: a list of mappings with ``input`` and ``output``, of which one with a function has
            its name (``fn_name``, or ``func_name`` of the metadata); or a mapping with ``inputs`` and ``outputs``.
        metadata: Of the example; it may name the function.
    """
    cases, metadata = _plain(cases), _plain(metadata) or {}
    if isinstance(cases, Mapping):
        name = cases.get("fn_name")
        pairs = zip(cases["inputs"], cases["outputs"], strict=True)
        cases = [{"input": given, "output": output, "fn_name": name} for given, output in pairs]
    names = {_function(case, metadata) for case in cases}
    if names == {None}:
        return {"prelude": PRELUDE, "stdin": [[_lines(case["input"]), _lines(case["output"])] for case in cases]}
    if len(names) != 1:
        raise BadTests("neither all standard input nor all calls of one function")
    return {"prelude": PRELUDE, "calls": {"name": names.pop(), "cases": [*map(_call, cases)]}}


def code_r1_tests(row: Example) -> dict[str, Any]:
    """Return the ground truth of an example of Code-R1: source that calls the program, or inputs and outputs."""
    truth = _plain(row["reward_model"]["ground_truth"])
    if "functional" not in truth:
        return contest_tests(truth)
    source = truth["functional"]
    prefix = (row.get("extra_info") or {}).get("prefix") or ""
    prelude = f"{PRELUDE}\n{prefix}"
    names, _ = program_names([source], prelude)
    classes = ["Solution"] if "Solution" in names else class_names(names, [source])
    return {"prelude": prelude, "asserts": {"setup": prelude, "names": names, "classes": classes, "checks": [source]}}


def leetcode_tests(row: Example) -> dict[str, Any]:
    """Return ``check(candidate)`` of an example of LeetCodeDataset, with its imports and helpers on both sides."""
    prelude, setup = row["prompt"], f"{row['prompt']}\n{row['test']}"
    name = str(row["entry_point"]).partition("(")[0]
    checks = [f"check({row['entry_point']})"]
    return {"prelude": prelude, "asserts": {"setup": setup, "names": [name], "classes": [name], "checks": checks}}


def starter_question(row: Example) -> str:
    """Return the problem, with its starter code if there is any."""
    starter = row.get("starter_code")
    return f"{row['problem']}\n\nUse this starter code:\n```python\n{starter}\n```" if starter else str(row["problem"])


def _plain(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _function(case: Mapping[str, Any], metadata: Mapping[str, Any]) -> str | None:
    own = _plain(case.get("metadata")) or {}
    return case.get("fn_name") or own.get("func_name") or metadata.get("func_name")


def _call(case: Mapping[str, Any]) -> list[Any]:
    """Return arguments and value: plain data, or lines of JSON; a value alone in a list is the value."""
    given, output = case["input"], case["output"]
    if isinstance(given, str):
        return [[json.loads(line) for line in given.split("\n")], _plain(output)]
    return [list(given), output[0] if isinstance(output, list) and len(output) == 1 else output]


def _lines(value: Any) -> str:
    return value if isinstance(value, str) else "\n".join(map(str, value))
