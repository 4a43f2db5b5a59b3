"""Verdicts of `math_accuracy`, math-verify and TRL on pairs and completions that others wrote and graded.

    python benchmarks/math_verdicts.py
    python benchmarks/math_verdicts.py outputs.jsonl --kind completions
    python benchmarks/math_verdicts.py test.jsonl --kind references

Without a file it reads the pairs of other graders' tests. They lie beside the tests of rlm-math with their sources.
Other files are JSON lines of outputs and data sets. Each disagreement is printed. Then come counts with 95 % Wilson
intervals, and seconds. Paid are answers that are wrong for the source. Rejected are those that are right.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

PAIRS = Path(__file__).parents[1] / "plugins/rlm-math/tests/pairs_of_peers.jsonl"
CHUNK = 20
"""Rows that the graders judge in turn, so that both meet the same load of the machine."""


class Row(NamedTuple):
    """A reference, a completion, and the verdict of those who wrote them."""

    gold: str
    text: str
    expected: bool


def pairs(path: Path) -> Iterator[Row]:
    """Yield the pairs of the tests of other graders, once for each source."""
    for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        yield from [Row(row["gold"], row["text"], row["right"])] * len(row["sources"])


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
            text = str(each).strip()
            formula = text.strip("$")
            yield Row(text, f"\\boxed{{{text if '$' in formula else formula}}}", expected=True)


def main() -> None:
    """Print disagreements and counts."""
    from rlm_math import math_accuracy

    from rlm_plugins.evaluation.scores import share_interval

    arguments = argparse.ArgumentParser()
    arguments.add_argument("files", nargs="*", type=Path, default=[PAIRS])
    arguments.add_argument("--kind", choices=["tests", "completions", "references"], default="tests")
    arguments.add_argument("--alone", action="store_true", help="without math-verify and TRL")
    options = arguments.parse_args()
    logging.disable(logging.CRITICAL)
    read = {"tests": pairs, "completions": completions, "references": references}[options.kind]
    rows = [row for path in options.files for row in read(path)]
    rows = rows if options.kind == "tests" else [*dict.fromkeys(rows)]
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
    for verdict, number in sorted(count.items()):
        low, high = share_interval([1.0] * number + [0.0] * (len(rows) - number))
        print(f"{verdict}: {number} of {len(rows)} ({low:.1%}-{high:.1%})")
    print({name: round(value, 1) for name, value in seconds.items()})


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
