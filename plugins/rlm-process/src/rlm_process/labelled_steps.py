"""Labelled steps: tokenized training examples, batches, and the loss of a process reward model."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from rlm_plugins.evaluation.scores import Report, interval
from rlm_plugins.models.adapters import evaluation_mode
from rlm_plugins.rewards.columns import text_of
from rlm_plugins.stage import Stage
from rlm_plugins.workers.distributed import processes
from rlm_process.process_model import LONGEST, SEPARATOR, PRMTokenizer, StepScorer, load

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
    """A collator that right-pads examples to a batch."""

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


def evaluate(stage: Stage, rows: Sequence[Mapping[str, Any]], model: Any = None) -> Report:
    """Evaluate the scores of held-out steps against their labels, distributed over processes.

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
    steps_and_labels = [nonblank_steps(example) for example in own_examples]
    with evaluation_mode(scored_model):
        pairs = zip(own_examples, steps_and_labels, strict=True)
        scores = scorer.scores([scorer.encode(example["prompt"], steps) for example, (steps, _) in pairs])
    samples = [
        _sample(example, labels, step_scores)
        for example, (_, labels), step_scores in zip(own_examples, steps_and_labels, scores, strict=True)
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
    # without any comparison the metrics are ½, the value of chance
    mean_values = {name: sum(values) / len(values) if values else 0.5 for name, values in all_values.items()}
    metric = stage.evaluation.metric
    low, high = interval(all_values[metric]) if all_values[metric] else (0.0, 1.0)
    return Report(mean_values[metric], low, high, len(samples), mean_values, samples)


def pairwise_wins(samples: Sequence[Mapping[str, Any]]) -> list[list[float]]:
    """Return, for each step labelled correct, the share of comparable wrong steps with a lower score, per example.

    Comparable are steps at the same position of other answers to the same prompt; a tie counts half. The mean is the
    area under the ROC curve per prompt and position. So a model that only detects hard prompts, or late steps, gets ½.
    Steps without a comparable wrong step, and labels of exactly ½, are left out.

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


def _sample(example: Mapping[str, Any], labels: Sequence[Label], scores: Sequence[float]) -> dict[str, Any]:
    """Return the report of an example: its steps with their scores."""
    steps = zip(nonblank_steps(example)[0], scores, strict=True)
    report = "\n".join(f"{step.strip()}  [{score:.2f}]" for step, score in steps)
    sample = {"prompt": text_of(example["prompt"]), "completion": report, "rewards": {}}
    return {**sample, "labels": list(labels), "scores": list(scores)}
