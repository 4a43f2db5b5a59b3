"""Texts that mean the same, by a model of sentences: a clustering for `semantic_clusters`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from rlm_plugins.lazy import torch


class Alike:
    """Texts are one cluster where a chain of texts joins them, each at least `similarity` like the next.

    In a file beside the recipe, with any encoder that transformers loads and whose last states are averaged
    (most models of sentence-transformers)::

        # same.py
        from rlm_intrinsic.embeddings import Alike
        alike = Alike("sentence-transformers/all-MiniLM-L6-v2", similarity=0.85)

        # recipe.yaml
        rewards: [{name: semantic_clusters, by: "./same.py:alike"}]

    Args:
        path: Of the encoder: a folder or a name on the hub. It is loaded when it is first asked, on the CPU.
        similarity: Cosine from which two texts mean the same.
        batch_size: How many texts are read at once.
    """

    def __init__(self, path: str, *, similarity: float = 0.9, batch_size: int = 32) -> None:
        self._path, self._similarity, self._batch_size = path, similarity, batch_size

    @cached_property
    def _encoder(self) -> tuple[Any, Any]:
        from transformers import AutoModel, AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(self._path, padding_side="right")
        return tokenizer, AutoModel.from_pretrained(self._path).eval().requires_grad_(False)

    def __call__(self, texts: Sequence[str]) -> list[int]:
        """A label for each text."""
        different = list(dict.fromkeys(texts))
        places = [self._read(different[i : i + self._batch_size]) for i in range(0, len(different), self._batch_size)]
        labels = dict(zip(different, linked(torch.cat(places), self._similarity), strict=True))
        return [labels[text] for text in texts]

    def _read(self, texts: list[str]) -> torch.Tensor:
        """Unit vectors (texts, H)."""
        tokenizer, encoder = self._encoder
        words = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        there = words["attention_mask"].unsqueeze(-1)
        states = encoder(input_ids=words["input_ids"], attention_mask=words["attention_mask"]).last_hidden_state
        mean = (states * there).sum(1) / there.sum(1).clamp(min=1)
        return torch.nn.functional.normalize(mean.float(), dim=-1)


def linked(vectors: torch.Tensor, similarity: float) -> list[int]:
    """Per row of unit vectors the lowest number of a row that a chain of similar ones leads to.

    >>> linked(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6], [-0.3, 0.95]]), 0.75)
    [0, 1, 0, 1]
    """
    near = (vectors @ vectors.T >= similarity).tolist()
    labels: list[int | None] = [None] * len(near)
    for start in range(len(near)):
        waiting = [start] if labels[start] is None else []
        while waiting:
            row = waiting.pop()
            if labels[row] is None:
                labels[row] = start
                waiting += [other for other, close in enumerate(near[row]) if close]
    return [label for label in labels if label is not None]
