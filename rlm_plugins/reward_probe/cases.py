"""The completions of a probe: correct ones in several formats, and traps that a reward must not score."""

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
"""Name → template of an answer."""
BARE = "{answer}"
LONG = 100_000
"""Characters of a very long completion."""
LISTED = 20
"""Maximum number of answers in an enumeration."""

Example = Mapping[str, Any]


def formatted(form: str, answer: object) -> str:
    """Return an answer in a template.

    >>> formatted(FORMS["box"], "1/2")
    '\\\\boxed{1/2}'
    """
    return form.replace("{answer}", str(answer))


def demonstrations(examples: Sequence[Example]) -> list[str]:
    """Return the column `demonstration`; empty if an example lacks it."""
    texts = [example.get("demonstration") for example in examples]
    return [text for text in texts if isinstance(text, str)] if all(isinstance(text, str) for text in texts) else []


def correct_completions(
    answers: Sequence[object], demonstrated: Sequence[str], forms: Mapping[str, str]
) -> dict[str, list[str]]:
    """Return the correct completion of each example by name of the format; demonstrations are one more format."""
    by_form = {name: [formatted(form, answer) for answer in answers] for name, form in forms.items() if answers}
    return ({"demonstration": [*demonstrated]} if demonstrated else {}) | by_form


def traps(examples: Sequence[Example], correct: Sequence[object], form: str) -> dict[str, list[str]]:
    """Return completions without merit, one per example, by name of the trap.

    Args:
        examples: Examples with their prompts.
        correct: Their correct answers; empty if they are unknown.
        form: Template of an answer.
    """
    without_answer: dict[str, Callable[[Example], str]] = {
        "empty": lambda example: "",
        "blank": lambda example: " \n ",
        "the prompt, echoed": lambda example: text_of(example["prompt"]),
        "the form without content": lambda example: formatted(form, ""),
        "absurdly long": lambda example: "Wait, let me think again. " * (LONG // 26),
    }
    cases = {name: [make(example) for example in examples] for name, make in without_answer.items()}
    return cases | (_traps_with_answers([str(answer) for answer in correct], form) if correct else {})


def _traps_with_answers(answers: Sequence[str], form: str) -> dict[str, list[str]]:
    """Return the traps that contain correct and wrong answers."""
    distinct = list(dict.fromkeys(answers))
    wrong = [_wrong_answer(distinct, answer) for answer in answers]
    thinking, _, last = form.rpartition("</think>")
    thinking += "</think>" * bool(thinking)
    enumerations = [_enumeration(distinct, answer) for answer in answers]
    certain = "" if form == BARE else "I am certain. "
    pairs = list(zip(answers, wrong, strict=True))
    return {
        "all answers, one after the other": [
            thinking + "\n".join(formatted(last, x) for x in each) for each in enumerations
        ],
        "all answers in one": [formatted(form, ", ".join(each)) for each in enumerations],
        "wrong but confident": [f"{certain}{formatted(form, x)}" for x in wrong],
        "right, then wrong": [f"{thinking}{formatted(last, a)}\n{formatted(last, b)}" for a, b in pairs],
        "right only while thinking": [f"<think>It is {a}.</think>{formatted(last, b)}" for a, b in pairs],
    }


def _wrong_answer(distinct: Sequence[str], correct: str) -> str:
    """Return the answer of another example; a modified one if all examples share one answer."""
    place = distinct.index(correct) + 1
    return distinct[place % len(distinct)] if len(distinct) > 1 else f"{correct}1"


def _enumeration(distinct: Sequence[str], correct: str) -> list[str]:
    """Return the correct answer in the middle of others: neither the first nor the last answer is the correct one."""
    others = [x for x in distinct if x != correct][: LISTED - 1]
    half = len(others) // 2
    return [*others[:half], correct, *others[half:]]
