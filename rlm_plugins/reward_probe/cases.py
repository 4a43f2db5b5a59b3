"""Completions that a reward must pay, and those it must not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlm_plugins.rewards.columns import text_of

FORMS: dict[str, str] = {
    "thinking, answer tag": "<think>I work it out.</think><answer>{answer}</answer>",
    "answer tag": "<answer>{answer}</answer>",
    "thinking, box": "<think>I work it out.</think>The result is \\boxed{{answer}}.",
    "box": "\\boxed{{answer}}",
    "####": "I work it out.\n#### {answer}",
    "sentence": "The answer is {answer}.",
    "bare": "{answer}",
}
"""How an answer may be written down; ``{answer}`` stands for it."""
LONG = 100_000
"""Characters of an absurdly long completion."""
LISTED = 20
"""Answers at most, where all are listed."""

Example = Mapping[str, Any]


def written(form: str, answer: object) -> str:
    """An answer in a form.

    >>> written(FORMS["box"], "1/2")
    '\\\\boxed{1/2}'
    """
    return form.replace("{answer}", str(answer))


AS_IT_IS = "{answer}"


def demonstrations(rows: Sequence[Example]) -> list[str]:
    """The answer that the data set itself shows for each row; empty where it shows none."""
    shown = [row.get("demonstration") for row in rows]
    return [text for text in shown if isinstance(text, str)] if all(isinstance(x, str) for x in shown) else []


def golds(answers: Sequence[object], shown: Sequence[str], forms: Mapping[str, str]) -> dict[str, list[str]]:
    """Form → the right answer of each row in it; what the data set shows is one more form."""
    found = {"demonstration": [*shown]} if shown else {}
    return found | {name: [written(form, answer) for answer in answers] for name, form in forms.items() if answers}


def traps(rows: Sequence[Example], right: Sequence[object], form: str) -> dict[str, list[str]]:
    """Name → a completion per row that is worth nothing.

    Args:
        rows: With their prompts.
        right: Their right answers; empty: nobody knows them.
        form: In which an answer is written down.
    """
    alike: dict[str, Callable[[Example], str]] = {
        "empty": lambda row: "",
        "blank": lambda row: " \n ",
        "the prompt, echoed": lambda row: text_of(row["prompt"]),
        "the form without content": lambda row: written(form, ""),
        "absurdly long": lambda row: "Wait, let me think again. " * (LONG // 26),
    }
    found = {name: [make(row) for row in rows] for name, make in alike.items()}
    if not right:
        return found
    answers = [str(answer) for answer in right]
    every = list(dict.fromkeys(answers))
    wrong = [_next(every, answer) for answer in answers]
    thought, _, said = form.rpartition("</think>")
    thought += "</think>" * bool(thought)
    several = [_among(every, answer) for answer in answers]
    found["all answers, one after the other"] = [
        thought + "\n".join(written(said, x) for x in each) for each in several
    ]
    found["all answers in one"] = [written(form, ", ".join(each)) for each in several]
    certain = "" if form == AS_IT_IS else "I am certain. "
    found["wrong but confident"] = [f"{certain}{written(form, x)}" for x in wrong]
    pairs = list(zip(answers, wrong, strict=True))
    found["right, then wrong"] = [f"{thought}{written(said, a)}\n{written(said, b)}" for a, b in pairs]
    found["right only while thinking"] = [f"<think>It is {a}.</think>{written(said, b)}" for a, b in pairs]
    return found


def _next(every: Sequence[str], right: str) -> str:
    """Another row's answer; one that is a little different where all rows have the same."""
    place = every.index(right) + 1
    return every[place % len(every)] if len(every) > 1 else f"{right}1"


def _among(every: Sequence[str], right: str) -> list[str]:
    """The right answer in the middle of others: a reader that takes the first or the last it finds has committed."""
    others = [x for x in every if x != right][: LISTED - 1]
    half = len(others) // 2
    return [*others[:half], right, *others[half:]]
