"""The benchmark of speed on a small workload: its gradient check, its counts, and its page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gpu
import grpo_speed
import pytest
import speed_report
import torch
from speed_arms import ARMS, DEFAULT, OFF, OTHER, OURS, STOCK
from speed_gate import check, half_precision, refusal
from speed_limit import Machine, least
from speed_meter import PARTS, Run
from speed_run import run
from speed_workloads import GATE

ROOT = Path(__file__).parents[1]
TINY = replace(GATE["ragged"], steps=2)
MACHINE = Machine(name="a processor", date="2026-01-01", products=1e9, thin=1e9, read=1e9)


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return grpo_speed.rounds("ragged", TINY, (DEFAULT, STOCK, OTHER, OURS, OFF), 1, MACHINE)


@pytest.mark.slow
def test_a_round_measures_every_arm(found: dict[str, Any]) -> None:
    (only,) = found["rounds"]
    assert list(only) == [DEFAULT, STOCK, OTHER, OURS, OFF]
    assert all(took[part] > 0 for took in only.values() for part in (*PARTS, "wall", "once"))
    assert found["distances"]["gradient"] < 5e-6
    padded, live, forwarded = found["positions"][OURS].values()
    assert found["positions"][STOCK] == {"padded": padded, "live": live, "forwarded": padded}
    assert forwarded < live / 2 < padded / 2, "half teach nothing, and prompts are shared"


def of(weights: list[float], gradient: list[float], written: list[list[int]]) -> Run:
    return Run(weights=torch.tensor(weights), gradient=torch.tensor(gradient), written=written)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (of([1.0, 2.0], [3.0], [[4]]), None),
        (of([1.0, 2.00001], [3.0], [[4]]), None),
        (of([1.0, 2.0], [3.0], [[5]]), "its completions differ"),
        (of([1.0, 2.0], [3.0001], [[4]]), "gradient is 3.3e-05 away"),
        (of([1.0, 2.001], [3.0], [[4]]), "weights is 4.5e-04 away"),
        (of([1.0, float("nan")], [3.0], [[4]]), "weights is nan away"),
    ],
)
def test_the_gate(found: Run, reason: str | None) -> None:
    stock = of([1.0, 2.0], [3.0], [[4]])
    refused = refusal(found, stock)
    assert refused is None if reason is None else reason in str(refused)
    if reason is not None:
        with pytest.raises(SystemExit, match=f"not timed: on 'here' the arm 'ours' .*{reason}"):
            check("here", {DEFAULT: stock, OURS: found})


def test_disabled_fast_paths_must_be_bit_identical() -> None:
    stock, near = of([1.0], [1.0], []), of([1.0 + 1e-6], [1.0], [])
    check("here", {DEFAULT: stock, STOCK: stock, OFF: stock})
    with pytest.raises(SystemExit, match="bit-identical"):
        check("here", {DEFAULT: stock, STOCK: stock, OFF: near})


@pytest.mark.slow
def test_trainer_with_other_gradients_is_not_timed() -> None:
    """The check compares results of the run, not the declaration of the arm."""
    one = replace(TINY, steps=1)
    other = run(replace(one, dead=1), ARMS[OURS])
    assert "its gradient is" in str(refusal(other, run(one, ARMS[DEFAULT])))


@pytest.mark.slow
def test_bfloat16_memory_is_at_most_that_of_trl() -> None:
    found = half_precision()  # of three workloads: one alone is now nearer, now further, by a tenth
    assert 1e-3 < found[OURS] <= 1.1 * found[STOCK]


def test_gpu_command_checks_decoding_on_a_cpu_too() -> None:
    assert len([*gpu.decoding()]) == 2
    assert torch.cuda.is_available() or gpu.main([]) == 2


def test_limit_counts_the_required_work() -> None:
    """Two prompts of 10 with completions of 3 and 5; the second has zero advantage."""
    groups = [(10, [3, 5], True), (10, [3, 5], False)]
    layer = 32 * (32 + 16 + 16 + 32) + 3 * 32 * 64
    adapter = 16 * (64 + 48 + 48 + 64 + 3 * 96)
    one = replace(TINY, canned=True)
    found = least(one, groups, MACHINE)
    assert found["writing"] == found["scoring"] == 0
    tokens, scored = 10 + 2 + 4, 8
    assert found["learning"] * 1e9 == pytest.approx(2 * (4 * layer + 6 * adapter) * tokens + 4 * 64 * 32 * scored)
    seen = least(replace(one, beta=0.1, iterations=2), groups, MACHINE)
    assert seen["learning"] == pytest.approx(4 * found["learning"]), "a KL sees every row, and each twice"
    assert seen["scoring"] * 1e9 == pytest.approx(2 * 2 * layer * 2 * tokens + 2 * 64 * 32 * 2 * scored)


def test_readme_equals_the_measurements() -> None:
    """The committed table equals the generated one."""
    text, file = (ROOT / "README.md").read_text(), ROOT / "benchmarks/results/grpo_speed.json"
    assert speed_report.BEGIN in text
    if file.exists():
        found = json.loads(file.read_text())
        assert text == speed_report.into(text, speed_report.lines(found))
        assert (file.parent / "grpo_speed.md").read_text() == speed_report.page(found)
