"""Held-out evaluation by sampling n completions per prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rlm_plugins.data.answer_extraction import final_answers, parse_number
from rlm_plugins.evaluation.estimators import default_ks
from rlm_plugins.evaluation.held_out import evaluate_stage
from rlm_plugins.evaluation.held_out_report import score_text
from rlm_plugins.evaluation.sampled_scores import SampledScores
from rlm_plugins.registry.protocols import Evaluates
from rlm_plugins.stage import Stage


@dataclass(frozen=True)
class SampledReport:
    """Scores of n sampled completions per prompt.

    Args:
        scores: The scores, by prompt.
        ks: The k of pass@k and majority@k.
        share: True if every score is 0 or 1.
        samples: Prompt, completion and rewards of each completion.
    """

    scores: SampledScores
    ks: Sequence[int]
    share: bool
    samples: Sequence[Mapping[str, Any]]

    def figures(self) -> dict[str, float]:
        """Return the entries of a line of metrics.jsonl: at the number of samples."""
        n = self.scores.samples
        values = {f"held_out/{kind}_at_k": self.scores.estimate(kind, n)[0] for kind in ("mean", "pass", "majority")}
        return {**values, "held_out/k": float(n)}

    def as_data(self) -> dict[str, Any]:
        """Return the estimates with their intervals as plain data."""
        n, table = self.scores.samples, self.scores.table(self.ks)
        totals = {f"{kind}_at_k": self.scores.estimate(kind, n)[0] for kind in ("mean", "pass", "majority")}
        return {"k": n, **totals, "sampled": table}

    def lines(self) -> list[str]:
        """Return a line for each estimate."""
        return estimate_lines(self.scores.table(self.ks), self.scores.samples, share=self.share)


def estimate_lines(table: Mapping[str, Any], samples: int, *, share: bool) -> list[str]:
    """Return a line for each estimate of `SampledScores.table`; majority@k for scores of 0 and 1 alone."""
    rows = [(f"mean@{samples}", table["mean"]), *((f"pass@{k}", row) for k, row in table["pass"].items())]
    if share:
        rows += [(f"majority@{k}", row) for k, row in table["majority"].items() if int(k) > 1]
    return [f"{name:12} {_estimate_text(row, share)}" for name, row in rows]


def _estimate_text(estimate: Sequence[float], share: bool) -> str:
    mean, low, high = (score_text(value, share=share) for value in estimate)
    return f"{mean} [{low}, {high}]"


def evaluate_sampled(
    stage: Stage, examples: Sequence[Mapping[str, Any]], model: Any, tokenizer: Any, samples: int, seed: int = 0
) -> SampledReport | None:
    """Sample completions of each example as in training, and score them with the metric of the stage.

    The state of the global random number generator is restored, so that an evaluation does not change the training.
    None if the trainer evaluates in its own way, without completions.

    Args:
        stage: Its evaluation sets the metric, the k and the temperature.
        examples: Held-out examples.
        model: A causal language model.
        tokenizer: Its tokenizer.
        samples: Completions per example.
        seed: Of the random numbers.
    """
    evaluation = stage.evaluation
    if evaluation is None or isinstance(stage.trainer, Evaluates):
        return None
    sampling = sampling_of(stage.settings)
    if evaluation.temperature is not None:
        sampling["temperature"] = evaluation.temperature
    repeated = [example for example in examples for _ in range(samples)]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        report = evaluate_stage(stage, repeated, model, tokenizer, sampling)
    metric = next(reward for reward in stage.rewards if reward.label == evaluation.metric)
    scores = _by_prompt(report.samples, len(examples), samples, evaluation.metric, metric.part.knobs)
    ks = tuple(k for k in evaluation.k if k <= samples) or default_ks(samples)
    return SampledReport(scores, ks, report.share, report.samples)


def _by_prompt(
    samples: Sequence[Mapping[str, Any]], prompts: int, per_prompt: int, metric: str, knobs: Mapping[str, Any]
) -> SampledScores:
    """Return scores and answers by prompt; completions that the metric does not score are left out."""
    scores: list[list[float]] = [[] for _ in range(prompts)]
    answers: list[list[object]] = [[] for _ in range(prompts)]
    for sample in samples:
        if (score := sample["rewards"][metric]) is not None:
            scores[sample["index"] // per_prompt].append(score)
            answers[sample["index"] // per_prompt].append(vote(str(sample["completion"]), knobs))
    return SampledScores(scores, list(map(_numbered, answers)))


def _numbered(answers: Sequence[object]) -> list[int]:
    """Return the number of each answer: equal answers have equal numbers, in the order of first occurrence."""
    numbers = {answer: number for number, answer in enumerate(dict.fromkeys(answers))}
    return [numbers[answer] for answer in answers]


def vote(completion: str, knobs: Mapping[str, Any]) -> object:
    r"""Return the answer of a completion for majority@k; None if it has none, which counts as an answer of its own.

    It is found as the reward finds it if that has the knobs `tag` and `untagged` (`accuracy`); otherwise the block
    ``<answer>``, the last ``\boxed{…}``, or the last line. Equal numbers are equal answers.

    >>> vote("so <answer>1/2</answer>", {}) == vote("\\boxed{0.5}", {}), vote("maybe\n7", {"untagged": "wrong"})
    (True, None)
    """
    texts = final_answers(completion, knobs.get("tag", "answer"), knobs.get("untagged", "boxed"))
    if not texts and "untagged" not in knobs:
        texts = final_answers(completion, "answer", "last_line")
    numbers = [parse_number(text) for text in texts]
    answers = {text.strip() if value is None else value for text, value in zip(texts, numbers, strict=True)}
    return answers.pop() if len(answers) == 1 else None


def sampling_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of ``GenerationConfig`` with which TRL samples, by the settings of a trainer.

    >>> sampling_of({"temperature": 0.7})["temperature"], sampling_of({})["top_k"]
    (0.7, 0)
    """
    defaults = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": None, "repetition_penalty": 1.0}
    fields = {name: settings.get(name, default) for name, default in defaults.items()}
    return {"do_sample": True, **fields, **(settings.get("generation_kwargs") or {})}
