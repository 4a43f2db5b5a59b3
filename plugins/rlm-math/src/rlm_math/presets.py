"""The usual data sets: which columns hold the problem and the answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlm_math.boxes import find_boxes

Example = Mapping[str, Any]

TRANSCRIPT_COLUMNS = [
    "generations",
    "generated_solution",
    "r1_solution_1",
    "r1_solution_2",
    "r1_solution_3",
    "finish_reasons",
    "messages",
    "correctness_math_verify",
    "correctness_llama",
    "is_reasoning_complete",
]
"""Columns with whole transcripts, which are dropped on loading."""
_NO_ANSWER = {"", "proof", "notfound", "not found", "none", "n/a"}
_DAPO_HEAD = re.compile(r"^Solve the following math problem step by step\..*?\n\n", re.S)
_DAPO_TAIL = re.compile(r"\n\nRemember to put your answer on its own line after \"Answer:\"\.?\s*$")


def verified_trace(row: Example) -> str:
    """Return the first trace of the column `generations` that was verified, or else the first.

    >>> verified_trace({"generations": ["wrong", "right"], "correctness_math_verify": [False, True]})
    'right'
    """
    checks = row.get("correctness_math_verify") or []
    right = [text for text, correct in zip(row["generations"], checks, strict=False) if correct]
    return str([*right, *row["generations"], ""][0])


def column(name: str) -> Callable[[Example], str]:
    """Return a function that reads one column as text."""

    def text(row: Example) -> str:
        return str(row[name])

    return text


def after_hashes(row: Example) -> str | None:
    """Return the text after ``####`` in the column `answer`, without thousands separators.

    >>> after_hashes({"answer": "<<48/2=24>>24 clips … #### 1,072"})
    '1072'
    """
    _, separator, result = str(row["answer"]).rpartition("####")
    return result.strip().replace(",", "") if separator else None


def in_last_box(row: Example) -> str | None:
    """Return the content of the last box in the column `solution`.

    >>> in_last_box({"solution": r"so $\\boxed{\\frac{1}{2}}$."})
    '\\\\frac{1}{2}'
    """
    all_boxes = find_boxes(str(row["solution"]))
    return all_boxes[-1].content if all_boxes else None


def answer_or_box(row: Example) -> str | None:
    """Return the column `answer`; if it is missing or not an answer ("notfound"), the solution's last box."""
    answer = str(row.get("answer") or "").strip()
    if answer.lower() not in _NO_ANSWER:
        return answer
    return None if answer.lower() == "proof" or row.get("solution") is None else in_last_box(row)


def dapo_problem(row: Example) -> str:
    """Return the problem of a DAPO example without its instructions, which ask for another answer format."""
    prompt = row["prompt"]
    text = prompt if isinstance(prompt, str) else prompt[-1]["content"]
    return _DAPO_TAIL.sub("", _DAPO_HEAD.sub("", text)).strip()


def dapo_answer(row: Example) -> str | None:
    """Return the ground truth of a DAPO example; the processed version stores it as `solution`."""
    model = row.get("reward_model")
    answer = model["ground_truth"] if isinstance(model, Mapping) else row.get("solution")
    return None if answer is None else str(answer)


@dataclass(frozen=True)
class Preset:
    """A data set and how to read its examples.

    Args:
        about: Description, used in the environment's docstring.
        path: Its name on the hub.
        problem: Example → problem.
        answer: Example → answer; None if it has none.
        config: Configuration among several under one name.
        demonstration: Example → a worked solution, for the column ``demonstration``; None: there is none.
        split: The training split.
        trace: The column that `demonstration` requires; a table without it has no demonstrations.
    """

    about: str
    path: str
    problem: Callable[[Example], str] = column("problem")
    answer: Callable[[Example], str | None] = answer_or_box
    config: str | None = None
    demonstration: Callable[[Example], str] | None = None
    split: str = "train"
    trace: str = "generations"


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
        answer=in_last_box,
        config="default",
    ),
    "dapo_17k": Preset(
        "DAPO-Math-17k: 17,000 problems with integer answers (arXiv 2503.14476); duplicates are removed.",
        "BytedTsinghua-SIA/DAPO-Math-17k",
        dapo_problem,
        dapo_answer,
    ),
    "deepscaler": Preset(
        "DeepScaleR: 40,000 problems of AIME, AMC, Omni-MATH and Still.",
        "agentica-org/DeepScaleR-Preview-Dataset",
    ),
    "numina_math": Preset(
        "NuminaMath (CoT, 1.5): 860,000 problems from exams and forums; without proofs.",
        "AI-MO/NuminaMath-1.5",
    ),
    "deepmath": Preset(
        "DeepMath-103K: 103,110 hard problems with three traces of DeepSeek-R1 each (arXiv 2504.11456; MIT).",
        "zwhe99/DeepMath-103K",
        column("question"),
        column("final_answer"),
        demonstration=column("r1_solution_1"),
        trace="r1_solution_1",
    ),
    "limo": Preset(
        "LIMO: about 800 problems with long worked solutions (arXiv 2502.03387; Apache-2.0).",
        "GAIR/LIMO",
        column("question"),
        column("answer"),
        demonstration=column("solution"),
        trace="solution",
    ),
    "open_math_reasoning": Preset(
        "OpenMathReasoning: 540,000 forum problems with traces (arXiv 2504.16891; CC-BY-4.0); duplicates are removed.",
        "nvidia/OpenMathReasoning",
        answer=column("expected_answer"),
        demonstration=column("generated_solution"),
        trace="generated_solution",
        split="cot",
    ),
    "openr1_math": Preset(
        "OpenR1-Math-220k: NuminaMath problems with verified traces of DeepSeek-R1 as demonstrations.",
        "open-r1/OpenR1-Math-220k",
        config="default",
        demonstration=verified_trace,
    ),
    "big_math": Preset(
        "Big-Math: 250,000 problems with closed answers and a solve rate each (arXiv 2502.17387).",
        "SynthLabsAI/Big-Math-RL-Verified",
    ),
    "math_table": Preset(
        "Any table with the columns `problem` and `answer` (or `solution`, with the answer in its last box).",
        "",
    ),
}
