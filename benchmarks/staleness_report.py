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
    "Columns 1 to 8 draw the same random numbers (`rlm_engines.stale_policy`). Column 0 draws others, as a run "
    "without `stale` does, so compare with column 1.\n\n"
    "After 18 steps, one or two steps of staleness cost nothing. The exceptions are `gspo` and `gspo_token`: with any "
    "staleness they learn nothing, which fits their clip range of 3e-4 around 1. That measures the range, which is "
    "meant for a large model at a rate of 1e-6, and not staleness: a small policy with a wider clip by completion "
    "[learns at age 16](effects.md#stale-samples).\n\n"
    "With four steps, some fall after they had learned: `reinforce`, `rloo` and `opo`, which correct nothing, and "
    "`gepo`, `rlep` and `flowrl`. `luspo` learns later. With eight, `luspo` and those with a critic (`ppo`, `orz`, "
    "`vc_ppo`, `vapo`) do not learn the task in 18 steps.\n\n"
    "An algorithm whose clip removes gradients learns later: after 12 steps, with a staleness of eight, `grpo`, "
    "`bnpo`, `dapo`, `dr_grpo`, `lite_ppo`, `reinforce_pp` and `reinforce_pp_baseline` are 0.28 to 0.53 behind. After "
    "18 steps they are at 0.94 or above. `gmpo`, `vespo`, `remax`, `srft` and `hpt` lose nothing at any staleness. A "
    "longer run, or a larger learning rate, may show the opposite."
)
"""Introduction to the tables."""


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
