"""False alarms and cost of the divergence checks: ``python benchmarks/divergence_limits.py``.

``papers`` trains every recipe of recipes/papers, cut down as in `tests/test_papers.py`. The result is the largest share
of a limit that a loss, norm or weight reached.

``growth`` trains a model from scratch at increasing learning rates. ``cost`` compares the CPU time of optimizer steps
with and without the checks, alternating in one run.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from capsule_cost import FILE, LESSONS, SKIPPED, StepClock, interval

from rlm_plugins import hookimpl, recipe
from rlm_plugins.equation import step as divergence
from rlm_plugins.equation.step import Divergence
from rlm_plugins.registry import Registry
from rlm_plugins.run.train import train
from rlm_plugins.trainer import observer

TESTS = Path(__file__).resolve().parents[1] / "tests"
RATES = (3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
"""Learning rates of 01-addition.yaml, whose own is the first."""


class AlternatingClock(StepClock):
    """A clock that switches the checks off in every second step."""

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Switch the checks, and start the clocks."""
        is_checked = state.global_step % 2 == 1
        observer.check_weights = divergence.check_weights if is_checked else _unchecked
        observer.check_number = divergence.check_number if is_checked else _unchecked
        super().on_step_begin(args, state, control, **kwargs)


def _unchecked(*_: Any) -> None:
    pass


def alternating_clock(run: Any) -> AlternatingClock:
    """Measure every optimizer step."""
    return AlternatingClock(run.folder / FILE)


@hookimpl
def rlm_callbacks() -> dict[str, object]:
    """Return the callback of this benchmark."""
    return {"alternating_clock": alternating_clock}


@contextmanager
def recorded() -> Iterator[dict[str, float]]:
    """Record the largest share of each limit, and the largest weight."""
    largest: dict[str, float] = defaultdict(float)

    def number(value: float, name: str, step: int) -> None:
        kind = "loss" if "loss" in name else "norm"
        largest[kind] = max(largest[kind], abs(value) / divergence.MAX_LOSS_OR_NORM)
        divergence.check_number(value, name, step)

    def weights(parameters: Any, before: float, name: str, step: int) -> None:
        value = divergence.max_abs(parameters)
        largest["weight"] = max(largest["weight"], value)
        largest["share"] = max(largest["share"], value / (divergence.MAX_WEIGHT_GROWTH * (1 + before)))
        divergence.check_weights(parameters, before, name, step)

    observer.check_number, observer.check_weights = number, weights
    try:
        yield largest
    finally:
        observer.check_number, observer.check_weights = (
            divergence.check_number,
            divergence.check_weights,
        )


def papers() -> dict[str, Any]:
    """Train every recipe of recipes/papers that has a data set for two steps."""
    sys.path.insert(0, str(TESTS))
    import conftest  # noqa: F401  # hides installed plugins: the tests load their own
    from golden_run import write_pool
    from test_papers import OF_DATA, two_steps

    stopped, shares = [], {}
    with TemporaryDirectory() as name:
        os.chdir(name)
        write_pool(Path("successes.jsonl"))
        for file in OF_DATA:
            with recorded() as largest:
                try:
                    two_steps(file, Path(name) / file.stem)
                except Divergence:
                    stopped.append(file.stem)
            shares[file.stem] = max(largest[kind] for kind in ("loss", "norm", "share"))
    worst = max(shares, key=lambda name: shares[name])
    return {"runs": len(shares), "stopped": stopped, "largest_share": round(shares[worst], 4), "recipe": worst}


def growth(steps: int) -> list[dict[str, Any]]:
    """Train the model of 01-addition.yaml from scratch, at each rate."""
    ratios = []
    for rate in RATES:
        with TemporaryDirectory() as name, recorded() as largest:
            document = recipe.load(LESSONS / "01-addition.yaml").bodies[0]
            document["trainer"] |= {"max_steps": steps, "learning_rate": rate}
            run, is_stopped = Path(name) / "run", False
            try:
                train(recipe.of_mapping(document), Registry(), run)
            except Divergence:
                is_stopped = True
            logged = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        losses = [line["loss"] for line in logged if "loss" in line]
        last = losses[-1] if losses and losses[-1] is not None else math.nan
        entry = {"rate": rate, "stopped": is_stopped, "first_loss": losses[0], "last_loss": round(last, 3)}
        ratios.append({**entry, "weight": round(largest["weight"], 3), "share": round(largest["share"], 4)})
    return ratios


def cost(steps: int) -> dict[str, Any]:
    """Train stage 2 of 01-addition.yaml with the checks in every second step; return the ratio of the steps."""
    short = ["stages.0.trainer.max_steps=20", "stages.0.evaluation=null", "stages.1.evaluation=null"]
    own = ["callbacks=[alternating_clock]", f"trainer.max_steps={steps}", "trainer.save_strategy='no'"]
    with TemporaryDirectory() as name:
        folder = Path(name) / "run"
        overrides = [*short, *(f"stages.1.{text}" for text in own)]
        train(recipe.load(LESSONS / "01-addition.yaml", overrides), Registry([Path(__file__)]), folder)
        lines = [json.loads(line) for line in (folder / FILE).read_text().splitlines()][SKIPPED:]
    triples = [each for each in zip(lines, lines[1:], lines[2:], strict=False) if each[1]["step"] % 2 == 0]
    ratios = [here["cpu"] / ((before["cpu"] + after["cpu"]) / 2) for before, here, after in triples]
    return {"steps": steps, "cpu": interval(ratios)}


def main() -> None:
    """Measure and print one line of JSON each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", nargs="*", default=["papers", "growth", "cost"])
    parser.add_argument("--steps", type=int, default=61)
    options = parser.parse_args()
    measurements = {"papers": papers, "growth": lambda: growth(200), "cost": lambda: cost(options.steps)}
    for name in options.what:
        print(json.dumps({name: measurements[name]()}), flush=True)


if __name__ == "__main__":
    main()
