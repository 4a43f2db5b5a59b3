"""Damage to any file of a checkpoint is found and named, and the newest sound checkpoint is used."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fault_cases import KINDS, resume, run, unfinished, weights
from fault_damages import DAMAGES, MORE, damaged, flip, swap
from rlm_lab.evaluate import evaluate

from rlm_plugins.durable.files import CHECKSUMS, owner_of, seal
from rlm_plugins.errors import RlmError
from rlm_plugins.run.train import valid_checkpoint

pytestmark = [pytest.mark.slow, pytest.mark.faults(group="F3")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that trains a kind of run once and returns its folder."""
    runs: dict[str, Path] = {}

    def of(kind: str) -> Path:
        if kind not in runs:
            runs[kind] = run(tmp_path_factory.mktemp("whole"), kind)
        return runs[kind]

    return of


def test_every_damage_is_named_and_the_checkpoint_before_it_is_used(whole: Any, tmp_path: Path, cases: Any) -> None:
    pristine, stage = whole("critic") / "01-ppo", tmp_path / "01-ppo"
    for step in (3, 4):
        shutil.copytree(pristine / f"checkpoint-{step}", stage / f"checkpoint-{step}")
    for name, file, damage in list(damaged(stage, DAMAGES | MORE)):
        with cases(name):
            damage(file)
            reported: list[str] = []
            found = valid_checkpoint(stage, reported.append)
            assert found is not None
            assert found.name == "checkpoint-3"
            assert len(reported) == 1
            assert (file.name if file.name != CHECKSUMS else "checksum") in reported[0]
        for folder in stage.glob("checkpoint-4*"):
            shutil.rmtree(folder)
        shutil.copytree(pristine / "checkpoint-4", stage / "checkpoint-4")


def test_files_swapped_between_checkpoints_damage_both(whole: Any, tmp_path: Path, cases: Any) -> None:
    stages = whole("critic") / "01-ppo", tmp_path / "run" / "01-ppo"
    last, before = (stages[0] / f"checkpoint-{step}" for step in (4, 3))
    names = [file.name for file in sorted(last.iterdir()) if file.read_bytes() != (before / file.name).read_bytes()]
    for name in ["", *names]:
        with cases(name or "both folders"):
            shutil.copytree(whole("critic"), tmp_path / "run")
            swap(stages[1] / "checkpoint-4" / name, stages[1] / "checkpoint-3" / name)
            check_two_are_damaged(stages[1])
        shutil.rmtree(tmp_path / "run")


def test_sound_checkpoint_of_another_run_is_not_used(
    whole: Any, tmp_path: Path, cases: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its checksums are valid, and its weights are those of another seed, or of another stage."""
    other = run(tmp_path, "adapter", seed=7)
    for name in ("another run", "another stage"):
        with cases(name):
            copy = unfinished(whole("adapter"), tmp_path / name)
            last = copy / "01-grpo" / "checkpoint-4"
            if name == "another run":
                shutil.rmtree(last)
                shutil.copytree(other / "01-grpo" / "checkpoint-4", last)
            else:
                seal(last, owner=owner_of(last).replace("01-grpo", "02-grpo"))
            assert weights(resume(copy)) == weights(whole("adapter"))
            assert "checkpoint-4 is damaged (it was saved by another run or stage)" in capsys.readouterr().out
    assert weights(other) != weights(whole("adapter"))


def check_two_are_damaged(stage: Path) -> None:
    reported: list[str] = []
    assert valid_checkpoint(stage, reported.append) == stage / "checkpoint-2"
    assert "checkpoint-4 is damaged" in reported[0]
    assert "checkpoint-3 is damaged" in reported[0]


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.full, pytest.mark.matrix]) for kind in KINDS])
def test_resumed_after_every_damage_equals_uninterrupted(whole: Any, tmp_path: Path, kind: str, cases: Any) -> None:
    expected = weights(whole(kind))
    stage = next(whole(kind).glob("01-*")).name
    for name in [name for name, *_ in damaged(whole(kind) / stage)]:
        with cases(f"{kind}, {name}"):
            copy = unfinished(whole(kind), tmp_path / "copy")
            (file, damage), *_ = [(f, d) for n, f, d in damaged(copy / stage) if n == name]
            damage(file)
            assert weights(resume(copy)) == expected
        shutil.rmtree(tmp_path / "copy")


def test_one_damage_resumed(whole: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = unfinished(whole("adapter"), tmp_path / "copy")
    flip(copy / "01-grpo" / "checkpoint-4" / "optimizer.pt")
    assert weights(resume(copy)) == weights(whole("adapter"))
    reported = capsys.readouterr().out
    assert "checkpoint-4 is damaged (optimizer.pt differs from its checksum); resuming from checkpoint-3" in reported


def test_no_sound_checkpoint_is_an_error(whole: Any, tmp_path: Path) -> None:
    copy = unfinished(whole("adapter"), tmp_path / "copy")
    for file in copy.glob("01-grpo/checkpoint-*/optimizer.pt"):
        file.unlink()
    for _ in range(2):
        with pytest.raises(RlmError, match=r"(?s)checkpoint-4.*damaged.*hint: no sound checkpoint is left"):
            resume(copy)


def test_damaged_result_of_an_earlier_stage_is_an_error(whole: Any, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(whole("adapter"), copy)
    flip(copy / "01-grpo" / "adapter" / "adapter_model.safetensors")
    with pytest.raises(RlmError, match=r"result of this stage is damaged: adapter_model\.safetensors differs"):
        evaluate(copy)
