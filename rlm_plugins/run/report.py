"""End of a run: summary.json, pictures of its scores, completions before and after, and the last line."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from operator import itemgetter
from pathlib import Path
from typing import Any

from rich.console import Console

from rlm_plugins.durable.files import whole
from rlm_plugins.errors import short, visible
from rlm_plugins.evaluation.scores import SampledScores, compared, score_text, verdict
from rlm_plugins.run.folder import EVALUATIONS, Run
from rlm_plugins.run.trainer_callbacks import LearningCurve
from rlm_plugins.stage import Stage


def suite_of(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list[float]]]:
    """Return name → ``before`` and ``after`` of each further held-out set: score and interval."""
    suites = [record["suite"] for record in records if record.get("suite")]
    if not suites:
        return {}
    first, last = suites[0], suites[-1]
    return {name: {"before": first[name], "after": last[name]} for name in first if name in last}


def sampled_of(records: Sequence[Mapping[str, Any]]) -> tuple[list[int], SampledScores, SampledScores] | None:
    """Return the k, and the sampled scores before and after the training of a stage; None without both."""
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


@contextmanager
def _chart(file: Path, title: str, **labels: str) -> Iterator[Any]:
    """Yield the axes of a picture, which is written at the end."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    yield axes
    axes.set(**labels, title=visible(f"{file.parent.name}: {title}"))
    axes.grid(alpha=0.3)
    axes.legend()
    with whole(file) as staged:
        figure.savefig(staged, dpi=120)


def learning_curve(records: Sequence[dict[str, Any]], stage: str, metric: str, file: Path) -> bool:
    """Draw the held-out score of a stage with its 95 % interval, and that of training; return False without any."""
    lines = [r for r in records if r.get("stage") == stage]
    held_out = [r for r in lines if r.get(f"held_out/{metric}") is not None and "held_out/kept_step" not in r]
    in_training = f"rewards/{metric}/mean"
    trained = [r for r in lines if r.get(in_training) is not None]
    if not held_out and not trained:
        return False
    with _chart(file, stage, xlabel="step", ylabel="score") as axes:
        if trained:
            label = visible(f"{metric} of training samples")
            steps, scores = zip(*map(itemgetter("step", in_training), trained), strict=True)
            axes.plot(steps, scores, color="0.7", label=label)
        if held_out:
            keys = "step", f"held_out/{metric}", "held_out/low", "held_out/high"
            steps, scores, lows, highs = zip(*map(itemgetter(*keys), held_out), strict=True)
            axes.fill_between(steps, lows, highs, alpha=0.25)
            axes.plot(steps, scores, marker="o", label=visible(f"held-out {metric} (95 % interval)"))
    return True


def pass_at_k_curves(before: SampledScores, after: SampledScores, file: Path) -> None:
    """Draw pass@k over k of base and trained model, with 95 % intervals, and majority@k."""
    with _chart(file, verdict(before, after), xlabel="k", ylabel="score") as axes:
        for scores, name, color in ((before, "base", "tab:gray"), (after, "trained", "tab:blue")):
            ks = range(1, scores.samples + 1)
            means, lows, highs = zip(*(scores.estimate("pass", k) for k in ks), strict=True)
            axes.fill_between(ks, lows, highs, alpha=0.2, color=color)
            axes.plot(ks, means, marker=".", color=color, label=f"pass@k, {name} (95 % interval)")
            majority = [scores.estimate("majority", k)[0] for k in ks]
            axes.plot(ks, majority, linestyle="--", color=color, label=f"majority@k, {name}")
        axes.set_xscale("log", base=2)


EXAMPLES = 3
"""Held-out prompts whose completions are printed."""
WIDTH = 100
"""Characters of a completion that are printed."""


