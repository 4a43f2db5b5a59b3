"""The folder of a run as older versions wrote it."""

from __future__ import annotations

import json
from pathlib import Path


def run_folder(folder: Path, texts: list[str]) -> Path:
    """Write a run folder of an older version: no capsules, no summary, an incomplete last line."""
    folder.mkdir()
    (folder / "recipe.yaml").write_text(
        "name: old\nalgorithm: {name: grpo}\nevaluation: {metric: accuracy}\ntrainer: {max_steps: 3}\n"
    )
    metrics = [{"stage": "01-grpo", "step": i, "reward": i / 4, "loss": 0.1, "grad_norm": 1.0} for i in (1, 2, 3)]
    metrics.append({"stage": "01-grpo", "step": 3, "held_out/accuracy": 0.5, "held_out/low": 0.4, "held_out/high": 0.6})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in metrics) + '{"stage": "01-gr')
    samples = [
        {"stage": "01-grpo", "step": 0, "prompt": text, "completion": text, "rewards": {text: 1.0}, "reward": 1.0}
        for text in texts
    ]
    (folder / "samples.jsonl").write_text("".join(json.dumps(x) + "\n" for x in samples))
    return folder
