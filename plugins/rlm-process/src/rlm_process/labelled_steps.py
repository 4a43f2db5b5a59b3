"""Labelled steps: tokenized training examples, the loss, and the evaluation of a process reward model."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rlm_plugins.distributed import processes
from rlm_plugins.evaluation.held_out import Report, interval
from rlm_plugins.models.adapters import evaluation_mode
from rlm_plugins.rewards.columns import text_of
from rlm_plugins.stage import Stage
from rlm_process.prm_inputs import LONGEST, SEPARATOR, PRMTokenizer
from rlm_process.prm_scorer import StepScorer, load

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


def evaluate(stage: Stage, rows: Sequence[Mapping[str, Any]], model: Any = None) -> Report:
    """Evaluate the scores of held-out steps against their labels, distributed over processes.

    Args:
        stage: The stage of a process reward model.
        rows: Examples with ``prompt``, ``steps`` and ``labels``.
        model: The model in training; None: the one that the stage saved.

    Returns:
        The metrics `pairs` and `step_accuracy`, with the scores of each example.
    """
    from accelerate.utils import gather_object

    assert stage.evaluation is not None
    state = processes()
    scored_model, tokenizer = (
        load(str(stage.output), state.device) if model is None else (model, stage.source.tokenizer())
    )
    options: dict[str, Any] = {"separator": SEPARATOR, "words": ("+", "-"), "longest": LONGEST}
    scorer = StepScorer(scored_model, tokenizer, **options, batch_size=stage.evaluation.batch_size)
    own_examples = list(rows)[state.process_index :: state.num_processes]
    steps_and_labels = [nonblank_steps(row) for row in own_examples]
    with evaluation_mode(scored_model):
        scores = scorer.scores(
            [
                scorer.encode(row["prompt"], steps)
                for row, (steps, _) in zip(own_examples, steps_and_labels, strict=True)
            ]
        )
    samples = [
        _sample(row, known, steps)
        for row, (_, known), steps in zip(own_examples, steps_and_labels, scores, strict=True)
    ]
    samples = gather_object(samples) if state.num_processes > 1 else samples
    values_by_metric = {"pairs": pairwise_wins(samples), "step_accuracy": list(map(correct_sides, samples))}
    for name, per_sample in values_by_metric.items():
        for sample, sample_values in zip(samples, per_sample, strict=True):
            sample["rewards"][name] = mean(sample_values)
    all_values = {
        name: [x for sample_values in per_sample for x in sample_values]
        for name, per_sample in values_by_metric.items()
    }
    mean_values = {name: 0.5 if (x := mean(values)) is None else x for name, values in all_values.items()}
    metric = stage.evaluation.metric
    low, high = interval(all_values[metric]) if all_values[metric] else (0.0, 1.0)
    return Report(mean_values[metric], low, high, len(samples), mean_values, samples)


def pairwise_wins(samples: Sequence[Mapping[str, Any]]) -> list[list[float]]:
    """Return, for each step labelled correct, the share of comparable wrong steps with a lower score, per example.

    Comparable are steps at the same position of other answers to the same prompt; a tie counts half. The mean of all is
    the area under the ROC curve, prompt by prompt: a model that only knows hard prompts, or that late steps are more
    often wrong, gets ½. Steps without a comparable wrong one, and labels of exactly ½, are left out.

    >>> right, wrong = {"labels": [True, True], "scores": [0.3, 0.9]}, {"labels": [False, None], "scores": [0.2, 0.1]}
    >>> pairwise_wins([right | {"prompt": "?"}, wrong | {"prompt": "?"}])
    [[1.0], []]
    """
    wrong_scores: dict[tuple[str, int], list[float]] = {}
    for sample in samples:
        for key, label, score in _labelled_steps(sample):
            if label < 0.5:
                insort(wrong_scores.setdefault(key, []), score)

    def share(scores: list[float], score: float) -> float:
        return (bisect_left(scores, score) + bisect_right(scores, score)) / (2 * len(scores))

    return [
        [
            share(wrong_scores[key], score)
            for key, label, score in _labelled_steps(sample)
            if label > 0.5 and key in wrong_scores
        ]
        for sample in samples
    ]


def correct_sides(sample: Mapping[str, Any]) -> list[float]:
    """Return 1 for each labelled step whose score is on the label's side of ½, else 0; 1 for a label of exactly ½.

    >>> correct_sides({"prompt": "?", "labels": [True, None, 0.2, 0.5], "scores": [0.4, 0.1, 0.1, 0.9]})
    [0.0, 1.0, 1.0]
    """
    return [float(label == 0.5 or (label > 0.5) == (score > 0.5)) for _, label, score in _labelled_steps(sample)]


def mean(x: Sequence[float]) -> float | None:
    """Return the mean; None for an empty sequence."""
    return sum(x) / len(x) if x else None


def _labelled_steps(sample: Mapping[str, Any]) -> list[tuple[tuple[str, int], float, float]]:
    """Return (prompt, position), label and score of every labelled step."""
    steps = enumerate(zip(sample["labels"], sample["scores"], strict=True))
    return [
        ((sample["prompt"], position), float(label), score) for position, (label, score) in steps if label is not None
    ]


def _sample(row: Mapping[str, Any], labels: Sequence[Label], scores: Sequence[float]) -> dict[str, Any]:
    """Return the report of an example: its steps with their scores."""
    steps = zip(nonblank_steps(row)[0], scores, strict=True)
    report = "\n".join(f"{step.strip()}  [{score:.2f}]" for step, score in steps)
    sample = {"prompt": text_of(row["prompt"]), "completion": report, "rewards": {}}
    return {**sample, "labels": list(labels), "scores": list(scores)}
