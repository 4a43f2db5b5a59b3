"""Completions that a reward must pay, and those it must not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlm_plugins.training.judge import text_of

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

Row = Mapping[str, Any]


def written(form: str, answer: object) -> str:
    """An answer in a form.

    >>> written(FORMS["box"], "1/2")
    '\\\\boxed{1/2}'
    """
    return form.replace("{answer}", str(answer))


def golds(rows: Sequence[Row], column: str, forms: Mapping[str, str]) -> dict[str, list[str]]:
    """Form → the right answer of each row in it; the demonstrations of the data set are one more form."""
    found = {name: [written(form, row[column]) for row in rows] for name, form in forms.items()}
    if all(isinstance(row.get("demonstration"), str) for row in rows):
        found = {"demonstration": [row["demonstration"] for row in rows], **found}
    return found


def traps(rows: Sequence[Row], column: str | None, form: str) -> dict[str, list[str]]:
    """Name → a completion per row that is worth nothing.

    Args:
        rows: With their prompts.
        column: Where the right answers stand; None: nowhere.
        form: In which an answer is written down.
    """
    alike: dict[str, Callable[[Row], str]] = {
        "empty": lambda row: "",
        "blank": lambda row: " \n ",
        "the prompt, echoed": lambda row: text_of(row["prompt"]),
        "the form without content": lambda row: written(form, ""),
        "absurdly long": lambda row: "Wait, let me think again. " * (LONG // 26),
    }
    found = {name: [make(row) for row in rows] for name, make in alike.items()}
    if column is None:
        return found
    answers = [str(row[column]) for row in rows]
    every = list(dict.fromkeys(answers))
    wrong = [next((other for other in every if other != right), f"{right}1") for right in answers]
    thought, _, said = form.rpartition("</think>")
    thought += "</think>" * bool(thought)
    several = [sorted([right, *[x for x in every if x != right][: LISTED - 1]]) for right in answers]
    found["all answers, one after the other"] = [
        thought + "\n".join(written(said, x) for x in each) for each in several
    ]
    found["all answers in one"] = [written(form, ", ".join(each)) for each in several]
    found["wrong but confident"] = [f"I am certain. {written(form, x)}" for x in wrong]
    pairs = list(zip(answers, wrong, strict=True))
    found["right, then wrong"] = [f"{thought}{written(said, a)}\n{written(said, b)}" for a, b in pairs]
    found["right only while thinking"] = [f"<think>It is {a}.</think>{written(said, b)}" for a, b in pairs]
    return found
