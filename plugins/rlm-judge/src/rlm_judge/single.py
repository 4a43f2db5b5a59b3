"""r: one completion at a time, by a mark or against a reference (hook ``rlm_rewards``)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Literal

from rlm_judge import verdicts
from rlm_judge.bench import Log, marks
from rlm_judge.fence import says_something
from rlm_judge.spec import Judge
from rlm_judge.talk import Question
from rlm_judge.wording import Count, Letters, Thinking, Wording, column
from rlm_plugins.errors import PartError


async def judge_score(
    completions: Sequence[str],
    prompts: Sequence[str],
    reference: Sequence[object] | None = None,
    judged: Sequence[bool] | None = None,
    log_metric: Log | None = None,
    trainer_state: object | None = None,
    *,
    judge: Judge,
    lowest: int = 1,
    highest: int = 10,
    scale: Literal["unit", "raw"] = "unit",
    instructions: str = "",
    template: str | None = None,
    reason: bool = True,
    votes: Count = 1,
    thinking: Thinking = "hide",
    longest: Letters = 20_000,
) -> list[float | None]:
    """A judge's mark from `lowest` to `highest`, by default brought to 0 … 1: r = (mark − lowest) / (highest − lowest).

    `judge` is a server (``{url: http://localhost:8000/v1, model: …}``), a local model (``{path: …}``) or the policy
    (``{policy: base}``). `instructions` say what to judge by; `reason` lets it think first; of several `votes` the
    mean counts. A column `reference` is shown as a right answer; where a column `judged` is false there is nothing to
    judge: None. `template` replaces the question (fields ``{task}``, ``{answer}``, ``{reference}``, ``{ask}``,
    ``{form}``, ``{instructions}``, and ``{mark}``: the verdict stands behind ``Verdict-{mark}:``; without it the
    judge's whole answer must be the verdict).

    Where the judge fails the row is not scored: None, and counted (``judge_score/failed``). An answer without a
    letter or digit gets the lowest mark unasked. Source: LLM-as-a-judge, arXiv 2306.05685 §3.1.
    """
    if highest <= lowest:
        raise PartError(f"marks from {lowest} to {highest}", where="judge_score", allowed="`lowest` below `highest`")
    wording = Wording(instructions, template, reason, thinking, longest)
    form = f"N (a number from {lowest}, the worst, to {highest}, the best)"
    read = functools.partial(verdicts.number, lowest=lowest, highest=highest)
    questions: list[Question | None] = []
    wanted = [True] * len(prompts) if judged is None else [bool(mine) for mine in judged]
    said, rights = [wording.said(completion) for completion in completions], column(reference, prompts)
    for task, answer, right, mine in zip(prompts, said, rights, wanted, strict=True):
        texts = {"task": task, **({"reference": right} if right else {}), "answer": answer}
        ask = "How good is the answer to the task?" + (" The reference is a right answer." if right else "")
        questions.append(wording.question(texts, ask, form, read) if mine and says_something(answer) else None)
    found = await marks("judge_score", judge, questions, votes, log_metric, trainer_state, unasked=lowest)
    step = highest - lowest if scale == "unit" else 1
    start = lowest if scale == "unit" else 0
    scores = [None if mark is None else (mark - start) / step for mark in found]
    return [score if mine else None for score, mine in zip(scores, wanted, strict=True)]


async def judge_verify(
    completions: Sequence[str],
    prompts: Sequence[str],
    answer: Sequence[object],
    log_metric: Log | None = None,
    trainer_state: object | None = None,
    *,
    judge: Judge,
    instructions: str = "",
    template: str | None = None,
    reason: bool = True,
    votes: Count = 1,
    thinking: Thinking = "hide",
    longest: Letters = 20_000,
) -> list[float | None]:
    """1 if a judge finds that the completion comes to the data set's `answer`, else 0: r = 1[same answer].

    For answers that no rule can compare: names, short texts, units in words. Knobs as of ``judge_score``; the
    verdict is CORRECT or INCORRECT, of several `votes` the mean. A row without an `answer` is not scored: None.
    Source: generative verifiers, arXiv 2408.15240; what passes for nothing is 0 unasked (arXiv 2507.08794).
    """
    wording = Wording(instructions, template, reason, thinking, longest)
    ask = (
        "Does the answer come to the same final result as the reference? The reference is right. Other words, "
        "notation or units for the same thing are the same; an answer that commits to no result, or to two, is not."
    )
    read = functools.partial(verdicts.word, values={"CORRECT": 1.0, "INCORRECT": 0.0})
    golds = column(answer, prompts)
    questions = [
        wording.question({"task": task, "reference": gold, "answer": said}, ask, "CORRECT or INCORRECT", read)
        if gold and says_something(said)
        else None
        for task, gold, said in zip(prompts, golds, map(wording.said, completions), strict=True)
    ]
    found = await marks("judge_verify", judge, questions, votes, log_metric, trainer_state, unasked=0.0)
    return [mark if gold else None for mark, gold in zip(found, golds, strict=True)]
