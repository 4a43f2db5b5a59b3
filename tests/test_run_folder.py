"""The run folder: its files, none of which is ever overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml

from rlm_plugins.durable.lock import locked
from rlm_plugins.equation.batch import Batch
from rlm_plugins.errors import RlmError
from rlm_plugins.registry.part import Part
from rlm_plugins.run.folder import Run, fresh_folder
from rlm_plugins.specs import EnvironmentSpec
from rlm_plugins.stage import Reward, Stage


def constant(completions: list[str]) -> list[float]:
    """Return 1 for every completion."""
    return [1.0] * len(completions)


def stage() -> Stage:
    rewards = [
        Reward(name, Part("rlm_rewards", name, "t", constant).bind({}), w) for name, w in (("a", 2.0), ("b", 0.1))
    ]
    source: object = None
    return Stage("01-x", {}, None, {}, EnvironmentSpec(train=[]), source, rewards=rewards)  # type: ignore[arg-type]


def test_opening(tmp_path: Path) -> None:
    part = tmp_path / "part.py"
    part.write_text("# a part")
    run = Run(tmp_path / "run")
    run.open({"recipe": {"name": "x", "rewards": ["ä"]}}, [part])
    assert yaml.safe_load((run.folder / "recipe.yaml").read_text()) == {"name": "x", "rewards": ["ä"]}
    assert run.manifest()["recipe"]["name"] == "x"
    assert (run.folder / "plugins" / "part.py").read_text() == "# a part"
    assert run.name == "run"


def test_a_run_that_is_renamed_while_it_is_written_stops(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.open({"recipe": {}})
    with locked(run.folder):
        run.log(step=1)
        run.folder.rename(tmp_path / "other")
        for write in (lambda: run.log(step=2), run.sync):
            with pytest.raises(RlmError, match="renamed or removed while it was written"):
                write()
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_metrics_log_is_json_with_non_finite_numbers(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.log(stage="s", step=1, loss=float("inf"), nested={"x": [float("nan"), 1.0]})
    run.log(stage="s", step=2, loss=0.5)
    assert run.records() == [
        {"stage": "s", "step": 1, "loss": None, "nested": {"x": [None, 1.0]}},
        {"stage": "s", "step": 2, "loss": 0.5},
    ]


def test_repeated_steps_are_removed_from_the_metrics_log(tmp_path: Path) -> None:
    run, again = Run(tmp_path), stage()
    other = {"stage": "00-sft", "step": 9, "loss": 1.0}
    run.log(**other)
    for step in range(4):
        run.log(stage=again.name, step=step, **{"held_out/a": 0.5, "held_out/rows": 1})
        run.log(stage=again.name, step=step, loss=float(step))
        run.append("samples.jsonl", {"stage": again.name, "step": step, "completion": "y"})
    with (tmp_path / "metrics.jsonl").open("a") as handle:
        handle.write('{"stage": "01-x", "st')  # killed inside a write
    run.rewind(again, 2)
    assert run.records()[0] == other
    ours = run.records()[1:]
    assert [r["step"] for r in ours if "loss" in r] == [0, 1, 2]
    assert [r["step"] for r in ours if "loss" not in r] == [0, 1], "the resumed stage is judged at its checkpoint"
    assert [r["step"] for r in run.records("samples.jsonl")] == [0, 1], "the checkpoint's rows are written again"
    run.rewind(again, -1)
    assert run.records() == [other]


def test_samples_show_each_rewards_share(tmp_path: Path) -> None:
    run = Run(tmp_path)
    batch = Batch(
        rewards=torch.tensor([2.05, 0.0]),
        advantages=torch.tensor([[1.0, 1.0], [-1.0, -1.0]]),
        named_rewards={"a": torch.tensor([1.0, 0.0]), "b": torch.tensor([0.5, 0.0])},
    )
    run.observe(stage(), 3, ["q", "q"], [[{"role": "assistant", "content": "y"}], "n"], batch, [{"answer": "y"}, {}])
    first, second = run.records("samples.jsonl")
    assert (first["completion"], first["columns"]) == ("y", {"answer": "y"})
    assert first["rewards"] == {"a": 1.0, "b": 0.5}
    assert first["shares"] == {"a": 2.0, "b": 0.05}
    assert (second["advantage"], second["step"], second["stage"]) == (-1.0, 3, "01-x")


def test_only_the_main_process_writes_files(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", main=False)
    run.open({})
    run.log(step=1)
    run.summarize(x=1)
    run.finish(stage())
    assert not run.folder.exists()


def test_finished_stages(tmp_path: Path) -> None:
    run, done = Run(tmp_path), stage()
    (tmp_path / done.name).mkdir()
    assert not run.finished(done)
    run.finish(done)
    assert run.finished(done)


def test_a_fresh_folder_is_fresh(tmp_path: Path) -> None:
    wanted = tmp_path / "demo"
    assert fresh_folder(wanted) == wanted
    wanted.mkdir()
    assert fresh_folder(wanted) == wanted, "an empty folder holds no run"
    (wanted / "recipe.yaml").touch()
    assert fresh_folder(wanted).name == "demo-2"
    (tmp_path / "demo-2").mkdir()
    (tmp_path / "demo-2" / "x").touch()
    assert fresh_folder(wanted).name == "demo-3"
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(RlmError, match="expected a folder, got a file"):
        fresh_folder(file)
