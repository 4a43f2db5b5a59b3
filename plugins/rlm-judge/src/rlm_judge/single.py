"""r: score of a single completion, absolute or against a reference (hook ``rlm_rewards``)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Literal

from rlm_judge import verdict_parsing
from rlm_judge.judge_factory import Log, query_or_default
from rlm_judge.prompt_builder import PromptBuilder, column
from rlm_judge.prompt_builder import has_content
from rlm_judge.records import Query
from rlm_judge.spec import Instructions, Judge, MaxCharacters, Reason, Template, Thinking, Votes
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
    instructions: Instructions = "",
    template: Template = None,
    reason: Reason = True,
    votes: Votes = 1,
    thinking: Thinking = "hide",
    longest: MaxCharacters = 20_000,
) -> list[float | None]:
    """Return the judge's score from `lowest` to `highest`, by default as r = (score − lowest) / (highest − lowest).

    `judge` is a server (``{url: http://localhost:8000/v1, model: …}``), a local model (``{path: …}``) or the policy
    (``{policy: base}``). `instructions` state the criteria; `reason` lets the judge reason first; the mean of several
    `votes` counts. A column `reference` is shown as a correct answer; where a column `judged` is false the completion
    is not scored: None. `template` replaces the prompt (fields ``{task}``, ``{answer}``, ``{reference}``, ``{ask}``,
    ``{form}``, ``{instructions}``, and ``{mark}``: the verdict follows ``Verdict-{mark}:``; without this field the
    judge's whole answer must be the verdict).

    If the judge fails, the completion is not scored: None, and counted (``judge_score/failed``). An answer without a
    letter or digit gets the lowest score without a query. Source: LLM-as-a-judge, arXiv 2306.05685 §3.1.
    """
    if highest <= lowest:
        raise PartError(
            f"empty range from {lowest} to {highest}", where="judge_score", allowed="`lowest` below `highest`"
        )
    builder = PromptBuilder(instructions, template, reason, thinking, longest)
    form = f"N (a number from {lowest}, the worst, to {highest}, the best)"
    parse = functools.partial(verdict_parsing.number, lowest=lowest, highest=highest)
    queries: list[Query | None] = []
    is_judged = [True] * len(prompts) if judged is None else [bool(judge_this) for judge_this in judged]
    texts, references = [builder.judged_text(completion) for completion in completions], column(reference, prompts)
    for task, answer, reference_text, judge_this in zip(prompts, texts, references, is_judged, strict=True):
        fields = {"task": task, **({"reference": reference_text} if reference_text else {}), "answer": answer}
        ask = "How good is the answer to the task?" + (" The reference is a right answer." if reference_text else "")
        queries.append(builder.query(fields, ask, form, parse) if judge_this and has_content(answer) else None)
    verdicts = await query_or_default("judge_score", judge, queries, votes, log_metric, trainer_state, default=lowest)
    span = highest - lowest if scale == "unit" else 1
    offset = lowest if scale == "unit" else 0
    scores = [None if verdict is None else (verdict - offset) / span for verdict in verdicts]
    return [score if judge_this else None for score, judge_this in zip(scores, is_judged, strict=True)]


async def judge_verify(
    completions: Sequence[str],
    prompts: Sequence[str],
    answer: Sequence[object],
    log_metric: Log | None = None,
    trainer_state: object | None = None,
    *,
    judge: Judge,
    instructions: Instructions = "",
    template: Template = None,
    reason: Reason = True,
    votes: Votes = 1,
    thinking: Thinking = "hide",
    longest: MaxCharacters = 20_000,
) -> list[float | None]:
    """Return 1 if the judge finds the completion's answer equal to the reference `answer`, else 0: r = 1[same answer].

    For answers that no rule can compare: names, short texts, units in words. Knobs as of ``judge_score``; the
    verdict is CORRECT or INCORRECT, with the mean of several `votes`. Without an `answer` it is not scored: None.
    Source: generative verifiers, arXiv 2408.15240; empty answers get 0 without a query (arXiv 2507.08794).
    """
    builder = PromptBuilder(instructions, template, reason, thinking, longest)
    ask = (
        "Does the answer come to the same final result as the reference? The reference is right. Other words, "
        "notation or units for the same thing are the same; an answer that commits to no result, or to two, is not."
    )
    parse = functools.partial(verdict_parsing.word, values={"CORRECT": 1.0, "INCORRECT": 0.0})
    references = column(answer, prompts)
    queries = [
        builder.query({"task": task, "reference": reference, "answer": text}, ask, "CORRECT or INCORRECT", parse)
        if reference and has_content(text)
        else None
        for task, reference, text in zip(prompts, references, map(builder.judged_text, completions), strict=True)
    ]
    scores = await query_or_default("judge_verify", judge, queries, votes, log_metric, trainer_state, default=0.0)
    return [score if reference else None for score, reference in zip(scores, references, strict=True)]
