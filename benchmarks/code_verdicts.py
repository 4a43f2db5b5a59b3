"""Verdicts of `code_tests` on completions of models for HumanEval that others wrote and graded.

    python benchmarks/code_verdicts.py CHECKOUT/gpt-4 HumanEval.jsonl.gz --runs 3

The folder has a Markdown page per task, as in jamesmurdza/humaneval-results. A run is a line ``Result: Pass``, or
another result, and a fenced program. The tests are those of HumanEval, or of HumanEval+ in the same columns. Each
disagreement is printed, then counts. A program that fails the tests that HumanEval+ adds is no disagreement.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections import Counter
from pathlib import Path

_RUN = re.compile(r"^Result: (\w+).*?^(```.*?^```)", re.M | re.S)


def main() -> None:
    """Print disagreements and counts."""
    from rlm_coding import code_tests
    from rlm_coding.environments import human_eval_tests

    arguments = argparse.ArgumentParser()
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("tests", type=Path)
    arguments.add_argument("--runs", type=int, default=10)
    options = arguments.parse_args()
    with gzip.open(options.tests, "rt", encoding="utf-8") as lines:
        rows = {row["task_id"]: row for row in map(json.loads, lines)}
    count = Counter[str]()
    for page in sorted(options.folder.glob("*.md"), key=lambda path: int(path.stem)):
        tests = json.dumps(human_eval_tests(rows[f"HumanEval/{page.stem}"]))
        runs = dict.fromkeys(
            (program, result) for result, program in _RUN.findall(page.read_text().partition("## Runs")[2])
        )
        chosen = [*runs][: options.runs]
        programs = [program for program, _ in chosen]
        # a busy machine must not decide: importing numpy for the tests of HumanEval+ takes seconds there
        scores = code_tests(programs, [tests] * len(chosen), modules=["numpy"], seconds=30, total_seconds=60)
        for (program, result), score in zip(chosen, scores, strict=True):
            count[f"{result} → {score}"] += 1
            if (result == "Pass") != (score == 1.0):
                print(f"HumanEval/{page.stem}: {result} → {score}\n{program[-600:]}", flush=True)
    print(options.folder.name, options.tests.name, dict(count))


if __name__ == "__main__":
    main()
