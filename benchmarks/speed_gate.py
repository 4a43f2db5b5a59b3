"""The gate of `grpo_speed.py`: an arm whose samples or weights differ from stock TRL is not timed."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from speed_arms import ARMS, DEFAULT, OFF, OURS, STOCK, Arm
from speed_meter import Run
from speed_run import run
from speed_workloads import GATE, WORKLOADS

GRADIENT, WEIGHTS, HALF = 5e-6, 1e-4, 1.1
"""Maximum relative distance of the gradient of a step, and of the weights at the end; maximum bfloat16 error over
stock's."""
GRADIENT_REAL = 2e-5
"""The same of a real model: 30 layers with trained weights amplify rounding, in stock TRL too."""


def apart(x: torch.Tensor, y: torch.Tensor) -> float:
    """Return the distance of x from y, relative to y."""
    return ((x - y).norm() / y.norm().clamp(min=1e-30)).item()


def refusal(found: Run, stock: Run, gradient: float = GRADIENT) -> str | None:
    """Return why a run differs from stock TRL, or None; `gradient` is the maximum distance of the gradient."""
    if found.written != stock.written:
        return "its completions differ"
    far = {"gradient": (apart(found.gradient, stock.gradient), gradient)}
    far["weights"] = apart(found.weights, stock.weights), WEIGHTS
    return next((f"its {name} is {x:.1e} away" for name, (x, most) in far.items() if not x <= most), None)


def check(where: str, runs: dict[str, Run], gradient: float | None = None) -> dict[str, float]:
    """Return the maximum distances between stock TRL and the other arms of a workload.

    Args:
        where: The workload.
        runs: Its runs, by arm.
        gradient: Maximum distance of the gradient; None: that of the workload.

    Raises:
        SystemExit: One of them is too large, or "ours, all off" is not bit-identical to stock TRL.
    """
    stock = runs[DEFAULT]
    if gradient is None:
        gradient = GRADIENT_REAL if where in WORKLOADS and WORKLOADS[where].is_real else GRADIENT
    for name, found in runs.items():
        if reason := refusal(found, stock, gradient):
            sys.exit(f"not timed: on '{where}' the arm '{name}' differs from stock: {reason}")
    if OFF in runs and STOCK in runs and not torch.equal(runs[OFF].weights, runs[STOCK].weights):
        sys.exit(f"not timed: on '{where}' the weights of '{OFF}' and '{STOCK}' are not bit-identical")
    return {
        "gradient": max(apart(found.gradient, stock.gradient) for found in runs.values()),
        "weights": max(apart(found.weights, stock.weights) for found in runs.values()),
    }


def half_precision(names: Sequence[str] = tuple(GATE), *, mixed: bool = False) -> dict[str, float]:
    """Return the mean error of a bfloat16 gradient against float32 with the same weights, of stock and of ours.

    Args:
        names: Of the workloads.
        mixed: Autocast is on, too.

    Raises:
        SystemExit: The error of ours is larger.
    """
    found = {STOCK: 0.0, OURS: 0.0}
    for workload in (replace(GATE[name], canned=True, steps=1) for name in names):
        truth = run(workload, Arm(half=True), truth=True).gradient
        for name in found:
            found[name] += apart(run(workload, replace(ARMS[name], half=True, mixed=mixed)).gradient, truth) / len(
                names
            )
    if not found[OURS] <= HALF * found[STOCK]:
        sys.exit(f"not timed: in bf16 our gradient is {found[OURS]:.1e} from float32, stock's {found[STOCK]:.1e}")
    return found


def gate(arms: Iterable[str] = ARMS) -> dict[str, dict[str, float]]:
    """Return workload → distances; ``bf16`` → the errors in bfloat16."""
    found = {
        name: check(name, {arm: run(workload, ARMS[arm]) for arm in arms if not ARMS[arm].other_rows})
        for name, workload in GATE.items()
    }
    return {**found, "bf16": half_precision()}
