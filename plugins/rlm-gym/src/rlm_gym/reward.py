"""r: score of an answer by the scorer of its reasoning-gym task (hook ``rlm_rewards``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from pydantic import Field

from rlm_plugins.data.answer_extraction import final_answers

Seconds = Annotated[float, Field(gt=0, le=60)]
Log = Callable[[str, float], None]

MAX_ANSWER_LENGTH = 50_000
"""Largest number of characters of an answer; longer texts count as no answer."""
FULL_MARKS = 1 - 1e-9


def gym_score(
    completions: Sequence[str],
    entry: Sequence[str | None],
    task: Sequence[str | None],
    log_metric: Log | None = None,
    *,
    credit: Literal["full", "partial"] = "full",
    only: str | None = None,
    tag: str = "answer",
    untagged: Literal["text", "wrong"] = "text",
    seconds: Seconds = 3.0,
) -> list[float | None]:
    """Score answers with the scorer of their task; examples come from the environment `gym`.

    The answer is the content of ``<answer>…</answer>`` after all thinking (`tag` names it); several blocks must agree.
    Without a block it is the whole text after the thinking; with ``untagged: wrong`` there is no answer.

    `credit` "full": 1 where the scorer gives full marks, else 0. "partial": the scorer's own number. Then an answer
    that contains the correct one scores by its share of the length in many tasks, and in some any text scores 0.01.

    `only` restricts scoring to one task: ``{name: gym_score, only: gcd, as: gcd, weight: 0}`` reports that task alone.

    Scorers run in rlm-sandbox only, since nine of them evaluate the answer as Python. An answer that takes longer than
    `seconds`, or makes its scorer fail, gets 0 and is counted (``gym/late``, ``gym/failed``). ``gym/<task>`` is
    the mean score of a task; with `only` nothing is logged.

    Args:
        completions: Text of each completion (B).
        entry: Serialized task and item of each completion's example.
        task: Task name of each completion's example.
        log_metric: Called with name and value of each metric.
        credit: Full marks only, or the scorer's number.
        only: Task to restrict scoring to.
        tag: XML tag around the answer.
        untagged: Handling of completions without the tag.
        seconds: Time limit per answer.

    Returns:
        One score in [0, 1] per completion; None for examples without an entry, or of other tasks than `only`.
    """
    from rlm_gym.scoring import ScoringRequest, scores  # lazy: the zygote imports this package without rlm_sandbox

    answers = [_answer(text, tag, untagged) for text in completions]
    is_selected = [only is None or name == only for name in task]
    questions = [
        ScoringRequest(serialized, answer) if serialized and answer and selected else None
        for serialized, answer, selected in zip(entry, answers, is_selected, strict=True)
    ]
    unique = list(dict.fromkeys(question for question in questions if question))
    score_of = dict(zip(unique, scores(unique, seconds), strict=True)) if unique else {}
    values: dict[ScoringRequest | None, float] = {
        question: float(score.value >= FULL_MARKS) if credit == "full" else score.value
        for question, score in score_of.items()
    }
    result: list[float | None] = [
        values.get(question, 0.0) if serialized and selected else None
        for question, serialized, selected in zip(questions, entry, is_selected, strict=True)
    ]
    if log_metric is not None and only is None:
        log_metric("gym/late", float(sum(score.how == "late" for score in score_of.values())))
        log_metric("gym/failed", float(sum(score.how not in ("ok", "late") for score in score_of.values())))
        for name in dict.fromkeys(filter(None, task)):
            task_values = [
                value for value, task_name in zip(result, task, strict=True) if task_name == name and value is not None
            ]
            log_metric(f"gym/{name}", sum(task_values) / max(1, len(task_values)))
    return result


def _answer(text: str, tag: str, untagged: str) -> str:
    """Return the answer in a text; empty if there is none, or several that differ."""
    after_thinking = text.rpartition("</think>")[2]
    if untagged == "wrong" or f"<{tag}>" in after_thinking:
        answers = {block.strip() for block in final_answers(text, tag, "wrong")}
    else:
        answers = set() if "<think>" in after_thinking else {after_thinking.strip()}
    (answer,) = answers if len(answers) == 1 else ("",)
    return answer if len(answer) <= MAX_ANSWER_LENGTH else ""
