"""r: how many mean the same (hook ``rlm_rewards``), where "the same" is the reader's choice."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Annotated, Any

from pydantic import Field

from rlm_intrinsic.ballots import Answer, answer, rows_by
from rlm_plugins.data.answer_extraction import Untagged
from rlm_plugins.errors import PartError
from rlm_plugins.registry.import_path import borrow_function

Share = Annotated[float, Field(ge=0, le=1)]
Clustering = Callable[[Sequence[str]], Sequence[Hashable]]
"""Texts → a label for each; equal labels mean the same. The order of the texts must not matter."""


class SemanticClusters:
    """The share of the group that means the same as the row.

    r = |{j : cⱼ = cᵢ}| / G, c the cluster of a row's answer; 0 without an answer, and 0 for the whole group where the
    entropy of its clusters is outside of [`lowest`, `highest`) · log G. EMPO, arXiv 2504.05812: its code has highest 1
    (all different: nothing to learn), the paper a lower bound too.

    `by` says what is the same: "exact" (equal answers, numbers by value), or a function of yours, by its address
    ``module:function`` or ``file.py:function``: texts → a label for each, whatever their order.
    :class:`rlm_intrinsic.embeddings.Alike` makes one from a model of sentences.

    Pitfalls: those of `majority_vote`; clusters that are too coarse pay for saying anything in the right tone. A group
    of one scores 0, since log 1 = 0.

    >>> SemanticClusters()(["2*3="] * 4, ["6", "6.0", "5", ""])
    [0.5, 0.5, 0.25, 0.0]
    """

    def __init__(
        self,
        *,
        by: str = "exact",
        lowest: Share = 0.0,
        highest: Share = 1.0,
        tag: str = "answer",
        untagged: Untagged = "last_line",
    ) -> None:
        self._lowest, self._highest = lowest, highest
        self._tag, self._untagged = tag, untagged
        self._cluster: Clustering | None = None if by == "exact" else borrow_function(by, where="semantic_clusters.by")

    def __call__(self, prompt_messages: Sequence[Any], completions: Sequence[str]) -> list[float]:
        answers = [answer(text, self._tag, self._untagged) for text in completions]
        scores = [0.0] * len(answers)
        for rows in rows_by(prompt_messages).values():
            given = [row for row in rows if answers[row] is not None]
            labels = self._labels([answers[row] for row in given])
            sizes = Counter(labels)
            if self._teaches(list(sizes.values()), len(rows)):
                for row, label in zip(given, labels, strict=True):
                    scores[row] = sizes[label] / len(rows)
        return scores

    def _labels(self, answers: Sequence[Answer | None]) -> Sequence[Hashable]:
        if self._cluster is None or not answers:
            return answers
        labels = self._cluster([str(each) for each in answers])
        if len(labels) != len(answers):
            raise PartError(f"{len(labels)} labels for {len(answers)} texts", where="semantic_clusters.by")
        return labels

    def _teaches(self, sizes: Sequence[int], rows: int) -> bool:
        shares = [size / sum(sizes) for size in sizes]
        entropy, most = -sum(p * math.log(p) for p in shares), math.log(rows)
        return self._lowest * most <= entropy + 1e-9 and entropy < self._highest * most - 1e-9
