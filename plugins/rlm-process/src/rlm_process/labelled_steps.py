"""Labelled steps: tokenized training examples, batches, and the loss of a process reward model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rlm_process.prm_inputs import PRMTokenizer

UNLABELLED = -100.0
"""Label of tokens without a label; transformers ignores it in token counts."""

Label = bool | float | None


def tokenize_examples(reader: PRMTokenizer, rows: Any) -> Any:
    """Return the examples of a data set with at least one label, as token ids and targets.

    The targets have a column of their own: an existing column keeps its type, and −100 as a boolean would be true.
    """
    from rlm_plugins.builtin.sft_trainer import columns

    tokenized = rows.map(lambda row: tokenize_example(reader, row), remove_columns=columns(rows))
    return tokenized.filter(lambda row: row["input_ids"])


def tokenize_example(reader: PRMTokenizer, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return an example as token ids, and the label of each token: a step's label at its end, elsewhere none.

    Both are empty for an example without a labelled step.
    """
    steps, known_labels = nonblank_steps(row)
    encoded = reader.encode(row["prompt"], steps)
    labels = [UNLABELLED] * len(encoded.ids)
    for position, label in zip(encoded.places, known_labels, strict=False):
        labels[position] = UNLABELLED if label is None else float(label)
    labelled = any(label != UNLABELLED for label in labels)
    return {"input_ids": encoded.ids if labelled else [], "targets": labels if labelled else []}


def nonblank_steps(row: Mapping[str, Any]) -> tuple[list[str], list[Label]]:
    """Return the non-blank steps of an example, and their labels."""
    pairs = [(step, label) for step, label in zip(row["steps"], row["labels"], strict=True) if step.strip()]
    return [step for step, _ in pairs], [label for _, label in pairs]


@dataclass(frozen=True)
class PadCollator:
    """A collator that right-pads examples to a batch.

    Args:
        pad: Token id; None: 0.
    """

    pad: int | None

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """Return `input_ids`, `attention_mask` and `labels`, each (B, T)."""
        width = max(len(row["input_ids"]) for row in examples)

        def pad_column(name: str, blank: float) -> torch.Tensor:
            return torch.tensor([[*row[name], *[blank] * (width - len(row[name]))] for row in examples])

        attention_mask = torch.tensor([[t < len(row["input_ids"]) for t in range(width)] for row in examples])
        ids = pad_column("input_ids", self.pad or 0).long()
        return {
            "input_ids": ids,
            "attention_mask": attention_mask.long(),
            "labels": pad_column("targets", UNLABELLED).float(),
        }


def cross_entropy(
    outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
) -> torch.Tensor:
    """Compute −1/n Σ [y log σ(s) + (1 − y) log(1 − σ(s))] over the n labelled tokens of the optimizer step."""
    known = labels != UNLABELLED
    logits = outputs.logits.squeeze(-1)[known].float()
    total = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels[known], reduction="sum")
    return total / (known.sum() if num_items_in_batch is None else num_items_in_batch)
