"""Cost of a capsule: steps with and without one, alternating in one run: ``python benchmarks/capsule_cost.py``.

CPU time and wall time of each optimizer step, generation included. A pair is a step with a capsule and the mean of
its neighbors without one; the result is the median ratio over the pairs, with a bootstrap interval.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import time
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from transformers import TrainerCallback

from rlm_plugins import hookimpl, recipe
from rlm_plugins.registry import Registry

ROOT = Path(__file__).resolve().parents[1]
LESSONS = ROOT / "recipes/lessons"
FILE = "clock.jsonl"
SKIPPED = 3
"""Steps at the start, in which self-checks run."""
RECIPES = {
    "addition": (
        LESSONS / "01-addition.yaml",
        ["stages.0.trainer.max_steps=20", "stages.0.evaluation=null", "stages.1.evaluation=null"],
        "stages.1",
    ),
    "language model": (LESSONS / "05-a-language-model.yaml", ["evaluation=null"], ""),
}


class StepClock(TrainerCallback):  # type: ignore[misc]
    """Writes the CPU time and the wall time of each optimizer step.

    Args:
        file: One line per step.
    """

    def __init__(self, file: Path) -> None:
        self._file, self._start = file, (0.0, 0.0)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clocks."""
        self._start = time.process_time(), time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write one line."""
        cpu, wall = time.process_time() - self._start[0], time.perf_counter() - self._start[1]
        with self._file.open("a") as out:
            out.write(json.dumps({"step": state.global_step, "cpu": cpu, "wall": wall}) + "\n")


def step_clock(run: Any) -> StepClock:
    """Measure every optimizer step."""
    return StepClock(run.folder / FILE)


@hookimpl
def rlm_callbacks() -> dict[str, object]:
    """Return the callback of this benchmark."""
    return {"step_clock": step_clock}


def measure(name: str, steps: int) -> dict[str, Any]:
    """Train a recipe with a capsule at every second step, and return the ratio of the steps."""
    from rlm_plugins.run.train import train

    file, overrides, stage = RECIPES[name]
    place = f"{stage}." if stage else ""
    own = [f"{place}capsule={{every: 2}}", f"{place}callbacks=[step_clock]", f"{place}trainer.max_steps={steps}"]
    own += [f"{place}trainer.save_strategy='no'"]
    folder = Path(mkdtemp()) / "run"
    train(recipe.load(file, [*overrides, *own]), Registry([Path(__file__)]), folder)
    lines = [json.loads(line) for line in (folder / FILE).read_text().splitlines()][SKIPPED:]
    sizes = [sum(x.stat().st_size for x in path.rglob("*") if x.is_file()) for path in folder.glob("*/capsules/*")]
    result = {"recipe": name, "capsules": len(sizes), "kilobytes": round(statistics.fmean(sizes) / 1000)}
    for clock in ("cpu", "wall"):
        ratios = [
            here[clock] / ((before[clock] + after[clock]) / 2)
            for before, here, after in zip(lines, lines[1:], lines[2:], strict=False)
            if here["step"] % 2 == 0
        ]
        result[clock] = interval(ratios)
    result["seconds"] = round(statistics.median(line["cpu"] for line in lines if line["step"] % 2), 3)
    shutil.rmtree(folder.parent)
    return result


def interval(ratios: list[float], draws: int = 2000) -> dict[str, float]:
    """Return the median of ratios, with its 95 % bootstrap interval."""
    rng = random.Random(0)
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(draws))
    ends = {"low": medians[draws // 40], "high": medians[-draws // 40]}
    return {name: round(x, 3) for name, x in {"median": statistics.median(ratios), **ends}.items()}


def main() -> None:
    """Measure and print one line of JSON per recipe."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", choices=[*RECIPES], default="addition")
    parser.add_argument("--steps", type=int, default=41)
    options = parser.parse_args()
    print(json.dumps(measure(options.recipe, options.steps)))


if __name__ == "__main__":
    main()
