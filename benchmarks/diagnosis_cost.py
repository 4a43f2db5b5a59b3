"""Cost of the live diagnosis: CPU time in its callback against that of the steps, in one run of the quickstart's model.

::

    python benchmarks/diagnosis_cost.py [STEPS]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

from rlm_lab import live

from rlm_plugins import recipe
from rlm_plugins.registry import Registry
from rlm_plugins.run.train import train

RECIPE: dict[str, Any] = {
    "model": {"name": "scratch", "lora": {"r": 8, "target_modules": "all-linear"}},
    "environment": {"name": "addition", "digits": 2, "test_rows": 0},
    "rewards": ["accuracy", {"name": "format", "weight": 0.2}],
    "algorithm": "grpo",
    "trainer": {
        "per_device_train_batch_size": 32,
        "num_generations": 8,
        "max_completion_length": 32,
        "save_strategy": "no",
    },
}


class Timed(live.LiveDiagnosis):
    """Measures every other call, so that both kinds of steps run on the same machine at the same time."""

    steps: ClassVar[dict[bool, list[float]]] = {True: [], False: []}
    inside: ClassVar[list[float]] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock of a step."""
        self._began = time.process_time()

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Diagnose even steps only."""
        is_on, began = state.global_step % 2 == 0, time.process_time()
        if is_on:
            super().on_log(args, state, control, **kwargs)
            self.inside.append(time.process_time() - began)
        self.steps[is_on].append(time.process_time() - self._began)


def main() -> None:
    """Train, and print the ratio."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    live.LiveDiagnosis = Timed  # type: ignore[misc]
    document = recipe.of_mapping({**RECIPE, "trainer": {**RECIPE["trainer"], "max_steps": steps}})
    with tempfile.TemporaryDirectory() as folder:
        train(document, Registry(), Path(folder) / "run")
    on, off, inside = (median(x[2:]) * 1e3 for x in (Timed.steps[True], Timed.steps[False], Timed.inside))
    print(f"step with diagnosis {on:.1f} ms, without {off:.1f} ms, ratio {on / off:.3f}")
    print(f"inside the diagnosis {inside:.3f} ms, {inside / off:.2%} of a step")


if __name__ == "__main__":
    main()
