"""x: the data sets of `presets.PRESETS` as environments (hook ``rlm_environments``): prompts with checked tests."""

from __future__ import annotations

import ast
import base64
import binascii
import io
import json
import pickle
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlm_sandbox import Limits, SandboxError, shared

from rlm_coding.cases import (
    BadTests,
    class_names,
    imported_names,
    parse_source,
    parse_tests,
    program_names,
    test_functions,
)
from rlm_coding.reward import grade
from rlm_plugins.data.presets import environment_from
from rlm_plugins.equation.knobs import Natural
from rlm_plugins.errors import RecipeError

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


Json = dict[str, Any]


@dataclass(frozen=True)
class Preset:
    """A data set and how to read its examples.

    Args:
        about: Description, used in the environment's docstring.
        path: Its name on the hub.
        question: Example → question.
        tests: Example → its tests.
        solution: Example → the data set's own program; None if it has none.
        config: Configuration among several under one name.
        split: The training split.
    """

    about: str
    path: str
    question: Callable[[Example], str]
    tests: Callable[[Example], Any]
    solution: Callable[[Example], str | None]
    config: str | None = None
    split: str = "train"


def human_eval_tests(row: Example) -> Json:
    """Return ``check(candidate)`` with the prompt's helpers on both sides, without the stub of the function itself."""
    entry = str(row["entry_point"])
    prompt = parse_source(str(row["prompt"]), "the prompt")
    test = f"{row['prompt']}\n{row['test']}"
    if "check" not in [node.name for node in parse_source(test, "the test").body if isinstance(node, ast.FunctionDef)]:
        raise BadTests("the test defines no check(candidate)")
    helpers = [node for node in prompt.body if getattr(node, "name", "") != entry]
    prelude = ast.unparse(ast.Module(helpers, []))
    checks = [f"check({entry})"]
    return {"prelude": prelude, "asserts": {"setup": test, "names": [entry], "classes": [], "checks": checks}}


def mbpp_question(row: Example) -> str:
    """Return the task and the first of its tests, which shows the function's name."""
    return f"{row.get('text') or row['prompt']}\n\nYour code should pass this test:\n{row['test_list'][0]}"


def mbpp_tests(row: Example) -> Json:
    """Return each assert as a case."""
    setup = "\n".join([*(row.get("test_imports") or []), row.get("test_setup_code") or ""])
    checks = list(row["test_list"])
    names, modules = program_names(checks, setup)
    if not names:
        raise BadTests("no test uses a name of the program")
    setup = "\n".join([*(f"import {module}" for module in modules), setup])
    classes = class_names(names, checks, row.get("code"))
    return {"asserts": {"setup": setup, "names": names, "classes": classes, "checks": checks}}


def kodcode_tests(row: Example) -> Json:
    """Return each test function of a pytest file that imports from ``solution`` as a case."""
    source = str(row["test"])
    functions, names = test_functions(source), imported_names(source, "solution")
    if not functions:
        raise BadTests("there are no test functions")
    if not names:
        raise BadTests("the tests import nothing from `solution`")
    classes, checks = class_names(names, [source], row.get("solution")), [f"{name}()" for name in functions]
    return {"asserts": {"setup": source, "names": names, "classes": classes, "checks": checks}}


def kodcode_question(row: Example) -> str:
    """Return the question and the declarations that the tests rely on."""
    declared = [info["function_declaration"] for info in row.get("test_info") or [] if info.get("function_declaration")]
    if not declared:
        return str(row["question"])
    return f"{row['question']}\n\nUse these declarations:\n" + "\n".join(declared)


def _column(*names: str) -> Callable[[Example], Any]:
    """Return a function that reads the first of these columns that exists."""

    def value(row: Example) -> Any:
        return next((row[name] for name in names if name in row), None) if len(names) > 1 else row[names[0]]

    return value