def report(run: Run, stage: Stage, curve: LearningCurve | None, seconds: float, console: Console) -> None:
    """Write the summary and print the results: files, prompts before and after, the final score.

    The scores are those of metrics.jsonl, so that a run killed before its summary gets it when it is resumed.
    """
    evaluation, records = stage.evaluation, run.records()
    scores = [r for r in records if r.get("stage") == stage.name and "held_out/rows" in r]
    label = "" if evaluation is None else f"held_out/{evaluation.metric}"
    if evaluation is None or not scores or scores[-1].get(label) is None:
        run.summarize(seconds=round(seconds, 1))
        console.print(f"{run.name}: trained in {seconds:.0f} s, results in {run.folder}")
        return
    last, examples = scores[-1], _examples(curve, evaluation.metric)
    evaluations = [record for record in run.records(EVALUATIONS) if record.get("stage") == stage.name]
    sampled, suite = sampled_of(evaluations), suite_of(evaluations)
    run.summarize(
        metric=evaluation.metric,
        before=scores[0].get(label),
        after=last[label],
        interval=[last["held_out/low"], last["held_out/high"]],
        held_out_rows=last["held_out/rows"],
        seconds=round(seconds, 1),
        **_best_step(scores, label),
        **_at_k(scores),
        **({"suite": suite} if suite else {}),
        **({"sampled": compared(*sampled[1:], sampled[0])} if sampled else {}),
        **({"example": examples[0]} if examples else {}),
    )
    if run.main and find_spec("matplotlib") is not None:  # extra `plot`
        if learning_curve(records, stage.name, evaluation.metric, run.folder / "curve.png"):
            _print(console, f"learning curve: {run.folder / 'curve.png'}")
        if sampled:
            pass_at_k_curves(*sampled[1:], run.folder / "pass_at_k.png")
            _print(console, f"pass@k before and after: {run.folder / 'pass_at_k.png'}")
    _print(console, f"results: {run.folder}")
    for example in examples:
        for key, style in (("prompt", ""), ("before", "red"), ("after", "green")):
            _print(console, f"  {key:8}{one_line(example[key])}", style)
    share = curve.now.share if curve is not None and curve.now is not None else False
    if sampled:
        _print(console, change_line(*sampled[1:], sampled[0], share=share))
    for name, pair in suite.items():
        _print(console, f"  {name}: {' -> '.join(score_text(pair[when][0], share=share) for when in pair)}")
    _print_scores(run, evaluation.metric, scores, seconds, console, share=share)


def _print_scores(
    run: Run, metric: str, scores: Sequence[dict[str, Any]], seconds: float, console: Console, *, share: bool
) -> None:
    """Print the kept model, the interval of the last score, and the first and the last score."""
    label, last = f"held_out/{metric}", scores[-1]
    if best := _best_step(scores, label).get("kept"):
        _print(console, f"  kept: the model of step {best['step']}, the best lower end of the interval")
    change = " -> ".join(_score(x, share) for x in (scores[0].get(label), last[label]))
    low, high = (_score(last[f"held_out/{end}"], share) for end in ("low", "high"))
    _print(console, f"  95 % interval of the last score: [{low}, {high}], {last['held_out/rows']} held-out prompts")
    _print(console, f"{run.name}: held-out {metric} {change} in {seconds:.0f} s")


def one_line(text: str) -> str:
    r"""Return a text on one line: control characters escaped, and cut.

    >>> one_line("a\nb")
    'a\\nb'
    """
    return short(json.dumps(text, ensure_ascii=False)[1:-1], WIDTH)


def _score(value: float | None, share: bool) -> str:
    return score_text(math.nan if value is None else value, share=share)


def _print(console: Console, line: str, style: str = "") -> None:
    console.print(line, markup=False, highlight=False, style=style, soft_wrap=True)


def _best_step(scores: Sequence[dict[str, Any]], label: str) -> dict[str, Any]:
    """Return the step of the best model, and step and score of the last one, with `evaluation.keep: best`."""
    if (step := scores[-1].get("held_out/kept_step")) is None:
        return {}
    last = next(record for record in reversed(scores) if "held_out/kept_step" not in record)
    return {"kept": {"step": step}, "last": {"step": last["step"], "score": last[label]}}


def _at_k(scores: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return mean@k and pass@k before and after, if completions were sampled."""
    sampled = [record for record in scores if "held_out/k" in record]
    if not sampled:
        return {}
    first, last = sampled[0], sampled[-1]
    pairs = {name: [first[f"held_out/{name}"], last[f"held_out/{name}"]] for name in ("mean_at_k", "pass_at_k")}
    return {"k": int(first["held_out/k"]), **pairs}


def _examples(curve: LearningCurve | None, metric: str) -> list[dict[str, str]]:
    """Return the held-out prompts whose scores rose most, with both completions; none if the stage was resumed."""
    if curve is None or not curve.from_start or curve.before is None or curve.now is None:
        return []
    old = {sample["prompt"]: sample for sample in curve.before.samples}
    pairs = [(old[s["prompt"]], s) for s in curve.now.samples if s["prompt"] in old]
    pairs.sort(key=lambda pair: (pair[0]["rewards"][metric] or 0) - (pair[1]["rewards"][metric] or 0))
    return [
        {"prompt": last["prompt"], "before": first["completion"], "after": last["completion"]}
        for first, last in pairs[:EXAMPLES]
    ]
