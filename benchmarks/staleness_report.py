"""The page ``staleness.md`` from the records of `staleness.py`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

Record = dict[str, Any]
LEFT_OUT = {"sft": "does not sample", "dft": "does not sample"}
"""Algorithms for which staleness means nothing."""

READING = (
    "Up to four steps of staleness cost nothing after 18 steps. With eight, an algorithm whose clip removes "
    "gradients learns later: after 12 steps `grpo`, `bnpo`, `dapo`, `dr_grpo`, `lite_ppo`, `reinforce_pp` and "
    "`reinforce_pp_baseline` are 0.24 to 0.33 behind. Those that keep a gradient for every token (`cispo`, "
    "`gppo`, `ce_gppo`, `sapo`), those without a ratio, and the decoupled `flash_rl` are not. The exception is "
    "`gspo` with `gspo_token`: with any staleness they learn nothing, which fits their clip range of 3e-4 around 1. "
    "On this task a "
    "batch of an earlier policy is still right about which steps are missing, so an uncorrected gradient does "
    "little harm. A longer run, or a larger learning rate, may show the opposite. The runs with staleness predate "
    "the random numbers of each batch (`trainer/stale_policy.py`): measured again, they draw other samples."
)
"""Introduction to the tables, from the measurement of the first 22 algorithms."""


def report(records: Sequence[Record], folder: Path, known: Sequence[str]) -> str:
    """Write ``staleness.md``.

    Args:
        records: One per algorithm, staleness and seed.
        folder: Folder of the page.
        known: Every algorithm of the table, in its order.

    Returns:
        The text of the page.
    """
    complete = _complete(records)
    rows = [row for row in known if row in complete]
    missing = [row for row in known if row not in complete and row not in LEFT_OUT]
    parts = [
        _heading(records, len(rows), len(known) - len(LEFT_OUT)),
        READING,
        *_tables(complete, rows),
        _notes(missing),
    ]
    text = "\n\n".join(filter(None, parts)) + "\n"
    (folder / "staleness.md").write_text(text, encoding="utf-8")
    return text


def _complete(records: Sequence[Record]) -> dict[str, dict[int, list[Record]]]:
    """Return algorithm → staleness → runs, of the algorithms that were measured with each staleness and seed."""
    by_row: dict[str, dict[int, list[Record]]] = {}
    for record in records:
        by_row.setdefault(record["row"], {}).setdefault(record["stale"], []).append(record)
    most = max((sum(map(len, runs.values())) for runs in by_row.values()), default=0)
    return {row: runs for row, runs in by_row.items() if sum(map(len, runs.values())) == most}


def _heading(records: Sequence[Record], measured: int, of: int) -> str:
    seeds = sorted({record["seed"] for record in records})
    settings = records[0]["stage"]["trainer"]
    seconds = sum(record["seconds"] for record in records)
    return (
        "# Stale samples\n\n"
        "`python benchmarks/staleness.py`: the completions of each step are sampled by the policy of 0, 1, 2, 4 or 8 "
        f"optimizer steps before (`trainer.stale`). Measured: {measured} of {of} algorithms that sample, {len(seeds)} "
        f"seeds each. A run has {settings['max_steps']} steps of {settings['per_device_train_batch_size']} samples. "
        "Task, model and all other settings are those of the quickstart, with the exceptions of `rows.md`. "
        f"All {len(records)} runs took {seconds / 60:.0f} minutes of CPU time.\n\n"
        "The ratio of an algorithm divides by the behavior policy, which sampled. Only `flash_rl` names both: its "
        "ratio divides by the proximal policy, and a token weight corrects the rest (decoupled PPO). "
        "`reinforce`, `rloo`, `remax`, `opo` and `gpg` have no ratio, so nothing corrects their samples.\n\n"
        "Accuracy is that of greedy answers to held-out prompts, as the mean over the seeds; in brackets the lowest. "
        "With so few prompts and seeds, differences below about 0.1 mean nothing."
    )


def _tables(complete: dict[str, dict[int, list[Record]]], rows: Sequence[str]) -> list[str]:
    """Return one table for each of the last two evaluations."""
    steps = (
        [step for step, _ in next(iter(next(iter(complete.values())).values()))[0]["curve"]][-2:] if complete else []
    )
    return [f"## After {step} steps\n\n{_table(complete, rows, step)}" for step in reversed(steps)]


def _table(complete: dict[str, dict[int, list[Record]]], rows: Sequence[str], step: int) -> str:
    columns = sorted(complete[rows[0]])
    lines = [f"| algorithm | {' | '.join(f'stale {k}' for k in columns)} |", "|---|" + "--:|" * len(columns)]
    for row in rows:
        cells = []
        for k in columns:
            scores = [dict(run["curve"])[step] for run in complete[row][k]]
            cells.append(f"{fmean(scores):.2f} ({min(scores):.2f})")
        lines.append(f"| `{row}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _notes(missing: Sequence[str]) -> str:
    left = [f"- `{row}` is excluded: it {why}." for row, why in LEFT_OUT.items()]
    later = [f"- Not measured: {', '.join(f'`{row}`' for row in missing)}."] if missing else []
    return "\n".join([*left, *later])
