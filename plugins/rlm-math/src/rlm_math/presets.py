"""The usual data sets: which column is the problem, and where the answer stands."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlm_math.boxes import boxes

Example = Mapping[str, Any]

BULKY = (
    "generations",
    "finish_reasons",
    "messages",
    "correctness_math_verify",
    "correctness_llama",
    "is_reasoning_complete",
)
"""Columns with whole transcripts, left behind at once."""
_NO_ANSWER = {"", "proof", "notfound", "not found", "none", "n/a"}
_DAPO_HEAD = re.compile(r"^Solve the following math problem step by step\..*?\n\n", re.S)
_DAPO_TAIL = re.compile(r"\n\nRemember to put your answer on its own line after \"Answer:\"\.?\s*$")


@dataclass(frozen=True)
class Preset:
    """How the rows of a data set are read.

    Args:
        about: What it is, for its docstring.
        path: Its name on the hub.
        problem: Example → problem.
        answer: Example → answer, None where there is none.
        config: Which of several data sets under one name.
    """

    about: str
    path: str
    problem: Callable[[Example], str]
    answer: Callable[[Example], str | None]
    config: str | None = None


def column(name: str) -> Callable[[Example], str]:
    """The text of one column."""

    def text(row: Example) -> str:
        return str(row[name])

    return text


def after_hashes(row: Example) -> str | None:
    """What follows ``####`` in the column `answer`, without thousands separators.

    >>> after_hashes({"answer": "<<48/2=24>>24 clips … #### 1,072"})
    '1072'
    """
    _, found, result = str(row["answer"]).rpartition("####")
    return result.strip().replace(",", "") if found else None


def in_last_box(row: Example) -> str | None:
    """What the last box of the column `solution` holds.

    >>> in_last_box({"solution": r"so $\\boxed{\\frac{1}{2}}$."})
    '\\\\frac{1}{2}'
    """
    found = boxes(str(row["solution"]))
    return found[-1].content if found else None


def answer_or_box(row: Example) -> str | None:
    """The column `answer`; where it is missing or no answer ("proof", "notfound"), the solution's last box."""
    answer = str(row.get("answer") or "").strip()
    if answer.lower() not in _NO_ANSWER:
        return answer
    return None if answer.lower() == "proof" or row.get("solution") is None else in_last_box(row)


def dapo_problem(row: Example) -> str:
    """The problem of a DAPO row, without the instructions it comes wrapped in (they ask for no box)."""
    prompt = row["prompt"]
    text = prompt if isinstance(prompt, str) else prompt[-1]["content"]
    return _DAPO_TAIL.sub("", _DAPO_HEAD.sub("", text)).strip()


def dapo_answer(row: Example) -> str | None:
    """Its ground truth; the processed version has it as `solution`."""
    model = row.get("reward_model")
    found = model["ground_truth"] if isinstance(model, Mapping) else row.get("solution")
    return None if found is None else str(found)


PRESETS = {
    "gsm8k": Preset(
        "GSM8K: 7,473 grade-school word problems with whole-number answers (arXiv 2110.14168).",
        "openai/gsm8k",
        column("question"),
        after_hashes,
        config="main",
    ),
    "competition_math": Preset(
        "MATH: 7,500 competition problems in seven subjects and five levels (arXiv 2103.03874).",
        "DigitalLearningGmbH/MATH-lighteval",
        column("problem"),
        in_last_box,
        config="default",
    ),
    "dapo_17k": Preset(
        "DAPO-Math-17k: 17,000 problems with integer answers (arXiv 2503.14476); its many copies are taken once.",
        "BytedTsinghua-SIA/DAPO-Math-17k",
        dapo_problem,
        dapo_answer,
    ),
    "deepscaler": Preset(
        "DeepScaleR: 40,000 problems of AIME, AMC, Omni-MATH and Still.",
        "agentica-org/DeepScaleR-Preview-Dataset",
        column("problem"),
        answer_or_box,
    ),
    "numina_math": Preset(
        "NuminaMath (CoT, 1.5): 860,000 problems from exams and forums; proofs are left out.",
        "AI-MO/NuminaMath-1.5",
        column("problem"),
        answer_or_box,
    ),
    "openr1_math": Preset(
        "OpenR1-Math-220k: NuminaMath problems with checked traces of DeepSeek-R1; the traces are left behind.",
        "open-r1/OpenR1-Math-220k",
        column("problem"),
        answer_or_box,
        config="default",
    ),
    "big_math": Preset(
        "Big-Math: 250,000 problems with closed answers and a solve rate each (arXiv 2502.17387).",
        "SynthLabsAI/Big-Math-RL-Verified",
        column("problem"),
        answer_or_box,
    ),
    "math_table": Preset(
        "Any table with the columns `problem` and `answer` (or `solution`, with its answer in the last box).",
        "",
        column("problem"),
        answer_or_box,
    ),
}