PRESETS = {
    "human_eval": Preset(
        "HumanEval: 164 functions to complete, with docstrings (arXiv 2107.03374). A test set.",
        "openai/openai_humaneval",
        lambda row: f"Complete this function; write it as a whole:\n\n```python\n{row['prompt']}```",
        human_eval_tests,
        lambda row: str(row["prompt"]) + str(row["canonical_solution"]),
        split="test",
    ),
    "mbpp": Preset(
        "MBPP: 974 short tasks with three asserts each (arXiv 2108.07732); `config: sanitized`: the 427 verified ones.",
        "google-research-datasets/mbpp",
        mbpp_question,
        mbpp_tests,
        lambda row: row["code"],
        config="full",
    ),
    "kodcode": Preset(
        "KodCode-V1: 447,000 questions with solutions and pytest files that verify them (arXiv 2503.02951).",
        "KodCode/KodCode-V1",
        kodcode_question,
        kodcode_tests,
        _column("solution"),
    ),
    "livecodebench": Preset(
        "LiveCodeBench: problems of programming contests, by date (arXiv 2403.07974). A test set.",
        "livecodebench/code_generation_lite",
        livecode_question,
        livecode_tests,
        lambda row: None,
        split="test",
    ),
    "deepcoder": Preset(
        "DeepCoder-Preview: 24,000 contest problems; configs taco, lcbv5, primeintellect, codeforces (MIT).",
        "agentica-org/DeepCoder-Preview-Dataset",
        starter_question,
        lambda row: contest_tests(row["tests"], row.get("metadata")),
        lambda row: None,
        config="taco",
    ),
    "code_r1": Preset(
        "Code-R1: 12,000 problems with tests, of LeetCode and TACO (no license on its card).",
        "ganler/code-r1-12k",
        lambda row: row["prompt"][-1]["content"],
        code_r1_tests,
        lambda row: None,
    ),
    "leetcode": Preset(
        "LeetCodeDataset: 2,869 problems with tests and solutions, by date (arXiv 2504.14655; Apache-2.0).",
        "newfacade/LeetCodeDataset",
        _column("query"),
        leetcode_tests,
        _column("completion"),
    ),
    "code_table": Preset(
        "Any table with the columns `problem` and `tests` (formats: `rlm_coding.cases`), optionally a `solution`.",
        "",
        _column("problem"),
        _column("tests"),
        lambda row: row.get("solution"),
    ),
}


SOLUTION_LIMITS = Limits(seconds=20.0)


def check_solutions(rows: Sequence[tuple[int, str, str | None]], path: str) -> None:
    """Run each solution against its tests; `rows` are (row number, tests, solution)."""
    failed = []
    try:
        for number, tests, solution in rows:
            end = grade(shared(), solution or "", parse_tests(tests), SOLUTION_LIMITS, every_case=False).end
            failed += [f"row {number} ({end})"] if end != "passed" else []
    except SandboxError as error:
        raise RecipeError(str(error), where="environment") from None
    if failed:
        raise RecipeError(
            f"the data set's own solution fails its tests in {', '.join(failed[:5])} of '{path}'",
            where="environment.path",
            hint="correct or remove these rows; `tried: 0` skips this check",
        )


INSTRUCTION = "Write the program in one ```python block."
_KNOBS = """Columns: ``prompt`` (question, empty line, `instruction`), ``question``, ``tests`` for `code_tests`, and
    the data set's other columns.

    `path` may also be a local file or folder of the same shape. Tests are parsed when the data load: malformed tests
    are an error that names the row; up to `skip` such rows are removed. If the data set has solutions, the first
    `tried` of them must pass in the sandbox. Duplicate questions are removed.

    Held out: `test_rows` examples of `test_split` (0: all of them), or, without one, of `split`, drawn with `seed`.
    Their prompts are never trained on. `max_rows`: use only the first examples of `split`."""


def _read(preset: Preset, table: Any, path: str, *, tried: Natural = 16, skip: Natural = 0) -> Any:
    """Return `table` with the columns `question` and `tests`, each question once."""
    by_question: dict[str, tuple[int, str, str | None]] = {}
    problems = []
    for number, example in enumerate(table):
        try:
            question, tests = preset.question(example), preset.tests(example)
            parse_tests(tests)
            text = tests if isinstance(tests, str) else json.dumps(tests)
            by_question.setdefault(question, (number, text, preset.solution(example)))
        except KeyError as error:
            raise RecipeError(
                f"this preset requires {error}, which row {number} of '{path}' does not have",
                where="environment.path",
                allowed=", ".join(table.column_names),
                hint="for other shapes: code_table",
            ) from None
        except (BadTests, ValueError, TypeError, LookupError) as error:
            problems.append(f"row {number}: {error}")
    if len(problems) > skip or not by_question:
        raise RecipeError(
            f"{len(problems)} of {len(table)} rows of '{path}' have unusable tests: {'; '.join(problems[:3])}",
            where="environment.path",
            allowed=f"at most {skip} (the knob `skip`)",
            hint="is it the right data set for this preset?",
        )
    check_solutions([entry for entry in by_question.values() if entry[2]][:tried], path)
    table = table.select([number for number, _, _ in by_question.values()])
    columns = {"question": list(by_question), "tests": [text for _, text, _ in by_question.values()]}
    table = table.remove_columns([name for name in (*columns, "private_test_cases") if name in table.column_names])
    for name, values in columns.items():
        table = table.add_column(name, values)
    return table


ENVIRONMENTS = {
    name: environment_from(name, preset, _read, column="question", instruction=INSTRUCTION, knobs=_KNOBS)
    for name, preset in PRESETS.items()
}
