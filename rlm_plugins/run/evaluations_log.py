"""Lines of evaluations.jsonl: the sampled scores and the further held-out sets, before and after training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlm_plugins.evaluation.held_out_report import score_text
from rlm_plugins.evaluation.sampled_scores import SampledScores, verdict


def suite_of(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list[float]]]:
    """Return name → ``before`` and ``after`` of each further held-out set: score and interval.

    Args:
        records: Lines of a stage.
    """
    suites = [record["suite"] for record in records if record.get("suite")]
    if not suites:
        return {}
    first, last = suites[0], suites[-1]
    return {name: {"before": first[name], "after": last[name]} for name in first if name in last}


def sampled_of(records: Sequence[Mapping[str, Any]]) -> tuple[list[int], SampledScores, SampledScores] | None:
    """Return the k, and the sampled scores before and after the training of a stage; None without both.

    Args:
        records: Lines of a stage.
    """
    sampled = [record["sampled"] for record in records if record.get("sampled")]
    if len(sampled) < 2:
        return None
    before, after = (SampledScores(entry["scores"], entry["answers"]) for entry in (sampled[0], sampled[-1]))
    return list(sampled[-1]["k"]), before, after


def change_line(before: SampledScores, after: SampledScores, ks: Sequence[int], *, share: bool) -> str:
    """Return one line with pass@k before and after, and its verdict."""
    rows = [("mean", 1), *(("pass", k) for k in ks)]
    rows += [("majority", k) for k in ks if share and k > 1]
    changes = []
    for kind, k in rows:
        values = [score_text(scores.estimate(kind, k)[0], share=share) for scores in (before, after)]
        changes.append(f"{kind}@{k if kind != 'mean' else after.samples} {' -> '.join(values)}")
    return f"  sampled: {', '.join(changes)} ({verdict(before, after)})"
