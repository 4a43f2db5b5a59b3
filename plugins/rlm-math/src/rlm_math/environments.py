"""x: the usual data sets as environments (hook ``rlm_environments``): which columns hold problem and answer."""

from __future__ import annotations

import hashlib
import logging
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from rlm_math.boxes import find_boxes
from rlm_math.comparison import Query, parse_query, parse_reference
from rlm_math.reward import shared_workers
from rlm_math.units import numeral
from rlm_plugins.data.presets import environment_from
from rlm_plugins.equation.knobs import Count, Share
from rlm_plugins.errors import RecipeError
from rlm_plugins.specs import EnvironmentSpec

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


INSTRUCTION = "Reason step by step, and put your final answer within \\boxed{}."
_KNOBS = """Columns: ``prompt`` (the problem, an empty line, `instruction`), ``problem``, ``answer``, and the
    data set's other columns.

    `path` may also be a local file or folder of the same shape. Duplicate problems are removed, and so
    are examples without an answer. Examples whose answer cannot be parsed as mathematics are removed with a warning;
    more than the share `unreadable` of them is an error. `check: false` skips this check.

    Held out: `test_rows` examples of `test_split` (0: all of them), or, without one, of `split`, drawn with `seed`.
    Their prompts are never trained on. `max_rows`: use only the first examples of `split`."""


def _read(preset: Preset, table: Any, path: str, *, check: bool = True, unreadable: Share = 0.05) -> Any:
    """Return `table` with the columns `problem` and `answer`, each problem once, without unusable answers."""
    if len(table) == 0:
        raise RecipeError(f"'{path}' has no rows", where="environment.path")
    if preset.demonstration is not None and preset.trace in table.column_names:
        table = table.add_column("demonstration", list(map(preset.demonstration, table)))
    table = table.remove_columns([name for name in TRANSCRIPT_COLUMNS if name in table.column_names])
    first: dict[str, tuple[int, str | None]] = {}
    for number, example in enumerate(table):
        try:
            first.setdefault(preset.problem(example), (number, preset.answer(example)))
        except KeyError as error:
            raise RecipeError(
                f"this preset requires the column {error}, which '{path}' does not have",
                where="environment.path",
                allowed=", ".join(table.column_names),
                hint="for other shapes: math_table, or dataset with `columns`",
            ) from None
    kept = {problem: entry for problem, entry in first.items() if entry[1] and problem.strip()}
    if not kept:
        raise RecipeError(f"no example of '{path}' has an answer", where="environment.path")
    table = table.select([number for number, _ in kept.values()])
    for name, values in (("problem", list(kept)), ("answer", [str(answer) for _, answer in kept.values()])):
        table = table.remove_columns([name] if name in table.column_names else []).add_column(name, values)
    return table.select(parseable_rows(table["answer"][:], where=f"'{path}'", max_share=unreadable)) if check else table


ENVIRONMENTS = {
    name: environment_from(name, preset, _read, column="problem", instruction=INSTRUCTION, knobs=_KNOBS)
    for name, preset in PRESETS.items()
}


SECONDS = 3.0
_LOG = logging.getLogger(__name__)


def parseable_rows(answers: Sequence[str], *, where: str, max_share: float) -> list[int]:
    """Return the indices of the examples whose answer the reward can use; a warning lists the others.

    Args:
        answers: Answer of each example.
        where: Name of the data set, for messages.
        max_share: Largest share of examples that may be removed.
    """
    parsed = {text: parse_reference(text) for text in dict.fromkeys(answers)}
    queries = {text: parse_query(gold) for text, gold in parsed.items() if gold is not None}
    unique_queries = list(dict.fromkeys(query for query in queries.values() if query is not None))
    replies: dict[Query, str] = {}
    if unique_queries:
        replies = dict(zip(unique_queries, shared_workers(None).run(unique_queries, SECONDS), strict=True))
    parseable = {text for text, query in queries.items() if query is None or replies[query] == "right"}
    kept = [row for row, text in enumerate(answers) if text in parseable]
    removed = [f"row {row}: {text[:60]!r}" for row, text in enumerate(answers) if text not in parseable]
    if len(removed) > max_share * len(answers):
        problem = f"{len(removed)} of {len(answers)} answers of {where} cannot be parsed as mathematics"
        raise RecipeError(
            f"{problem}: {'; '.join(removed[:3])}",
            where="environment.path",
            allowed=f"at most {max_share:.0%} (the knob `unreadable`)",
            hint="is it the right data set for this preset?",
        )
    if removed:
        _LOG.warning("%s: %d of %d answers left out: %s", where, len(removed), len(answers), "; ".join(removed[:10]))
    return kept


DENOMINATORS = (2, 4, 5, 8)


def fraction_sums(*, train_rows: Count = 4096, slip: Share = 0.0, seed: int = 0) -> EnvironmentSpec:
    """Build sums of two fractions with one-digit numerators and denominators: ``3/4+2/4=?`` → \\frac{5}{4}.

    Columns: ``prompt``, ``answer`` (in lowest terms, as LaTeX) and ``demonstration``: a box with ``5/4`` or, equally
    often, ``1.25``; with probability `slip` its numerator is one too high. A reward that compares strings accepts
    neither. One problem in eight, chosen by its hash, is never trained on; these are the test examples.

    >>> spec = fraction_sums(train_rows=1)
    >>> len(spec.test), spec.test[0]["prompt"][0]["content"], spec.test[0]["answer"]
    (44, '1/2+6/2=?', '\\\\frac{7}{2}')
    """
    problems = [(a, b, c) for c in DENOMINATORS for a in range(1, 10) for b in range(1, 10)]
    held_out = [problem for problem in problems if _is_held_out(*problem)]
    training = [problem for problem in problems if not _is_held_out(*problem)]
    rng = random.Random(f"fraction sums {seed}")
    return EnvironmentSpec(
        train=[_example(*rng.choice(training), rng, slip) for _ in range(train_rows)],
        test=[_example(*problem, rng, 0.0) for problem in held_out],
    )


def _is_held_out(a: int, b: int, c: int) -> bool:
    """Return True for one problem in eight, by a hash that ignores the order of the summands."""
    name = f"{min(a, b)}+{max(a, b)} over {c}"
    return hashlib.blake2b(name.encode(), digest_size=1).digest()[0] < 32


def _example(a: int, b: int, c: int, rng: random.Random, slip: float) -> dict[str, object]:
    total = Fraction(a + b, c)
    numerator = a + b + (rng.random() < slip)
    notation = f"{numerator}/{c}" if rng.random() < 0.5 else f"{numerator / c:g}"
    return {
        "prompt": [{"role": "user", "content": f"{a}/{c}+{b}/{c}=?"}],
        "answer": numeral(total),
        "demonstration": f"\\boxed{{{notation}}}",
    }
