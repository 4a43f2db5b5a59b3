"""Output of ``rlm eval``: scores as data and as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlm_plugins.cli.evaluate import Judgement
from rlm_plugins.report.text_layout import columns


def as_data(judged: Sequence[Judgement], samples: int) -> dict[str, Any]:
    """Return the scores as plain data, with the first `samples` completions of each set.

    The first set is at the top level; all of them, if there are several, are in ``sets``.
    """
    entries = [_entry(judgement, samples) for judgement in judged]
    return {**entries[0], **({"sets": entries} if len(entries) > 1 else {})}


def _entry(judged: Judgement, samples: int) -> dict[str, Any]:
    stage, report = judged.stage, judged.report
    assert stage.evaluation is not None
    return {
        "set": judged.name,
        "stage": stage.name,
        "model": stage.source.origin,
        "metric": stage.evaluation.metric,
        **{name: _number(getattr(report, name)) for name in ("score", "low", "high", "rows")},
        **(judged.sampled.as_data() if judged.sampled else {}),
        "rewards": {label: _number(mean) for label, mean in report.rewards.items()},
        "samples": list(report.samples[:samples]),
    }


def render(judged: Sequence[Judgement], samples: int) -> str:
    """Return the scores as text: completions, means of the rewards, and last the scores with their intervals."""
    lines = [text for judgement in judged for text in _details(judgement, samples, titled=len(judged) > 1)]
    return "\n".join([*lines, *map(_last_line, judged)])


def _details(judged: Judgement, samples: int, *, titled: bool) -> list[str]:
    report = judged.report
    listed = [_sample(sample) for sample in report.samples[:samples]]
    sampled = [f"  {line}" for line in judged.sampled.lines()] if judged.sampled else []
    means = columns((label, f"{mean:.4f}") for label, mean in report.rewards.items())
    return [*([judged.name] if titled else []), *listed, means, *sampled]


def _last_line(judged: Judgement) -> str:
    stage, report = judged.stage, judged.report
    assert stage.evaluation is not None
    score, low, high = (report.text_of(value) for value in (report.score, report.low, report.high))
    line = f"{judged.name}: held-out {stage.evaluation.metric} {score} [{low}, {high}] on {report.rows} examples"
    return f"{line} ({stage.source.origin})"


def _number(value: float) -> float | None:
    """Return null for NaN, which JSON lacks: the mean of a reward that applied to no completion."""
    return None if value != value else value


def _sample(sample: Any) -> str:
    rewards = ", ".join(f"{label} {score}" for label, score in sample["rewards"].items())
    return f"  prompt      {sample['prompt']}\n  completion  {sample['completion']}\n  rewards     {rewards}\n"
