"""The completions of a probe: correct ones in several formats, and traps that a reward must not score."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rlm_audit.reward_call import Example
from rlm_plugins.rewards.columns import text_of

FORMS: dict[str, str] = {
    "thinking, answer tag": "<think>I work it out.</think><answer>{answer}</answer>",
    "answer tag": "<answer>{answer}</answer>",
    "thinking, box": "<think>I work it out.</think>The result is \\boxed{{answer}}.",
    "box": "\\boxed{{answer}}",
    "####": "I work it out.\n#### {answer}",
    "sentence": "The answer is {answer}.",
    "bare": "{answer}",
    "program": "```python\n{answer}\n```",
}
"""Name → template of an answer."""
BARE = "{answer}"
LONG = 100_000
"""Characters of a very long completion."""
LISTED = 20
"""Maximum number of answers in an enumeration."""


def formatted(form: str, answer: object) -> str:
    """Return an answer in a template.

    >>> formatted(FORMS["box"], "1/2")
    '\\\\boxed{1/2}'
    """
    return form.replace("{answer}", str(answer))


def demonstrations(examples: Sequence[Example]) -> list[str]:
    """Return the column `demonstration`; empty if an example lacks it."""
    values = [example.get("demonstration") for example in examples]
    texts = [value for value in values if isinstance(value, str)]
    return texts if len(texts) == len(values) else []


def correct_completions(
    answers: Sequence[object], demonstrated: Sequence[str], forms: Mapping[str, str]
) -> dict[str, list[str]]:
    """Return the correct completion of each example by name of the format; demonstrations are one more format."""
    by_form = {"demonstration": [*demonstrated]} if demonstrated else {}
    for name, form in forms.items() if answers else ():
        by_form[name] = [formatted(form, answer) for answer in answers]
    return by_form


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
    cases = {name: list(map(completion_of, examples)) for name, completion_of in without_answer.items()}
    return cases | (_traps_with_answers([str(answer) for answer in correct], form) if correct else {})


def _traps_with_answers(answers: Sequence[str], form: str) -> dict[str, list[str]]:
    distinct = list(dict.fromkeys(answers))
    wrong = [_wrong_answer(distinct, answer) for answer in answers]
    thinking, _, last = form.rpartition("</think>")
    thinking += "</think>" * bool(thinking)
    enumerations = [_enumeration(distinct, answer) for answer in answers]
    certain = "" if form == BARE else "I am certain. "
    pairs = list(zip(answers, wrong, strict=True))
    return {
        "all answers, one after the other": [thinking + _lines(last, answers) for answers in enumerations],
        "all answers in one": [formatted(form, ", ".join(answers)) for answers in enumerations],
        "wrong but confident": [f"{certain}{formatted(form, x)}" for x in wrong],
        "right, then wrong": [f"{thinking}{formatted(last, a)}\n{formatted(last, b)}" for a, b in pairs],
        "right only while thinking": [f"<think>It is {a}.</think>{formatted(last, b)}" for a, b in pairs],
    }


def _lines(form: str, answers: Sequence[str]) -> str:
    return "\n".join(formatted(form, answer) for answer in answers)


def _wrong_answer(distinct: Sequence[str], correct: str) -> str:
    """Return the answer of another example; a modified one if all examples share one answer."""
    following = distinct.index(correct) + 1
    return distinct[following % len(distinct)] if len(distinct) > 1 else f"{correct}1"


def _enumeration(distinct: Sequence[str], correct: str) -> list[str]:
    """Return the correct answer in the middle of others: neither the first nor the last answer is the correct one."""
    wrong = [x for x in distinct if x != correct][: LISTED - 1]
    half = len(wrong) // 2
    return [*wrong[:half], correct, *wrong[half:]]
