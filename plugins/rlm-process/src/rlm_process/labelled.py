"""Labelled steps: as tokens to learn from, as a loss, and as what a process reward model is judged by."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rlm_plugins.distributed import processes
from rlm_plugins.evaluation.evaluate import Report, interval
from rlm_plugins.models.adapters import evaluation_mode
from rlm_plugins.rewards.trl_adapter import text_of
from rlm_plugins.stage import Stage
from rlm_process.grader import Grader, load
from rlm_process.reader import Reader

UNKNOWN = -100.0
"""Where nothing is labelled; the number that transformers does not count."""

Label = bool | float | None


def examples(reader: Reader, rows: Any) -> Any:
    """The rows of a data set that teach something, as token ids and targets.

    The targets have a name of their own: a column that is there keeps its type, and −100 is true among truths.
    """
    from rlm_plugins.builtin.sft_trainer import columns

    made = rows.map(lambda row: example(reader, row), remove_columns=columns(rows))
    return made.filter(lambda row: row["input_ids"])


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
    return {"input_ids": asked.ids if labelled else [], "targets": labels if labelled else []}


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
        return {"input_ids": ids, "attention_mask": there.long(), "labels": table("targets", UNKNOWN).float()}


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
    judge, tokenizer = load(str(stage.output), state.device) if model is None else (model, stage.source.tokenizer())
    how: dict[str, Any] = {"separator": SEPARATOR, "words": ("+", "-"), "longest": LONGEST}
    grader = Grader(judge, tokenizer, **how, batch_size=stage.evaluation.batch_size)
    mine = list(rows)[state.process_index :: state.num_processes]
    read = [readable(row) for row in mine]
    with evaluation_mode(judge):
        scores = grader.scores([grader.asked(row["prompt"], said) for row, (said, _) in zip(mine, read, strict=True)])
    found = [_sample(row, known, said) for row, (_, known), said in zip(mine, read, scores, strict=True)]
    found = gather_object(found) if state.num_processes > 1 else found
    each = {"pairs": above(found), "step_accuracy": list(map(sides, found))}
    for name, rows_of in each.items():
        for sample, own in zip(found, rows_of, strict=True):
            sample["rewards"][name] = mean(own)
    every = {name: [x for own in rows_of for x in own] for name, rows_of in each.items()}
    means = {name: 0.5 if (x := mean(values)) is None else x for name, values in every.items()}
    metric = stage.evaluation.metric
    low, high = interval(every[metric]) if every[metric] else (0.0, 1.0)
    return Report(means[metric], low, high, len(found), means, found)


def above(samples: Sequence[Mapping[str, Any]]) -> list[list[float]]:
    """Of each answer, for each step labelled right, how many wrong ones of its place and question have a lower score.

    A tie is half; the mean of all is the area under the ROC curve, question by question: who only knows which questions
    are hard, or that late steps are wrong more often, gets ½. Steps with no wrong one to be compared with are left out,
    as are labels of exactly ½.

    >>> right, wrong = {"labels": [True, True], "scores": [0.3, 0.9]}, {"labels": [False, None], "scores": [0.2, 0.1]}
    >>> above([right | {"prompt": "?"}, wrong | {"prompt": "?"}])
    [[1.0], []]
    """
    wrong: dict[tuple[str, int], list[float]] = {}
    for sample in samples:
        for where, label, score in _placed(sample):
            if label < 0.5:
                insort(wrong.setdefault(where, []), score)

    def share(of_place: list[float], score: float) -> float:
        return (bisect_left(of_place, score) + bisect_right(of_place, score)) / (2 * len(of_place))

    return [
        [share(wrong[where], score) for where, label, score in _placed(sample) if label > 0.5 and where in wrong]
        for sample in samples
    ]


def sides(sample: Mapping[str, Any]) -> list[float]:
    """For each labelled step, whether its score is on the side of ½ on which its label is; 1 where that is ½ itself.

    >>> sides({"prompt": "?", "labels": [True, None, 0.2, 0.5], "scores": [0.4, 0.1, 0.1, 0.9]})
    [0.0, 1.0, 1.0]
    """
    return [float(label == 0.5 or (label > 0.5) == (score > 0.5)) for _, label, score in _placed(sample)]


def mean(x: Sequence[float]) -> float | None:
    """None of nothing."""
    return sum(x) / len(x) if x else None


def _placed(sample: Mapping[str, Any]) -> list[tuple[tuple[str, int], float, float]]:
    """Question and place, label and score of every labelled step."""
    both = enumerate(zip(sample["labels"], sample["scores"], strict=True))
    return [((sample["prompt"], place), float(label), score) for place, (label, score) in both if label is not None]


def _sample(row: Mapping[str, Any], labels: Sequence[Label], scores: Sequence[float]) -> dict[str, Any]:
    """What is kept of an answer: its steps with what was said of each."""
    steps = zip(readable(row)[0], scores, strict=True)
    said = "\n".join(f"{step.strip()}  [{score:.2f}]" for step, score in steps)
    told = {"prompt": text_of(row["prompt"]), "completion": said, "rewards": {}}
    return {**told, "labels": list(labels), "scores": list(scores)}
