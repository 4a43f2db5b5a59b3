"""Verdicts of `code_tests` on completions of models that others wrote, beside the verdicts of others.

    python benchmarks/code_verdicts.py CHECKOUT/gpt-4 HumanEval.jsonl.gz --runs 3
    python benchmarks/code_verdicts.py chatgpt_temp_0.0.jsonl MbppBase.jsonl

The first form: a folder with a Markdown page per task, as in jamesmurdza/humaneval-results. A run is a line
``Result: Pass``, or another result, and a fenced program. The tests are those of HumanEval, or of HumanEval+ in the
same columns. A program that fails the tests that HumanEval+ adds is no disagreement.

The second form: the chat answers of a model for MBPP, with the program that EvalPlus took out of each (its repository
at commit 082a92d has both files). That program passes if plain Python runs it with the tests.

Each disagreement is printed, then counts.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_RUN = re.compile(r"^Result: (\w+).*?^(```.*?^```)", re.M | re.S)
Verdicts = tuple[str, list[tuple[str, bool]], str]
"""Task, its completions with the verdict of others, and the tests as the column of `code_tests`."""


def human_eval(folder: Path, tests: Path, runs: int) -> Iterator[Verdicts]:
    """Yield the first `runs` different runs of each task."""
    from rlm_coding.environments import human_eval_tests

    with gzip.open(tests, "rt", encoding="utf-8") as lines:
        rows = {row["task_id"]: row for row in map(json.loads, lines)}
    for page in sorted(folder.glob("*.md"), key=lambda path: int(path.stem)):
        found = _RUN.findall(page.read_text().partition("## Runs")[2])
        chosen = [*dict.fromkeys((program, result == "Pass") for result, program in found)][:runs]
        yield f"HumanEval/{page.stem}", chosen, json.dumps(human_eval_tests(rows[f"HumanEval/{page.stem}"]))


def mbpp(completions: Path, tests: Path) -> Iterator[Verdicts]:
    """Yield one answer of each task; tasks whose tests call no function of the program are left out."""
    from rlm_coding.cases import BadTests
    from rlm_coding.environments import mbpp_tests

    rows = {row["task_id"]: row for row in map(json.loads, tests.open(encoding="utf-8"))}
    for answer in map(json.loads, completions.open(encoding="utf-8")):
        if row := rows.get(answer["task_id"]):
            try:
                cases = json.dumps(mbpp_tests(row))
            except BadTests as error:
                print(f"MBPP/{answer['task_id']}: {error}")
            else:
                yield f"MBPP/{answer['task_id']}", [(answer["full_content"], passes(answer["completion"], row))], cases


def passes(program: str, row: Mapping[str, Any]) -> bool:
    """Return True if plain Python runs the program and the tests of its task."""
    source = "\n".join([program, *row["test_imports"], *row["test_list"]])
    try:
        run = subprocess.run([sys.executable, "-c", source], capture_output=True, timeout=60, check=False)
        return run.returncode == 0
    except subprocess.TimeoutExpired:
        return False


def main() -> None:
    """Print disagreements and counts."""
    from rlm_coding import code_tests

    arguments = argparse.ArgumentParser()
    arguments.add_argument("completions", type=Path)
    arguments.add_argument("tests", type=Path)
    arguments.add_argument("--runs", type=int, default=10)
    options = arguments.parse_args()
    count = Counter[str]()
    if options.completions.is_dir():
        tasks = human_eval(options.completions, options.tests, options.runs)
    else:
        tasks = mbpp(options.completions, options.tests)
    for task, answers, tests in tasks:
        # a busy machine must not decide: importing numpy for the tests of HumanEval+ takes seconds there
        texts = [text for text, _ in answers]
        scores = code_tests(texts, [tests] * len(texts), modules=["numpy"], seconds=30, total_seconds=60)
        for (text, is_right), score in zip(answers, scores, strict=True):
            count[f"{'passes' if is_right else 'fails'} → {score}"] += 1
            if is_right != (score == 1.0):
                print(f"{task}: {'passes' if is_right else 'fails'} → {score}\n{text[-600:]}", flush=True)
    print(options.completions.name, options.tests.name, dict(count))


if __name__ == "__main__":
    main()
