"""Labelled steps: as tokens to learn from, as a loss, and as what a process reward model is judged by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rlm_plugins.adapters import at_rest
from rlm_plugins.stage import Stage
from rlm_plugins.training.evaluate import Report, interval
from rlm_plugins.training.judge import text_of
from rlm_plugins.training.processes import processes
from rlm_process.grader import Grader, loaded
from rlm_process.reader import Reader

UNKNOWN = -100.0
"""Where nothing is labelled; the number that transformers does not count."""

Label = bool | float | None


def example(reader: Reader, row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as token ids, and the label of each token: that of a step at its end, elsewhere none.

    Nothing at all where the row has no labelled step.
    """
    steps, known = readable(row)
    asked = reader.asked(row["prompt"], steps)
    labels = [UNKNOWN] * len(asked.ids)
    for place, label in zip(asked.places, known, strict=False):
        labels[place] = UNKNOWN if label is None else float(label)
    labelled = any(label != UNKNOWN for label in labels)
    return {"input_ids": asked.ids if labelled else [], "labels": labels if labelled else []}


def readable(row: Mapping[str, Any]) -> tuple[list[str], list[Label]]:
    """The steps of a row that have something to read, and their labels."""
    both = [(step, label) for step, label in zip(row["steps"], row["labels"], strict=True) if step.strip()]
    return [step for step, _ in both], [label for _, label in both]


@dataclass(frozen=True)
class Padded:
    """Examples as a batch, padded on the right.

    Args:
        pad: Token id; None: 0.
    """

    pad: int | None

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        width = max(len(row["input_ids"]) for row in rows)

        def table(name: str, blank: float) -> torch.Tensor:
            return torch.tensor([[*row[name], *[blank] * (width - len(row[name]))] for row in rows])

        there = torch.tensor([[t < len(row["input_ids"]) for t in range(width)] for row in rows])
        ids = table("input_ids", self.pad or 0).long()
        return {"input_ids": ids, "attention_mask": there.long(), "labels": table("labels", UNKNOWN).float()}


def cross_entropy(
    outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
) -> torch.Tensor:
    """−1/n Σ [y log σ(s) + (1 − y) log(1 − σ(s))] over the n labelled tokens of the optimiser step."""
    known = labels != UNKNOWN
    logits = outputs.logits.squeeze(-1)[known].float()
    total = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels[known], reduction="sum")
    return total / (known.sum() if num_items_in_batch is None else num_items_in_batch)


def evaluate(stage: Stage, rows: Sequence[Mapping[str, Any]], model: Any = None) -> Report:
    """How many held-out steps are judged as they are labelled; under several processes each reads its share.

    Args:
        stage: Of a process reward model.
        rows: With ``prompt``, ``steps`` and ``labels``.
        model: As it is trained; None: as the stage has saved it.
    """
    from accelerate.utils import gather_object

    from rlm_process.supervision import LONGEST, SEPARATOR

    assert stage.evaluation is not None
    state = processes()
    judge, tokenizer = loaded(str(stage.output), state.device) if model is None else (model, stage.source.tokenizer())
    how: dict[str, Any] = {"separator": SEPARATOR, "words": ("+", "-"), "longest": LONGEST}
    grader = Grader(judge, tokenizer, **how, batch_size=stage.evaluation.batch_size)
    mine = list(rows)[state.process_index :: state.num_processes]
    read = [readable(row) for row in mine]
    with at_rest(judge):
        scores = grader.scores([grader.asked(row["prompt"], said) for row, (said, _) in zip(mine, read, strict=True)])
    told = [judged(known, said) for (_, known), said in zip(read, scores, strict=True)]
    found = [_sample(row, said, each) for row, said, each in zip(mine, scores, told, strict=True) if each]
    found = gather_object(found) if state.num_processes > 1 else found
    means = {name: sum(s["rewards"][name] for s in found) / max(1, len(found)) for name in stage.engine.metrics}
    chosen = [sample["rewards"][stage.evaluation.metric] for sample in found]
    return Report(means[stage.evaluation.metric], *interval(chosen), len(found), means, found)


def judged(labels: Sequence[Label], scores: Sequence[float]) -> dict[str, float]:
    """How the scores of an answer's steps stand to their labels; nothing where no step is labelled.

    >>> judged([True, False, False], [0.9, 0.2, 0.6])
    {'step_accuracy': 0.6666666666666666, 'first_error': 1.0}
    """
    known = [(label, score) for label, score in zip(labels, scores, strict=True) if label is not None]
    if not known:
        return {}
    right = [label == 0.5 or (label > 0.5) == (score > 0.5) for label, score in known]
    first = [next((k for k, x in enumerate(each) if x <= 0.5), None) for each in zip(*known, strict=True)]
    return {"step_accuracy": sum(right) / len(right), "first_error": float(first[0] == first[1])}


def _sample(row: Mapping[str, Any], scores: Sequence[float], rewards: Mapping[str, float]) -> dict[str, Any]:
    steps = zip(readable(row)[0], scores, strict=True)
    said = "\n".join(f"{step.strip()}  [{score:.2f}]" for step, score in steps)
    return {"prompt": text_of(row["prompt"]), "completion": said, "rewards": dict(rewards)}
