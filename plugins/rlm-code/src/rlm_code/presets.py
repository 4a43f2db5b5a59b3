"""The usual data sets: the questions of their examples, and their tests in the formats of `rlm_code.cases`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlm_code.contest_tests import (
    code_r1_tests,
    contest_tests,
    leetcode_tests,
    livecode_question,
    livecode_tests,
    starter_question,
)
from rlm_code.program_names import class_names, imported_names, program_names, test_functions
from rlm_code.source import BadTests, parse_source

Example = Mapping[str, Any]
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
        "Any table with the columns `problem` and `tests` (formats: `rlm_code.cases`), optionally a `solution`.",
        "",
        _column("problem"),
        _column("tests"),
        lambda row: row.get("solution"),
    ),
}
