"""Held-out evaluation by sampling: mean@k and pass@k."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rlm_plugins.evaluation.held_out import evaluate_stage, score_text
from rlm_plugins.registry.protocols import Evaluates
from rlm_plugins.stage import Stage


@dataclass(frozen=True)
class SampledReport:
    """Scores of k sampled completions per prompt.

    Args:
        k: Completions per prompt.
        mean: mean@k, the mean score of all completions.
        best: pass@k, the mean over prompts of the best score; for scores of 0 and 1 the share of prompts solved once.
        share: True if every score is 0 or 1.
        samples: Prompt, completion and rewards of each completion.
    """

    k: int
    mean: float
    best: float
    share: bool
    samples: Sequence[Mapping[str, Any]]

    def figures(self) -> dict[str, float]:
        """Return the entries of a line of metrics.jsonl."""
        return {"held_out/mean_at_k": self.mean, "held_out/pass_at_k": self.best, "held_out/k": float(self.k)}

    def text(self) -> str:
        """Return both scores as text."""
        mean, best = (score_text(value, share=self.share) for value in (self.mean, self.best))
        return f"mean@{self.k} {mean}, pass@{self.k} {best}"


def evaluate_sampled(
    stage: Stage, examples: Sequence[Mapping[str, Any]], model: Any, tokenizer: Any, k: int, seed: int = 0
) -> SampledReport | None:
    """Sample k completions per example as in training, and score them with the metric of the stage.

    The state of the global random number generator is restored, so that an evaluation does not change the training.
    None if the trainer evaluates in its own way, without completions.
    """
    if stage.evaluation is None or isinstance(stage.engine, Evaluates):
        return None
    repeated = [example for example in examples for _ in range(k)]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        report = evaluate_stage(stage, repeated, model, tokenizer, sampling_of(stage.settings))
    by_prompt: dict[str, list[float]] = {}
    for sample in report.samples:
        if (score := sample["rewards"][stage.evaluation.metric]) is not None:
            by_prompt.setdefault(sample["prompt"], []).append(score)
    groups = [scores[i : i + k] for scores in by_prompt.values() for i in range(0, len(scores), k)]
    best = sum(map(max, groups)) / max(len(groups), 1)
    return SampledReport(k, report.score, best, report.share, report.samples)


def sampling_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of ``GenerationConfig`` with which TRL samples, by the settings of a trainer.

    >>> sampling_of({"temperature": 0.7})["temperature"], sampling_of({})["top_k"]
    (0.7, 0)
    """
    defaults = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": None, "repetition_penalty": 1.0}
    chosen = {name: settings.get(name, default) for name, default in defaults.items()}
    return {"do_sample": True, **chosen, **(settings.get("generation_kwargs") or {})}
