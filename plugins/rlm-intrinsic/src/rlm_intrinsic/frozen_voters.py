"""r: agreement with the weighted votes of several models (hook ``rlm_rewards``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlm_intrinsic.collective import weighted_votes
from rlm_intrinsic.majority import Scores, set_scores
from rlm_intrinsic.vote_counting import answer, group_indices, majority_of, matches_label, normalize
from rlm_plugins.data.answer_extraction import Untagged


def frozen_voters(
    prompt_messages: Sequence[Any],
    completions: Sequence[str],
    ballots: Sequence[Sequence[Sequence[str]]],
    *,
    policy_votes: bool = True,
    tag: str = "answer",
    untagged: Untagged = "last_line",
) -> Scores:
    """Return 1 for the answer with the most votes of several models, weighted by their self-consistency; else 0.

    r = 1[aᵢ = argmax_a Σₙ SCₙ · countₙ(a)], SCₙ = max_a countₙ(a) / Kₙ. RLCCF, arXiv 2508.12338.

    `ballots` is a column of the data set: for each frozen model the list of its Kₙ answers to this prompt, sampled
    once before training; an empty text is an abstention. The policy's own group is one more voter unless
    `policy_votes` is false. A tie is not scored: None. In the paper all models train, as with
    `co_learners`; here all but the policy are frozen, so that they cannot adopt its errors.

    Pitfalls: models of one family share errors; a model that always repeats itself has SC = 1, right or wrong.

    >>> frozen_voters(["2*3="] * 2, ["6", "5"], [[["6", "6"], ["5", "4"]]] * 2)
    [1.0, 0.0]
    """
    answers = [answer(text, tag, untagged) for text in completions]
    scores: Scores = [None] * len(answers)
    for group in group_indices(prompt_messages).values():
        group_answers = [answers[index] for index in group]
        voters = [[normalize(ballot) for ballot in voter] for voter in ballots[group[0]]]
        label = majority_of(weighted_votes([*voters, group_answers] if policy_votes else voters))
        if label is not None:
            set_scores(scores, group, matches_label(group_answers, label))
    return scores
