"""A clustering of texts by a sentence encoder, for `semantic_clusters`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from rlm_plugins.lazy import torch


class SentenceClusters:
    """Clusters of texts: connected components of the graph of pairs with at least the given cosine `similarity`.

    In a file beside the recipe, with any encoder that transformers loads and whose last states are averaged
    (most models of sentence-transformers)::

        # same.py
        from rlm_intrinsic.embeddings import SentenceClusters
        same_meaning = SentenceClusters("sentence-transformers/all-MiniLM-L6-v2", similarity=0.85)

        # recipe.yaml
        rewards: [{name: semantic_clusters, by: "./same.py:same_meaning"}]

    Args:
        path: Folder or hub name of the encoder, loaded on first use, on the CPU.
        similarity: Smallest cosine of two texts with the same meaning.
        batch_size: Texts per forward pass.
    """

    def __init__(self, path: str, *, similarity: float = 0.9, batch_size: int = 32) -> None:
        self._path, self._similarity, self._batch_size = path, similarity, batch_size

    @cached_property
    def _encoder(self) -> tuple[Any, Any]:
        from transformers import AutoModel, AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(self._path, padding_side="right", trust_remote_code=False)
        encoder = AutoModel.from_pretrained(self._path, trust_remote_code=False)
        return tokenizer, encoder.eval().requires_grad_(False)

    def __call__(self, texts: Sequence[str]) -> list[int]:
        """Return a label for each text."""
        unique = list(dict.fromkeys(texts))
        vectors = [self._embed(unique[i : i + self._batch_size]) for i in range(0, len(unique), self._batch_size)]
        labels = dict(zip(unique, connected_components(torch.cat(vectors), self._similarity), strict=True))
        return [labels[text] for text in texts]

    def _embed(self, texts: list[str]) -> torch.Tensor:
        """Return unit vectors (texts, H)."""
        tokenizer, encoder = self._encoder
        inputs = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        attention_mask = inputs["attention_mask"].unsqueeze(-1)
        hidden_states = encoder(
            input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]
        ).last_hidden_state
        mean = (hidden_states * attention_mask).sum(1) / attention_mask.sum(1).clamp(min=1)
        return torch.nn.functional.normalize(mean.float(), dim=-1)


def connected_components(vectors: torch.Tensor, similarity: float) -> list[int]:
    """Return per unit vector the smallest index in its component of the similarity graph.

    >>> connected_components(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6], [-0.3, 0.95]]), 0.75)
    [0, 1, 0, 1]
    """
    is_similar = (vectors @ vectors.T >= similarity).tolist()
    labels: list[int | None] = [None] * len(is_similar)
    for start in range(len(is_similar)):
        stack = [start] if labels[start] is None else []
        while stack:
            index = stack.pop()
            if labels[index] is None:
                labels[index] = start
                stack += [neighbor for neighbor, similar in enumerate(is_similar[index]) if similar]
    return [label for label in labels if label is not None]
