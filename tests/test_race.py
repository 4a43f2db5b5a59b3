"""``rlm compare``, ``rlm sweep`` and its races: each run equals the one that is trained alone."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import race_memory
import tiny
import torch
import yaml
from rich.console import Console
from rlm_lab import standings
from rlm_lab.compare import compare, render
from rlm_lab.race import SharedBase, Turns, algorithms_of, race, with_shared_weights
from rlm_lab.sweep import sweep
from safetensors.torch import load_file

from rlm_plugins.errors import RlmError
from rlm_plugins.recipe.compose import compose
from rlm_plugins.run.recipe_argument import read
from rlm_plugins.run.train import train

ALGORITHMS = ("grpo", "dapo", "rloo")


def recipe(folder: Path, **changes: Any) -> Path:
    body = {
        "model": {"name": "scratch", "hidden": 32, "layers": 2, "heads": 2, "intermediate": 32, "lora": {"r": 2}},
        "environment": {"name": "addition", "digits": 2, "test_rows": 6},
        "rewards": [{"name": "length", "limit": 8, "as": "accuracy"}],
        "algorithm": "grpo",
        "evaluation": {"every": 2},
        "trainer": {
            "max_steps": 3,
            "per_device_train_batch_size": 8,
            "num_generations": 4,
            "max_completion_length": 6,
            "learning_rate": 1e-2,
            "save_strategy": "steps",
            "save_steps": 1,
            "lr_scheduler_type": "constant",
        },
        **changes,
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(body))
    return folder / "recipe.yaml"


def adapter(run: Path) -> dict[str, torch.Tensor]:
    (file,) = run.glob("*/adapter/adapter_model.safetensors")
    return load_file(file)


def logged(run: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    times = ("time", "seconds", "runtime", "per_second")
    return [{k: v for k, v in record.items() if not any(word in k for word in times)} for record in records]


def check_equal(together: Path, alone: Path) -> None:
    """Check that two runs have the same trained adapter and the same metrics."""
    ours, theirs = adapter(together), adapter(alone)
    assert any(x.any() for name, x in ours.items() if "lora_B" in name)
    assert all(torch.equal(ours[name], x) for name, x in theirs.items())
    assert logged(together) == logged(alone)


@pytest.fixture(scope="module")
def raced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("race")
    race(ALGORITHMS, [], recipe(folder), 1, folder / "out", lambda line: None)
    return folder


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_each_run_equals_the_one_trained_alone(algorithm: str, raced: Path) -> None:
    torch.manual_seed(7), random.seed(7)  # whatever was drawn before
    alone = raced / f"alone-{algorithm}"
    found = read(raced / "recipe.yaml", [f"algorithm={algorithm}", "trainer.seed=1"])
    train(*found, alone, console=Console(quiet=True))
    check_equal(raced / "out" / algorithm, alone)


@pytest.mark.parametrize("algorithm", ["ppo", "reinforce_pp", "gspo", "cispo"])
def test_others_equal_the_one_trained_alone(algorithm: str, tmp_path: Path) -> None:
    """An algorithm with a critic has its own on the shared base."""
    race(("grpo", algorithm), [], recipe(tmp_path), 1, tmp_path / "out", lambda line: None)
    found = read(tmp_path / "recipe.yaml", [f"algorithm={algorithm}", "trainer.seed=1"])
    train(*found, tmp_path / "alone", console=Console(quiet=True))
    check_equal(tmp_path / "out" / algorithm, tmp_path / "alone")
    assert any("critic/value" in record for record in logged(tmp_path / "alone")) == (algorithm == "ppo")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="resident memory is read from /proc")
def test_memory_is_close_to_that_of_one_run() -> None:
    """Each run adds its adapter and optimizer; the base is loaded once."""
    found = race_memory.measure(hidden=1024, layers=4)
    assert found["race of 3"] < 1.25 * found["one run"]


def test_standings(raced: Path) -> None:
    found = json.loads((raced / "out" / "race.json").read_text())
    assert [entry["algorithm"] for entry in found] == list(ALGORITHMS)
    assert found[0]["difference"] is None
    for entry in found[1:]:
        records = [json.loads(line) for line in Path(entry["runs"][0], "evaluations.jsonl").read_text().splitlines()]
        first = [json.loads(x) for x in Path(found[0]["runs"][0], "evaluations.jsonl").read_text().splitlines()]
        pairs = zip(first[-1]["scores"], records[-1]["scores"], strict=True)
        assert entry["difference"] == pytest.approx(sum(b - a for a, b in pairs) / 6)
        assert entry["low"] < entry["difference"] < entry["high"]
    assert "difference from grpo" in standings.render(found)


def test_prompts_are_the_same(raced: Path) -> None:
    prompts = []
    for algorithm in ALGORITHMS:
        lines = (raced / "out" / algorithm / "samples.jsonl").read_text().splitlines()
        prompts.append([json.loads(line)["prompt"] for line in lines if json.loads(line)["step"] == 0])
    assert prompts[0] == prompts[1] == prompts[2]


def test_repeated_race_resumes_what_is_unfinished(raced: Path, tmp_path: Path) -> None:
    shutil.copytree(raced / "out", tmp_path / "out")
    before = adapter(tmp_path / "out" / "dapo")
    (stage,) = (tmp_path / "out" / "dapo").glob("01-*")
    (stage / "done").unlink()
    (tmp_path / "out" / "dapo" / "summary.json").unlink()
    shutil.rmtree(stage / "adapter")
    shutil.rmtree(stage / "checkpoint-3")
    echoed: list[str] = []
    race(ALGORITHMS, [], raced / "recipe.yaml", 1, tmp_path / "out", echoed.append)
    assert echoed == ["dapo: complete"]
    after = adapter(tmp_path / "out" / "dapo")
    assert all(torch.equal(after[name], x) for name, x in before.items())


def test_base_is_loaded_once(tmp_path: Path) -> None:
    loads = []
    (stage,) = compose(*read(recipe(tmp_path), ()))
    original = stage.source.load
    stage.source.load = lambda: loads.append(1) or original()  # type: ignore[func-returns-value]
    base = SharedBase()
    first, second = (base.source(stage.source).load() for _ in range(2))
    assert loads == [1]
    assert first is not second
    storage = [{x.data_ptr() for x in model.parameters()} for model in (first, second)]
    assert storage[0] == storage[1]
    assert not any(x.requires_grad for x in first.parameters())
    module = with_shared_weights(torch.nn.Sequential(torch.nn.Linear(2, 2)))
    module[0] = torch.nn.Identity()


def test_turns_alternate_and_an_error_ends_one_task() -> None:
    order: list[str] = []

    def task(name: str, steps: int) -> None:
        for _ in range(steps):
            order.append(name)
            turns.pass_on(name)
        if name == "b":
            raise RlmError("b failed", where="x")

    turns = Turns({name: lambda name=name, n=n: task(name, n) for name, n in (("a", 3), ("b", 1), ("c", 2))})  # type: ignore[misc]
    turns.run()
    assert order == ["a", "b", "c", "a", "c", "a"]
    assert list(turns.errors) == ["b"]


@pytest.mark.parametrize(
    ("algorithms", "changes", "message"),
    [
        (["grpo", "grpo"], {}, "the algorithm 'grpo' is named twice"),
        (["grpo", "dapoo"], {}, "unknown"),
        (["grpo"], {"model": {"name": "scratch"}}, "requires an adapter"),
        (["grpo"], {"stages": [{"algorithm": "sft"}, {"algorithm": "grpo"}]}, "one stage"),
    ],
)
def test_refused(algorithms: list[str], changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(RlmError, match=message):
        race(algorithms, [], recipe(tmp_path, **changes), 1, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("overrides", [[], ["a.b=1"], ["algorithm=grpo,dapo", "a.b=1,2"]])
def test_only_algorithms_race(overrides: list[str]) -> None:
    with pytest.raises(RlmError, match="several values of the key 'algorithm' alone"):
        algorithms_of(overrides)


RECIPE = yaml.safe_dump({**tiny.recipe(save_strategy="no"), "evaluation": {"max_new_tokens": 4}})


def write_run(folder: Path, rate: float, seed: int, after: float | None) -> Path:
    folder.mkdir()
    recipe = {"name": folder.name, "stages": [{"name": "grpo", "trainer": {"learning_rate": rate, "seed": seed}}]}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    if after is not None:
        summary: dict[str, Any] = {"metric": "accuracy", "before": 0.1, "after": after, "held_out_rows": 64}
        (folder / "summary.json").write_text(json.dumps({**summary, "interval": [after - 0.1, after + 0.1]}))
    return folder


def test_runs_are_compared_by_what_differs(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "a", 1e-4, 1, 0.5), write_run(tmp_path / "b", 3e-4, 1, 0.8)]
    comparison = compare(runs)
    assert [run["settings"] for run in comparison["runs"]] == [
        {"stages.0.trainer.learning_rate": 1e-4},
        {"stages.0.trainer.learning_rate": 3e-4},
    ]
    assert "0.700–0.900" in render(comparison, 120)
    unfinished = compare([write_run(tmp_path / "c", 1.0, 1, None)])
    assert unfinished["runs"][0]["after"] is None
    assert "–" in render(unfinished, 120)


def test_a_replaced_part_is_one_difference(tmp_path: Path) -> None:
    """Its knobs, which the other run lacks, are not listed; those of a part that both have are."""
    accuracy, tags = {"name": "accuracy", "weight": 1.0, "mode": None}, {"name": "format", "as": "tags", "weight": 0.1}
    bodies = {
        "a": {"rewards": [accuracy, tags], "algorithm": {"name": "grpo", "advantage": {"name": "x", "scale": 1}}},
        "b": {"rewards": [{**accuracy, "weight": 2.0}], "algorithm": {"name": "grpo", "advantage": {"name": "y"}}},
    }
    for name, body in bodies.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "recipe.yaml").write_text(yaml.safe_dump({"name": name, "stages": [{"name": name, **body}]}))
    comparison = compare([tmp_path / name for name in bodies])
    assert comparison["runs"][1]["settings"] == {
        "stages.0.rewards": "accuracy",
        "stages.0.rewards.accuracy.weight": 2.0,
        "stages.0.algorithm.advantage": "y",
    }
    for width in (30, 60, 90, len(str(tmp_path)) + 72):
        assert max(map(len, render(comparison, width).splitlines())) <= width


def test_seeds_form_a_group(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"{rate}-{seed}", rate, seed, rate + seed) for rate in (1.0, 2.0) for seed in (1, 2)]
    groups = compare(runs)["groups"]
    assert [(group["runs"], group["mean"], group["least"], group["largest"]) for group in groups] == [
        (2, 2.5, 2.0, 3.0),
        (2, 3.5, 3.0, 4.0),
    ]


def test_sweep_trains_each_combination_once(tmp_path: Path) -> None:
    recipe, lines = tmp_path / "recipe.yaml", list[str]()
    recipe.write_text(RECIPE.replace("test_rows: 0", "test_rows: 2"))
    changes = ["trainer.learning_rate=1e-3,1e-2"]
    folders = sweep(recipe, changes, 1, tmp_path / "out", lines.append)
    assert [folder.name for folder in folders] == ["learning_rate=1e-3,seed=1", "learning_rate=1e-2,seed=1"]
    assert sweep(recipe, changes, 1, tmp_path / "out", lines.append) == folders
    assert sum("skipped" in line for line in lines) == 2
    assert all(run["after"] is not None for run in compare(folders)["runs"])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the signal of a parent's death is Linux's")
def test_killed_sweep_leaves_no_run_behind(tmp_path: Path) -> None:
    """Otherwise its process continues, and a repeated sweep trains beside it into a second folder."""
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE.replace("max_steps: 1\n", "max_steps: 100000\n"))
    program = "import sys; from pathlib import Path; from rlm_lab.sweep import sweep; "
    program += "sweep(Path(sys.argv[1]), ['trainer.seed=1'], 1, Path(sys.argv[2]))"
    options: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = subprocess.Popen([sys.executable, "-c", program, str(recipe), str(tmp_path / "out")], **options)
    children = Path(f"/proc/{started.pid}/task/{started.pid}/children")
    deadline = time.monotonic() + 120
    while not (found := children.read_text().split()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    started.kill()
    started.wait()
    child = Path(f"/proc/{found[0]}/stat")
    while child.exists() and child.read_text().split()[2] != "Z":
        assert time.monotonic() < deadline, "the run goes on"
        time.sleep(0.1)


def test_invalid_combination_trains_nothing(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE)
    with pytest.raises(RlmError, match="expected key=value"):
        sweep(recipe, ["trainer.learning_rate"], 1, tmp_path / "out")
    assert not (tmp_path / "out").exists()
