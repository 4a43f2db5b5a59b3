"""Labelled steps: tokenized training examples, batches, and the loss of a process reward model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from rlm_process.prm_inputs import PRMTokenizer

UNLABELLED = -100.0
"""Label of tokens without a label; transformers ignores it in token counts."""

Label = bool | float | None


def tokenize_examples(reader: PRMTokenizer, dataset: Any) -> Any:
    """Return the examples of a data set with at least one label, as token ids and targets.

    The targets have a column of their own: an existing column keeps its type, and −100 as a boolean would be true.
    """
    from rlm_plugins.builtin.sft_trainer import columns

    tokenized = dataset.map(lambda example: tokenize_example(reader, example), remove_columns=columns(dataset))
    return tokenized.filter(lambda example: example["input_ids"])


def tokenize_example(reader: PRMTokenizer, example: Mapping[str, Any]) -> dict[str, Any]:
    """Return the token ids of an example, and the label of each token: a step's label at its end, elsewhere −100.

    Both are empty for an example without a labelled step.
    """
    steps, step_labels = nonblank_steps(example)
    encoded = reader.encode(example["prompt"], steps)
    labels = [UNLABELLED] * len(encoded.ids)
    for position, label in zip(encoded.places, step_labels, strict=False):
        labels[position] = UNLABELLED if label is None else float(label)
    labelled = any(label != UNLABELLED for label in labels)
    return {"input_ids": encoded.ids if labelled else [], "targets": labels if labelled else []}


def nonblank_steps(example: Mapping[str, Any]) -> tuple[list[str], list[Label]]:
    """Return the non-blank steps of an example, and their labels."""
    labelled = [(step, label) for step, label in zip(example["steps"], example["labels"], strict=True) if step.strip()]
    return [step for step, _ in labelled], [label for _, label in labelled]


@dataclass(frozen=True)
class PadCollator:
    """A collator that right-pads examples to a batch.

    Args:
        pad: Token id; None: 0.
    """

    pad: int | None

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """Return `input_ids`, `attention_mask` and `labels`, each (B, T)."""
        ids = [torch.tensor(example["input_ids"]) for example in examples]
        targets = [torch.tensor(example["targets"]) for example in examples]
        return {
            "input_ids": pad_sequence(ids, batch_first=True, padding_value=self.pad or 0),
            "attention_mask": pad_sequence(list(map(torch.ones_like, ids)), batch_first=True),
            "labels": pad_sequence(targets, batch_first=True, padding_value=UNLABELLED),
        }


def cross_entropy(
    outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
) -> torch.Tensor:
    """Compute −1/n Σ [y log σ(s) + (1 − y) log(1 − σ(s))] over the n labelled tokens of the optimizer step."""
    is_labelled = labels != UNLABELLED
    logits = outputs.logits.squeeze(-1)[is_labelled].float()
    total = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels[is_labelled], reduction="sum")
    return total / (is_labelled.sum() if num_items_in_batch is None else num_items_in_batch)
