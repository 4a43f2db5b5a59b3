"""r: share of the group with the same meaning (hook ``rlm_rewards``), under a configurable clustering."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Annotated, Any

from pydantic import Field

from rlm_intrinsic.vote_counting import Answer, answer, group_indices
from rlm_plugins.data.answer_extraction import Untagged
from rlm_plugins.errors import PartError
from rlm_plugins.registry.loading import import_function

Share = Annotated[float, Field(ge=0, le=1)]
Clustering = Callable[[Sequence[str]], Sequence[Hashable]]
"""Texts → a label for each; equal labels mean equal meaning. The result must not depend on the order of the texts."""


class SemanticClusters:
    """The share of the group whose answers mean the same as the completion's.

    r = |{j : cⱼ = cᵢ}| / G, c the cluster of a completion's answer; 0 without an answer, and 0 for the whole group if
    the entropy of its clusters is outside [`lowest`, `highest`) · log G. EMPO, arXiv 2504.05812: its code has highest 1
    (all different: no signal), the paper a lower bound, too.

    `by` is the clustering: "exact" (equal answers, numbers by value), or a function by its address
    ``module:function`` or ``file.py:function``: texts → a label for each, independent of their order.
    :class:`rlm_intrinsic.embeddings.SentenceClusters` makes one from a sentence encoder.

    Pitfalls: those of `majority_vote`; too coarse clusters reward any answer of the right style. A group of one scores
    0, since log 1 = 0.

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
        self._cluster: Clustering | None = None if by == "exact" else import_function(by, where="semantic_clusters.by")

    def __call__(self, prompt_messages: Sequence[Any], completions: Sequence[str]) -> list[float]:
        """Return the score of each completion."""
        answers = [answer(text, self._tag, self._untagged) for text in completions]
        scores = [0.0] * len(answers)
        for group in group_indices(prompt_messages).values():
            answered = [index for index in group if answers[index] is not None]
            labels = self._labels([answers[index] for index in answered])
            sizes = Counter(labels)
            if self._is_informative(list(sizes.values()), len(group)):
                for index, label in zip(answered, labels, strict=True):
                    scores[index] = sizes[label] / len(group)
        return scores

    def _labels(self, answers: Sequence[Answer | None]) -> Sequence[Hashable]:
        if self._cluster is None or not answers:
            return answers
        labels = self._cluster([str(text) for text in answers])
        if len(labels) != len(answers):
            raise PartError(f"expected {len(answers)} labels, got {len(labels)}", where="semantic_clusters.by")
        return labels

    def _is_informative(self, sizes: Sequence[int], group_size: int) -> bool:
        shares = [size / sum(sizes) for size in sizes]
        entropy, max_entropy = -sum(p * math.log(p) for p in shares), math.log(group_size)
        return self._lowest * max_entropy <= entropy + 1e-9 and entropy < self._highest * max_entropy - 1e-9
