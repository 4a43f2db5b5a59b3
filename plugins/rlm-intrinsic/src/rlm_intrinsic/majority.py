"""r: agreement with a majority vote (hook ``rlm_rewards``). The reference answer is not used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from pydantic import Field

from rlm_intrinsic.vote_counting import (
    answer,
    count_votes,
    group_indices,
    majority_of,
    matches_label,
)
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
    """Return 1 for the answer of most completions in the group, else 0.

    r = 1[aᵢ = argmax_a count(a)], where that answer has at least the share `threshold` of the votes. TTRL, arXiv
    2504.16084 (threshold 0); SRT, arXiv 2505.21444 (a threshold).

    A completion without an answer, or with two, does not vote and scores 0. With a tie, or a share below `threshold`,
    the group is not scored: None. (TTRL's code takes the first of a tie, and counts unparseable answers as votes.) A
    group of one agrees with itself.

    Pitfalls. It increases certainty, not correctness: where the majority is wrong, accuracy falls while this reward
    rises. It converges to one answer per prompt: monitor entropy, and `majority_vote/agreement` approaching 1. Keep a
    labelled `accuracy` of weight 0 as `evaluation.metric`, and stop early.

    >>> majority_vote(["2*3="] * 4, ["6", "6.0", "5", ""])
    [1.0, 1.0, 0.0, 0.0]
    """
    answers = [answer(text, tag, untagged) for text in completions]
    scores: Scores = [None] * len(answers)
    agreement, labelled = [], []
    for group in group_indices(prompt_messages).values():
        group_answers = [answers[index] for index in group]
        counts = count_votes(group_answers)
        label = majority_of(counts)
        share = max(counts.values(), default=0) / max(counts.total(), 1)
        agreement.append(share)
        labelled.append(label is not None and share >= threshold)
        if labelled[-1]:
            set_scores(scores, group, matches_label(group_answers, label))
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
    """Return the share of the group's votes for the completion's own answer.

    r = count(aᵢ) / Σ_a count(a). The soft variant of SRT, arXiv 2505.21444: no label, so ties and small majorities need
    no rule. A completion without an answer does not vote and scores 0; a group of one scores 1.

    Pitfalls: those of `majority_vote`. Since every answer gets some reward, a frequent wrong answer keeps a positive
    reward for long.

    >>> vote_share(["2*3="] * 4, ["6", "6", "5", ""])
    [0.6666666666666666, 0.6666666666666666, 0.3333333333333333, 0.0]
    """
    answers = [answer(text, tag, untagged) for text in completions]
    scores = [0.0] * len(answers)
    for group in group_indices(prompt_messages).values():
        counts = count_votes([answers[index] for index in group])
        for index in group:
            own_answer = answers[index]
            scores[index] = counts[own_answer] / counts.total() if own_answer is not None else 0.0
    return scores


def cross_view(
    prompt_messages: Sequence[Any],
    completions: Sequence[str],
    question: Sequence[object],
    *,
    tag: str = "answer",
    untagged: Untagged = "last_line",
) -> Scores:
    """Return 1 for the majority answer of the *other* wordings of the question, else 0.

    r = 1[aᵢ = argmax_a count_{x′}(a)], x′: the completions with the same `question` and another prompt. Co-Reward,
    arXiv 2508.00410 (its code; in the survey's table the same wording votes too).

    `question` is a column of the data set that exactly the wordings of one question share. They must be in one
    batch and on one process: sort the data set by it and use the sampler `side_by_side`. Without another wording, or
    with a tie of its votes, the completion is not scored: None.

    Pitfalls: two wordings can also agree on an error. A rewording that changes the answer gives wrong labels.

    >>> cross_view(["2*3=", "2*3=", "3*2=", "3*2="], ["6", "5", "6", "6"], ["a"] * 4)
    [1.0, 0.0, None, None]
    """
    answers = [answer(text, tag, untagged) for text in completions]
    views = [repr(prompt) for prompt in prompt_messages]
    scores: Scores = [None] * len(answers)
    for same_question in group_indices(question).values():
        for view in {views[index] for index in same_question}:
            label = majority_of(count_votes([answers[index] for index in same_question if views[index] != view]))
            if label is not None:
                same_view = [index for index in same_question if views[index] == view]
                set_scores(scores, same_view, matches_label([answers[index] for index in same_view], label))
    return scores


def set_scores(scores: Scores, indices: Sequence[int], values: Sequence[float]) -> None:
    """Write `values` to these indices of `scores`, in place."""
    for index, value in zip(indices, values, strict=True):
        scores[index] = value


def _log(log: Log | None, name: str, values: Sequence[float]) -> None:
    if log is not None and values:
        log(name, sum(values) / len(values))
