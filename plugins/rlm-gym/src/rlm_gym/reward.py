"""r: what the task's own scorer says of an answer (hook ``rlm_rewards``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from pydantic import Field

from rlm_plugins.data.answer_extraction import final_answers

Seconds = Annotated[float, Field(gt=0, le=60)]
Log = Callable[[str, float], None]

LONGEST = 50_000
"""Characters beyond which a text is no answer."""
FULL = 1 - 1e-9


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
    """How good the answer is to the scorer of its task; rows come from the world `gym`.

    The answer is what ``<answer>…</answer>`` holds, after all thinking (`tag` names it); several blocks must hold the
    same. Without a block it is the whole text after the thinking, or with ``untagged: wrong`` none.

    `credit` "full": 1 where the scorer gives full marks, else 0. "partial": its number as it is. Then an answer that
    merely contains the right one earns its share of the length in many tasks, and in some everything earns 0.01.

    `only` scores the rows of one task: ``{name: gym_score, only: gcd, as: gcd, weight: 0}`` shows its own success.

    Scorers run in rlm-sandbox and nowhere else, since nine of them evaluate the answer as Python. Who takes longer
    than `seconds`, or makes its scorer fail, gets 0, and is counted (``gym/late``, ``gym/failed``). ``gym/<task>`` is
    the mean of a task; with `only` nothing is logged. A row without an entry is not scored: None.
    """
    from rlm_gym.scoring import Question, scores  # not at the top: the zygote imports this package, but has no sandbox

    given = [_answer(text, tag, untagged) for text in completions]
    asked = [only is None or name == only for name in task]
    questions = [
        Question(row, answer) if row and answer and wanted else None
        for row, answer, wanted in zip(entry, given, asked, strict=True)
    ]
    unlike = list(dict.fromkeys(question for question in questions if question))
    found = dict(zip(unlike, scores(unlike, seconds), strict=True)) if unlike else {}
    values = {
        question: float(score.value >= FULL) if credit == "full" else score.value for question, score in found.items()
    }
    result = [
        (values[question] if question else 0.0) if row and wanted else None
        for question, row, wanted in zip(questions, entry, asked, strict=True)
    ]
    if log_metric is not None and only is None:
        log_metric("gym/late", float(sum(score.how == "late" for score in found.values())))
        log_metric("gym/failed", float(sum(score.how not in ("ok", "late") for score in found.values())))
        for name in dict.fromkeys(filter(None, task)):
            own = [value for value, other in zip(result, task, strict=True) if other == name and value is not None]
            log_metric(f"gym/{name}", sum(own) / max(1, len(own)))
    return result


def _answer(text: str, tag: str, untagged: str) -> str:
    """The answer of a text; empty where it has none, or several."""
    spoken = text.rpartition("</think>")[2]
    if untagged == "wrong" or f"<{tag}>" in spoken:
        answers = {block.strip() for block in final_answers(text, tag, "wrong")}
    else:
        answers = set() if "<think>" in spoken else {spoken.strip()}
    (answer,) = answers if len(answers) == 1 else ("",)
    return answer if len(answer) <= LONGEST else ""
