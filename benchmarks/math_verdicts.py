"""Verdicts of `math_accuracy`, math-verify and TRL on pairs and completions that others wrote and graded.

    python benchmarks/math_verdicts.py CHECKOUT/tests/test_all.py CHECKOUT/tests/test_math_equal.py
    python benchmarks/math_verdicts.py outputs.jsonl --kind completions
    python benchmarks/math_verdicts.py test.jsonl --kind references

The files are read where they are: tests of other graders as Python source that is parsed and never run, completions and
data sets as JSON lines. Each disagreement is printed; then counts and seconds. Paid are answers that are wrong for the
source, rejected are those that are right.
"""

from __future__ import annotations

import argparse
import ast
import json
import logging
import re
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

LONGEST = 300
"""Characters of an answer without a box; a longer one is a whole solution."""
CHUNK = 20
"""Rows that the graders judge in turn, so that both meet the same load of the machine."""


class Row(NamedTuple):
    """A reference, a completion, and the verdict of those who wrote them."""

    gold: str
    text: str
    expected: bool


def pairs_of_tests(path: Path) -> Iterator[Row]:
    """Yield the pairs of a grader's tests: parametrized ones, and those in front of assertTrue and assertFalse."""
    for function in ast.walk(ast.parse(path.read_text())):
        if not isinstance(function, ast.FunctionDef):
            continue
        is_right = "incorrect" not in function.name
        for decorator in function.decorator_list:
            for pair in _pairs(decorator):
                yield Row(pair[0], pair[1], bool(pair[2]) if isinstance(pair[2], int) else is_right)
        yield from _asserted(function.body, [], {})


def _asserted(body: list[ast.stmt], pairs: list[tuple[Any, ...]], names: dict[str, Any]) -> Iterator[Row]:
    for statement in body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            value, name = statement.value, statement.targets[0].id
            if isinstance(value, ast.Constant):
                names[name] = value.value
            elif isinstance(value, ast.List):
                pairs = list(_pairs(value))
        elif isinstance(statement, ast.For):
            yield from _asserted(statement.body, pairs, names)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            called = getattr(statement.value.func, "attr", "")
            found = pairs or [(names.get("test_in"), names.get("test_out"), None)]
            if called in ("assertTrue", "assertFalse"):
                yield from (Row(str(b), str(a), called == "assertTrue") for a, b, _ in found if a is not None)
            pairs = []


def _pairs(node: ast.AST) -> Iterator[tuple[Any, ...]]:
    """Yield (first, second, third or None) of each tuple of constants."""
    for each in ast.walk(node):
        items = each.elts if isinstance(each, ast.Tuple) else []
        if len(items) < 2 or not all(isinstance(item, (ast.Constant, ast.BinOp)) for item in items[:2]):
            continue
        try:
            first, second, *rest = (eval(compile(ast.Expression(item), "", "eval"), {}) for item in items[:3])
        except (NameError, TypeError):
            continue
        if None not in (first, second):
            yield str(first), str(second), rest[0] if rest else None


def boxed(row: Row) -> Row | None:
    """Return a row with its answer in a box; None for an answer that is a solution in words."""
    gold, text = (each.strip() for each in row[:2])
    if gold.count("$") == 2 and gold[0] == gold[-1] == "$":
        gold = gold[1:-1]
    if "boxed" in text:
        return Row(gold, text, row.expected)
    if text.count("$") == 2 and text[0] == text[-1] == "$":
        text = text[1:-1]
    is_answer = len(text) <= LONGEST and not re.search(r"(?<!\\)\$|[a-z]{3,} [a-z]+ [a-z]{2,}", text)
    return Row(gold, f"\\boxed{{{text}}}", row.expected) if is_answer else None


def completions(path: Path) -> Iterator[Row]:
    """Yield the completions of a file of model outputs, with the verdicts of their authors."""
    for line in path.read_text().splitlines():
        row = json.loads(line)
        if "debug_result" in row:
            texts = [str(message["content"]) for message in row["debug_result"] if message["role"] == "text"]
            yield Row(row["ground_truth"]["answer"], "\n".join(texts[:-1]), expected="wrong" not in path.name)
        else:
            yield from (Row(row["gt"], *pair) for pair in zip(row["code"], row["score"], strict=True))


def references(path: Path) -> Iterator[Row]:
    """Yield each reference of a data set as its own answer."""
    rows = json.loads(path.read_text()) if path.suffix == ".json" else map(json.loads, path.read_text().splitlines())
    for row in rows:
        answer = row.get("answer", row.get("final_answer"))
        for each in answer if isinstance(answer, list) else [answer]:
            yield Row(str(each), f"\\boxed{{{str(each).strip().strip('$')}}}", expected=True)


def main() -> None:
    """Print disagreements and counts."""
    from rlm_math import math_accuracy

    arguments = argparse.ArgumentParser()
    arguments.add_argument("files", nargs="+", type=Path)
    arguments.add_argument("--kind", choices=["tests", "completions", "references"], default="tests")
    arguments.add_argument("--alone", action="store_true", help="without math-verify and TRL")
    options = arguments.parse_args()
    logging.disable(logging.CRITICAL)
    read = {"tests": pairs_of_tests, "completions": completions, "references": references}[options.kind]
    rows = [row for path in options.files for row in dict.fromkeys(read(path))]
    if options.kind == "tests":
        rows = [each for each in map(boxed, rows) if each]
    count, seconds, each_row = Counter[str](), Counter[str](), iter(rows)
    graders = {"math_accuracy": math_accuracy} | ({} if options.alone else {"math-verify": _math_verify, "TRL": _trl})
    math_accuracy([r"\boxed{\sqrt{4}}"], ["2"])  # starts the workers
    while chunk := list(islice(each_row, CHUNK)):
        scores: dict[str, list[float | None]] = {}
        for name, grade in graders.items():
            start = time.perf_counter()
            scores[name] = grade([row.text for row in chunk], [row.gold for row in chunk])
            seconds[name] += time.perf_counter() - start
        for index, row in enumerate(chunk):
            verdicts = {name: each[index] for name, each in scores.items()}
            for name, score in verdicts.items():
                wrong = "rejected" if row.expected else "paid"
                verdict = "unscored" if score is None else "agrees" if score == row.expected else wrong
                count[f"{name} {verdict}"] += 1
            if {*verdicts.values()} != {float(row.expected)}:
                pair = f"{row.gold} | {row.text[-120:]}".replace("\n", "⏎")
                print(f"{row.expected:d} {verdicts} | {pair}")
    print(len(rows), dict(count), {name: round(value, 1) for name, value in seconds.items()})


def _math_verify(texts: list[str], golds: list[str]) -> list[float | None]:
    from math_verify import parse, verify

    return [float(verify(parse(f"${gold}$"), parse(text))) for gold, text in zip(golds, texts, strict=True)]


def _trl(texts: list[str], golds: list[str]) -> list[float | None]:
    from trl.rewards import accuracy_reward

    messages = [[{"role": "assistant", "content": text}] for text in texts]
    scores: list[float | None] = accuracy_reward(messages, [f"${gold}$" for gold in golds])
    return scores


if __name__ == "__main__":
    main()
