"""A run resumed from any step of three epochs ends with the bytes of an uninterrupted one, for every kind of run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from fault_cases import resume, weights
from fault_kinds import KINDS, STEPS, interrupted, kind_of_run

from rlm_plugins.run.launch import launch

pytestmark = [pytest.mark.slow, pytest.mark.faults(group="F4")]
QUICK = ("reward with memory",)


def check_every_step(folder: Path, kind: str, steps: range, cases: Any) -> None:
    whole = launch(kind_of_run(folder, kind), [], out=folder / "whole").folder
    expected = weights(whole)
    assert expected
    saved = sorted(int(path.name.split("-")[1]) for path in whole.glob("01-*/checkpoint-*"))
    assert len(saved) >= STEPS // 2
    for step in [step for step in saved if step in steps]:
        with cases(f"{kind}, step {step}"):
            assert weights(resume(interrupted(whole, folder / "run", step))) == expected
        shutil.rmtree(folder / "run", ignore_errors=True)


@pytest.mark.parametrize("kind", QUICK)
def test_resumed_from_a_step_of_each_epoch(tmp_path: Path, kind: str, cases: Any) -> None:
    check_every_step(tmp_path, kind, range(3, STEPS, 5), cases)


@pytest.mark.matrix
@pytest.mark.parametrize("kind", KINDS)
def test_resumed_from_every_step(tmp_path: Path, kind: str, cases: Any) -> None:
    check_every_step(tmp_path, kind, range(1, STEPS), cases)
