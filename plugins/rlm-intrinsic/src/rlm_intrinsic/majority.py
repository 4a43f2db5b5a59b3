"""r: what most say is taken for the truth (hook ``rlm_rewards``). The right answer is never asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Annotated, Any

from pydantic import Field

from rlm_intrinsic.ballots import Answer, agrees, answer, elected, rows_by, said, votes
from rlm_plugins.data.answer_extraction import Untagged

Share = Annotated[float, Field(ge=0, le=1)]
Log = Callable[[str, float], None]
Scores = list[float | None]


def majority_vote(
    prompt_messages: Sequence[Any],
    completions: Sequence[str],
    log_metric: Log | None = None,
    *,
    threshold: Share = 0.0,
    tag: str = "answer",
    untagged: Untagged = "last_line",
) -> Scores:
    """1 for the answer that most completions of the group give, else 0.

    r = 1[aᵢ = argmax_a count(a)], where that answer has at least `threshold` of the votes cast. TTRL, arXiv 2504.16084
    (threshold 0); SRT, arXiv 2505.21444 (a threshold).

    Who gives no answer, or two, does not vote and scores 0. A tie elects nobody, nor does a share below `threshold`:
    the group is then not scored, None. (TTRL's code takes the first of a tie, and lets unreadable answers vote.) A
    group of one agrees with itself.

    Pitfalls. It makes a model sure, not right: where the majority errs, accuracy falls while this reward rises. It ends
    in one answer to every question: watch entropy, and `majority_vote/agreement` going to 1. Keep a labelled `accuracy`
    of weight 0 as `evaluation.metric`, and stop early.

    >>> majority_vote(["2*3="] * 4, ["6", "6.0", "5", ""])
    [1.0, 1.0, 0.0, 0.0]
    """
    answers = [answer(text, tag, untagged) for text in completions]
    scores: Scores = [None] * len(answers)
    agreement, labelled = [], []
    for rows in rows_by(prompt_messages).values():
        given = [answers[row] for row in rows]
        cast = votes(given)
        label = elected(cast)
        share = max(cast.values(), default=0) / max(cast.total(), 1)
        agreement.append(share)
        labelled.append(label is not None and share >= threshold)
        if labelled[-1]:
            _write(scores, rows, agrees(given, label))
    _log(log_metric, "majority_vote/agreement", agreement)
    _log(log_metric, "majority_vote/labelled", labelled)
    return scores


def vote_share(
    prompt_messages: Sequence[Any],
    completions: Sequence[str],
    *,
    tag: str = "answer",
    untagged: Untagged = "last_line",
) -> list[float]:
    """How many of the group's votes are for the row's own answer.

    r = count(aᵢ) / Σ_a count(a). The soft variant of SRT, arXiv 2505.21444: no label, so ties and small majorities need
    no rule. Who gives no answer does not vote and scores 0; a group of one scores 1.

    Pitfalls: those of `majority_vote`; and since every answer pays something, a wrong one that is popular enough keeps
    a positive reward for long.

    >>> vote_share(["2*3="] * 4, ["6", "6", "5", ""])
    [0.6666666666666666, 0.6666666666666666, 0.3333333333333333, 0.0]
    """
    answers = [answer(text, tag, untagged) for text in completions]
    scores = [0.0] * len(answers)
    for rows in rows_by(prompt_messages).values():
        cast = votes([answers[row] for row in rows])
        for row in rows:
            mine = answers[row]
            scores[row] = cast[mine] / cast.total() if mine is not None else 0.0
    return scores


def cross_view(
    prompt_messages: Sequence[Any],
    completions: Sequence[str],
    question: Sequence[object],
    *,
    tag: str = "answer",
    untagged: Untagged = "last_line",
) -> Scores:
    """1 for the answer that most completions of the *other* wordings of the question give, else 0.

    r = 1[aᵢ = argmax_a count_{x′}(a)], x′: the rows with the same `question` and another prompt. Co-Reward, arXiv
    2508.00410 (its code; the survey's table adds the own majority).

    `question` is a column of the data set that all wordings of one question share, and only they. They must come in one
    batch, and on one process: sort the data set by it and take the sampler `side_by_side`. Where no other wording is
    there, or its vote is a tie, the row is not scored: None.

    Pitfalls: two wordings can agree on an error as well as one; that takes longer. A rewording that changes the answer
    teaches nonsense.

    >>> cross_view(["2*3=", "2*3=", "3*2=", "3*2="], ["6", "5", "6", "6"], ["a"] * 4)
    [1.0, 0.0, None, None]
    """
    answers = [answer(text, tag, untagged) for text in completions]
    views = [repr(prompt) for prompt in prompt_messages]
    scores: Scores = [None] * len(answers)
    for rows in rows_by(question).values():
        for view in {views[row] for row in rows}:
            label = elected(votes([answers[row] for row in rows if views[row] != view]))
            if label is not None:
                own = [row for row in rows if views[row] == view]
                _write(scores, own, agrees([answers[row] for row in own], label))
    return scores


def frozen_voters(
    prompt_messages: Sequence[Any],
    completions: Sequence[str],
    ballots: Sequence[Sequence[Sequence[str]]],
    *,
    policy_votes: bool = True,
    tag: str = "answer",
    untagged: Untagged = "last_line",
) -> Scores:
    """1 for the answer that several models agree on, each heard as much as it agrees with itself; else 0.

    r = 1[aᵢ = argmax_a Σₙ SCₙ · countₙ(a)], SCₙ = max_a countₙ(a) / Kₙ. RLCCF, arXiv 2508.12338.

    `ballots` is a column of the data set: of each frozen model the list of its Kₙ answers to this question, sampled
    once, before the training; an empty text is an abstention. The policy's own group is one more voter unless
    `policy_votes` is false. A tie scores nobody: None. The paper's models all learn, ours but one are frozen: a frozen
    voter cannot be talked into the policy's errors.

    Pitfalls: voters of one family err together; a voter that always says the same has SC = 1, whatever it says.

    >>> frozen_voters(["2*3="] * 2, ["6", "5"], [[["6", "6"], ["5", "4"]]] * 2)
    [1.0, 0.0]
    """
    answers = [answer(text, tag, untagged) for text in completions]
    scores: Scores = [None] * len(answers)
    for rows in rows_by(prompt_messages).values():
        given = [answers[row] for row in rows]
        voters = [[said(each) for each in voter] for voter in ballots[rows[0]]]
        label = elected(_weighed([*voters, given] if policy_votes else voters))
        if label is not None:
            _write(scores, rows, agrees(given, label))
    return scores


def _weighed(voters: Sequence[Sequence[Answer | None]]) -> dict[Answer, Fraction]:
    """Answer → Σₙ SCₙ · countₙ, exactly: a tie is a tie."""
    total: dict[Answer, Fraction] = {}
    for voter in voters:
        cast = votes(voter)
        consistency = Fraction(max(cast.values(), default=0), max(len(voter), 1))
        for each, count in cast.items():
            total[each] = total.get(each, Fraction(0)) + consistency * count
    return total


def _write(scores: Scores, rows: Sequence[int], values: Sequence[float]) -> None:
    for row, value in zip(rows, values, strict=True):
        scores[row] = value


def _log(log: Log | None, name: str, values: Sequence[float]) -> None:
    if log is not None and values:
        log(name, sum(values) / len(values))
