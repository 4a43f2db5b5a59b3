"""r: the words that an answer shares with its reference (hook ``rlm_rewards``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rlm_plugins.data.answer_extraction import Untagged, final_answers, normalized


def token_f1(
    completions: Sequence[str], answer: Sequence[object], *, tag: str = "answer", untagged: Untagged = "last_line"
) -> list[float | None]:
    """Return the F1 of the words of the answer and of the reference, the best one of several accepted references.

    F1 = 2 · n / (a + b) with a words in the answer, b in the reference, n in both, counted with repetitions. Words are
    compared without case, punctuation and articles. Source: SQuAD, arXiv 1606.05250 §6.1. The answer is the content of
    ``<answer>…</answer>`` (`tag`) after all thinking; of several blocks the worst counts. `untagged`: as for
    `accuracy`. None without a reference.

    >>> token_f1(["<answer>The Eiffel Tower in Paris</answer>"], [["Eiffel Tower", "tour Eiffel"]])
    [0.6666666666666666]
    """
    return [
        _best_f1(final_answers(text, tag, untagged), _accepted(gold))
        for text, gold in zip(completions, answer, strict=True)
    ]


token_f1.gold_column = "answer"  # type: ignore[attr-defined]


def _accepted(gold: object) -> list[str]:
    entries = gold if isinstance(gold, list | tuple) else [gold]
    return [str(entry) for entry in entries if entry is not None and str(entry).strip()]


def _best_f1(answers: Sequence[str], accepted: Sequence[str]) -> float | None:
    if not accepted:
        return None
    return min((max(_f1(answer, gold) for gold in accepted) for answer in answers), default=0.0)


def _f1(answer: str, gold: str) -> float:
    words, reference = Counter(normalized(answer).split()), Counter(normalized(gold).split())
    return 2 * (words & reference).total() / (words.total() + reference.total()) if words else 0.0
