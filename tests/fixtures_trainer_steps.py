"""Two steps of an algorithm in the trainer: micro-batches of half a group, canned completions, two passes each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlm_plugins.run.launch import launch

RECIPE = """
environment: {name: addition, digits: 2, test_rows: 4}
rewards: [digits]
evaluation: {metric: digits, max_new_tokens: 4}
model: {name: scratch, hidden: 16, heads: 2, intermediate: 16}
plugins: {load: [CANNED]}
algorithm: ROW
trainer:
  max_steps: 2
  per_device_train_batch_size: 2
  gradient_accumulation_steps: 4
  num_generations: 4
  num_iterations: 2
  max_completion_length: 16
  learning_rate: 1.0e-3
  save_strategy: "no"
"""


def trained(row: str, folder: Path) -> list[dict[str, Any]]:
    """Return the logged metrics of each step.

    Args:
        row: What stands behind ``algorithm:``.
        folder: Where recipe and run go.
    """
    file, canned = folder / "tiny.yaml", Path(__file__).parent / "fake_rollouts.py"
    file.write_text(RECIPE.replace("CANNED", str(canned)).replace("ROW", row))
    return [record for record in launch(file, [], out=folder / "run").records() if "grad_norm" in record]
