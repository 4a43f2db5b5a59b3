"""r: completions compared two by two, each pair in both orders (hook ``rlm_rewards``)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Literal

from rlm_judge import verdicts
from rlm_judge.bench import Log
from rlm_judge.bench import verdicts as heard
from rlm_judge.fence import says_something
from rlm_judge.spec import Judge
from rlm_judge.talk import Question
from rlm_judge.tournament import Pair, Row, groups_of, pairs_of, rates_of
from rlm_judge.wording import Count, Letters, Thinking, Wording, column


async def judge_pairwise(
    completions: Sequence[str],
    prompts: Sequence[str],
    reference: Sequence[object] | None = None,
    log_metric: Log | None = None,
    trainer_state: object | None = None,
    *,
    judge: Judge,
    against: Literal["group", "reference"] = "group",
    opponents: Count | None = None,
    instructions: str = "",
    template: str | None = None,
    reason: bool = True,
    votes: Count = 1,
    thinking: Thinking = "hide",
    longest: Letters = 20_000,
) -> list[float | None]:
    """How often the completion is preferred: rᵢ = mean over opponents j of ½ (v(i, j) + 1 − v(j, i)).

    v(first, second) is 1 where the judge prefers the first, 0 the second, ½ neither. Each pair is asked in both
    orders, so a judge who likes what stands first likes nobody: rᵢ = ½ for all. How often the orders contradict each
    other is ``judge_pairwise/contradictions``.

    `against` the "group": everybody meets everybody else, or `opponents` others each (on a ring, in an order that
    depends on their texts alone; an odd number becomes the next even one). Equal texts share their verdicts and tie.
    `against` the "reference": each meets the column `reference`. An answer without a letter or digit loses unasked.
    A comparison of which one order failed counts for nobody; a row without any is not scored: None, and so is a
    group of one. Further knobs as of ``judge_score``; a template has ``{first}`` and ``{second}``.
    Source: both orders, LLM-as-a-judge, arXiv 2306.05685 §3.4.
    """
    wording = Wording(instructions, template, reason, thinking, longest)
    said = [wording.said(completion) for completion in completions]
    right = column(reference, prompts)
    rows = [Row(task, text, ref) for task, text, ref in zip(prompts, said, right, strict=True)]
    groups = groups_of(rows) if against == "group" else []
    pairs = [pair for group in groups for pair in pairs_of(group, opponents)]
    if against == "reference":
        pairs = [Pair(row.task, row.text, row.reference) for row in rows if row.reference]
    beats = await _beats(list(dict.fromkeys(pairs)), wording, judge, votes, log_metric, trainer_state)
    if against == "reference":
        return [beats.get(Pair(row.task, row.text, row.reference)) if row.reference else None for row in rows]
    scores = {key: score for group in groups for key, score in rates_of(group, beats).items()}
    return [scores[row.task, row.text] for row in rows]


async def _beats(
    pairs: Sequence[Pair], wording: Wording, judge: Judge, votes: int, log: Log | None, state: object
) -> dict[Pair, float]:
    """How far the first of each pair beats the second, from both orders; pairs without verdict are left out."""
    known = {pair: _plain(pair) for pair in pairs}
    asked = [pair for pair in pairs if known[pair] is None]
    both = [order for pair in asked for order in (pair, pair.turned)]
    questions = [_question(wording, pair) for pair in both]
    found = iter(await heard("judge_pairwise", judge, questions, votes, log, state))
    torn = 0
    for pair, there, back in zip(asked, found, found, strict=True):
        if there is not None and back is not None:
            known[pair] = (there + 1.0 - back) / 2.0
            torn += (there - 0.5) * (back - 0.5) > 0
    if log is not None:
        log("judge_pairwise/contradictions", torn / len(asked) if asked else 0.0)
    return {pair: beaten for pair, beaten in known.items() if beaten is not None}


def _plain(pair: Pair) -> float | None:
    """The verdict nobody need be asked for: who says nothing loses."""
    one, other = says_something(pair.first), says_something(pair.second)
    if pair.first == pair.second or not (one or other):
        return 0.5
    return None if one and other else float(one)


def _question(wording: Wording, pair: Pair) -> Question:
    ask = (
        "Which answer to the task is better, A (the first) or B (the second)? Neither the order nor the length of the "
        "answers matters."
    )
    read = functools.partial(verdicts.word, values={"A": 1.0, "B": 0.0, "TIE": 0.5})
    texts = {"task": pair.task, "first": pair.first, "second": pair.second}
    return wording.question(texts, ask, "A, B or TIE", read)
