"""The gate of `grpo_speed.py`: an arm that writes other samples or learns other weights than stock is not timed."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from speed_arms import ARMS, DEFAULT, OFF, OURS, STOCK, Arm
from speed_meter import Run
from speed_run import run
from speed_workloads import GATE

GRADIENT, WEIGHTS, HALF = 5e-6, 1e-4, 1.1
"""Most relative distance of the gradient of a step and of the weights at the end; of the error in two bytes, over
stock's."""


def apart(x: torch.Tensor, y: torch.Tensor) -> float:
    """How far x is from y, relative to y."""
    return ((x - y).norm() / y.norm().clamp(min=1e-30)).item()


def refusal(found: Run, stock: Run) -> str | None:
    """What about a run is not as stock has it; None: nothing."""
    if found.written != stock.written:
        return "it wrote other completions"
    far = {"gradient": (apart(found.gradient, stock.gradient), GRADIENT)}
    far["weights"] = apart(found.weights, stock.weights), WEIGHTS
    return next((f"its {name} is {x:.1e} away" for name, (x, most) in far.items() if not x <= most), None)


def check(where: str, runs: dict[str, Run]) -> dict[str, float]:
    """The greatest distances between stock and the other arms of a workload.

    Raises:
        SystemExit: One of them is too far off, or ours with all off is not stock's to the bit.
    """
    stock = runs[DEFAULT]
    for name, found in runs.items():
        if reason := refusal(found, stock):
            sys.exit(f"not timed: on '{where}' the arm '{name}' is not stock: {reason}")
    if OFF in runs and STOCK in runs and not torch.equal(runs[OFF].weights, runs[STOCK].weights):
        sys.exit(f"not timed: on '{where}' the weights of '{OFF}' are not those of '{STOCK}' to the bit")
    return {
        "gradient": max(apart(found.gradient, stock.gradient) for found in runs.values()),
        "weights": max(apart(found.weights, stock.weights) for found in runs.values()),
    }


def half_precision(names: Sequence[str] = tuple(GATE)) -> dict[str, float]:
    """How far a gradient in two bytes is from that of the same weights in four: of stock and of ours, on average.

    Args:
        names: Of the workloads.

    Raises:
        SystemExit: Ours is further off.
    """
    found = {STOCK: 0.0, OURS: 0.0}
    for workload in (replace(GATE[name], canned=True, steps=1) for name in names):
        truth = run(workload, Arm(half=True), truth=True).gradient
        for name in found:
            found[name] += apart(run(workload, replace(ARMS[name], half=True)).gradient, truth) / len(names)
    if not found[OURS] <= HALF * found[STOCK]:
        sys.exit(f"not timed: in bf16 our gradient is {found[OURS]:.1e} from the truth, stock's {found[STOCK]:.1e}")
    return found


def gate(arms: Iterable[str] = ARMS) -> dict[str, dict[str, float]]:
    """Workload → distances; the error in bf16 under ``bf16``."""
    found = {
        name: check(name, {arm: run(workload, ARMS[arm]) for arm in arms if not ARMS[arm].other_rows})
        for name, workload in GATE.items()
    }
    return {**found, "bf16": half_precision()}
