"""r: agreement with a majority vote, and consistency of language (hook ``rlm_rewards``), without reference answers."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from rlm_plugins.data.answer_extraction import Untagged, final_answers, parse_number
from rlm_plugins.equation.knobs import Share

Answer = Fraction | str
"""A number if possible, so that 0.5 and 1/2 are the same vote; else the stripped text."""


def answer(text: str, tag: str, untagged: Untagged) -> Answer | None:
    """Return the answer of a completion; None if it has none, or several that differ.

    Args:
        text: The completion.
        tag: The block that holds an answer.
        untagged: The answer of a completion without the block; as for the reward `accuracy`.

    >>> answer("<answer>1,000</answer>", "answer", "wrong"), answer("<answer> </answer>", "answer", "wrong")
    (Fraction(1000, 1), None)
    """
    answers = {normalize(final) for final in final_answers(text, tag, untagged)}
    return answers.pop() if len(answers) == 1 else None


def normalize(text: object) -> Answer | None:
    """Return an answer in the form in which votes are counted; None for an empty one."""
    stripped = str(text).strip()
    value = parse_number(stripped)
    return value if value is not None else stripped or None


def group_indices(keys: Sequence[object]) -> dict[str, list[int]]:
    """Return key → indices with this key; unhashable keys (messages) are compared by their `repr`."""
    groups: dict[str, list[int]] = {}
    for index, key in enumerate(keys):
        groups.setdefault(repr(key), []).append(index)
    return groups


def count_votes(answers: Sequence[Answer | None]) -> Counter[Answer]:
    """Count each answer; completions without an answer do not vote."""
    return Counter(choice for choice in answers if choice is not None)


def majority_of(weights: Mapping[Answer, int] | Mapping[Answer, Fraction]) -> Answer | None:
    """Return the answer with the most votes; None without votes, or for a tie.

    >>> majority_of({"a": 2, "b": 1}), majority_of({"a": 1, "b": 1})
    ('a', None)
    """
    best = max(weights.values(), default=0)
    winners = [choice for choice, weight in weights.items() if weight == best]
    return winners[0] if len(winners) == 1 else None


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
        counts = count_votes([answers[index] for index in group])
        label = majority_of(counts)
        share = max(counts.values(), default=0) / max(counts.total(), 1)
        agreement.append(share)
        labelled.append(label is not None and share >= threshold)
        if labelled[-1]:
            for index in group:
                scores[index] = float(answers[index] == label)
    if log_metric is not None and labelled:
        log_metric("majority_vote/agreement", sum(agreement) / len(agreement))
        log_metric("majority_vote/labelled", sum(labelled) / len(labelled))
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


def language_consistency(completions: Sequence[str], *, script: str = "LATIN", tag: str = "think") -> list[float]:
    """Return the share of the words of the thought that are written in `script`; 0 without words.

    r = words of the script / words of ``<tag>…</tag>``. A word belongs to it if the Unicode names of all its letters
    begin with it (LATIN, GREEK, CYRILLIC, CJK); text without letters is no word. DeepSeek-R1, arXiv 2501.12948 §2.3.2,
    counts the words of the target language, and adds this share to the accuracy.

    Pitfalls: two languages of one script are the same to it. A thought of one word is consistent.

    >>> language_consistency(["<think>two και three = 5</think>5", "<think>2 + 3</think>5", "5"])
    [0.6666666666666666, 0.0, 0.0]
    """
    shares = []
    for text in completions:
        thought = text.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
        words = [letters for word in thought.split() if (letters := [c for c in word if c.isalpha()])]
        own = sum(all(unicodedata.name(c, "").startswith(script) for c in letters) for letters in words)
        shares.append(own / max(len(words), 1))
    return shares
