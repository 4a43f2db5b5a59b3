"""Sections of a model card that are written from a run: data, objective, result, and the command that repeats it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlm_plugins.registry import Registry
from rlm_plugins.report.objective_text import objective, slots_of
from rlm_plugins.report.part_text import change_line, changes
from rlm_plugins.report.text_layout import plain
from rlm_plugins.run.evaluations_log import change_line as score_line
from rlm_plugins.run.evaluations_log import sampled_of
from rlm_plugins.run.folder import EVALUATIONS, Run
from rlm_plugins.stage import Stage


def training_section(run: Path, stage: Stage, registry: Registry) -> str:
    """Return data, objective, differences from the published algorithm, scores, command, seed and versions.

    Args:
        run: The folder of the run.
        stage: The stage whose model is exported.
        registry: Has the published algorithm.
    """
    lines = [
        "",
        "## Training",
        "",
        f"- Data: {_named(stage.body['environment'])}",
        f"- Settings: {_settings(stage)}",
        "",
    ]
    lines += _objective(stage, registry)
    lines += ["", "## Result", "", *_result(Run(run, main=False), stage), ""]
    command = "rlm train recipe.yaml" + (" --trust" if (run / "plugins").is_dir() else "")
    lines += ["## Reproduce", "", "```bash", command, "```", ""]
    versions = json.loads((run / "manifest.json").read_text(encoding="utf-8")).get("packages", {})
    seed = (stage.body.get("trainer") or {}).get("seed", "the default, 42")
    lines += [f"Seed: {seed}. Versions: {', '.join(f'{name} {version}' for name, version in versions.items())}.", ""]
    return "\n".join(lines)


def _named(part: Mapping[str, Any]) -> str:
    """Return a part of the recipe with the knobs that are set."""
    knobs = [
        f"{name}: {plain(value)}" for name, value in part.items() if name != "name" and value not in (None, "", {})
    ]
    return f"`{part['name']}`" + (f" ({', '.join(knobs)})" if knobs else "")


def _settings(stage: Stage) -> str:
    return ", ".join(f"{name} {plain(value)}" for name, value in stage.settings.items()) or "those of TRL"


def _objective(stage: Stage, registry: Registry) -> list[str]:
    """Return the formula, and its differences from that of the published algorithm; empty without an equation."""
    if stage.equation is None:
        return []
    algorithm = stage.body["algorithm"]["name"]
    published = slots_of(registry.find("rlm_algorithms", algorithm).target, registry)
    changed = [change_line(change) for change in changes(published, vars(stage.equation))]
    title = f"Differences from `{algorithm}`:" if changed else f"No difference from `{algorithm}`."
    listed = [f"- {where}: {before} → {after}" for _, where, before, after in changed]
    return ["```text", objective(vars(stage.equation)), "```", "", title, *([""] if listed else []), *listed]


def _result(run: Run, stage: Stage) -> Iterator[str]:
    """Yield lines on the held-out scores of the stage."""
    label = f"held_out/{stage.evaluation.metric}" if stage.evaluation else ""
    scores = [r for r in run.records() if r.get("stage") == stage.name and r.get(label) is not None]
    if not scores:
        yield "No held-out score was measured."
        return
    first, last = scores[0], scores[-1]
    low, high = last["held_out/low"], last["held_out/high"]
    assert stage.evaluation is not None
    score = f"{last[label]:.4g} (95 % interval {low:.4g} to {high:.4g}, {last['held_out/rows']} examples)"
    yield f"Held-out `{stage.evaluation.metric}`, greedy: {score}; before training {first[label]:.4g}."
    if (kept_step := last.get("held_out/kept_step")) is not None:
        yield f"The model is that of step {kept_step}: the evaluation with the best lower end of the interval."
    records = [record for record in run.records(EVALUATIONS) if record.get("stage") == stage.name]
    if sampled := sampled_of(records):
        yield f"\n{score_line(*sampled[1:], sampled[0], share=False).strip()}"
