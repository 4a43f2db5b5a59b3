"""Workers on Ray: the scores, faults and weights of local ones, and the loss of a worker. `make test-ray`."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_runs import LORA, SCRATCH
from rlm_engines.workers import RayWorker, Workers

import rlm_plugins as rlm
from rlm_plugins.errors import RecipeError
from rlm_plugins.registry import Registry
from rlm_plugins.rewards.fault import FaultLog
from rlm_plugins.rewards.trl_adapter import trl_reward
from rlm_plugins.stage import Reward
from rlm_plugins.workers import pool

ray = pytest.importorskip("ray")

PART = """
import os
import time
from pathlib import Path

from rlm_plugins import hookimpl


def slow(prompts, completions, *, calls: str, seconds: float = 0.0):
    '''The number of each completion, by a worker that writes down the group and waits.'''
    with Path(calls).open("a") as file:
        file.write(f"{os.getpid()} {'+'.join(completions)}\\n")
    time.sleep(seconds)
    if "hang" in completions:
        time.sleep(600)
    if "exit" in completions:
        os._exit(1)
    if "raise" in completions:
        raise ValueError("no")
    return [float(text) if text.isdigit() else len(text) / 8 for text in completions]


@hookimpl
def rlm_rewards():
    return {"slow": slow}
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Start Ray on this machine."""
    ray.init(address="local", num_cpus=3, log_to_driver=False, include_dashboard=False)
    yield
    ray.shutdown()


def scorer(folder: Path, book: FaultLog | None = None, *, seconds: float = 0.0, **beside: Any) -> Callable[..., Any]:
    """Return the reward of `PART` as TRL calls it."""
    (folder / "part.py").write_text(PART)
    knobs = {"calls": str(folder / "calls"), "seconds": seconds}
    bound = Registry([folder / "part.py"]).find("rlm_rewards", "slow").bind(knobs)
    return trl_reward(Reward("slow", bound, **beside), book)


def on_ray(program: pool.Program) -> RayWorker:
    return RayWorker(program, 0.5)


def test_missing_cluster_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    missing = Workers(executor="ray").training(None, None)
    with pytest.raises(RecipeError, match=r"(?s)expected a Ray cluster at 'auto'.*ray start --head"), missing:
        pass


@pytest.mark.slow
def test_weights_are_those_of_local_workers_to_the_bit(tmp_path: Path) -> None:
    (tmp_path / "part.py").write_text(PART)
    weights = []
    for executor in ("local", "ray"):
        calls = tmp_path / f"{executor}.txt"
        document = {
            "plugins": {"load": [str(tmp_path / "part.py")]},
            "model": {**SCRATCH, "lora": LORA},
            "environment": {"name": "addition", "digits": 2, "test_rows": 4},
            "rewards": [{"name": "slow", "calls": str(calls), "processes": 2}],
            "algorithm": "grpo",
            "workers": {"executor": executor, "address": "local", "cpus": 0.5},
            "trainer": {"max_steps": 3, "per_device_train_batch_size": 8, "num_generations": 4, "learning_rate": 0.01},
        }
        folder = tmp_path / executor
        rlm.train(document, out=folder)
        weights += [file.read_bytes() for file in sorted(folder.rglob("adapter_model.safetensors"))]
        pids = {line.split()[0] for line in calls.read_text().splitlines()}
        assert str(os.getpid()) not in pids
    half = len(weights) // 2
    assert half
    assert weights[:half] == weights[half:]


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_scores_order_and_faults_are_those_of_local_workers(tmp_path: Path) -> None:
    texts = ["1", "2", "hang", "3", "exit", "4", "raise", "5", "6", "7"]
    given = {"prompts": list("aabbccddee"), "completions": texts, "completion_ids": [[1]] * 10}
    outcome = {}
    for executor in (pool.Worker, on_ray):
        book = FaultLog()
        with pool.executed_by(executor):
            scores = scorer(tmp_path, book, on_error="skip", timeout=8.0, processes=2)(**given)
        faults = [(record["sample"], record["fault"], record["where"]) for record in book.records]
        outcome[executor] = scores, sorted(faults)
    assert outcome[on_ray] == outcome[pool.Worker]
    assert outcome[on_ray][0] == [1.0, 2.0, *[None] * 6, 6.0, 7.0]


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("whole", [False, True], ids=["process", "actor"])
def test_batch_of_a_killed_worker_is_scored_once_more(
    whole: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An actor is killed with its machine: both times one group is lost, which another worker scores."""
    caplog.set_level(logging.WARNING, logger="rlm_plugins")
    given = {"prompts": list("aabb"), "completions": list("1234"), "completion_ids": [[1]] * 4}
    with pool.executed_by(on_ray):
        function, calls = scorer(tmp_path, seconds=2.0, timeout=60.0, processes=1), tmp_path / "calls"

        def kill() -> None:
            while not calls.exists() or not calls.read_text():
                time.sleep(0.05)
            (workers,) = (x.workers for x in pool._pools.values())
            actor = next(worker.actor for worker in workers if worker.is_ready)
            lost = ray.get(actor.__ray_call__.remote(lambda self: os.getpid())) if whole else None
            os.kill(lost or int(calls.read_text().split()[0]), signal.SIGKILL)

        thread = threading.Thread(target=kill)
        thread.start()
        assert function(**given) == [1.0, 2.0, 3.0, 4.0]
        thread.join()
    assert sorted(line.split()[1] for line in calls.read_text().splitlines()) == ["1+2", "1+2", "3+4"]
    (told,) = caplog.messages
    assert told == "a process for the reward 'slow' ended; its request is sent once more"


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_sandbox_of_a_reward_with_processes_runs_where_its_worker_does() -> None:
    bound = Registry().find("rlm_rewards", "code_tests").bind({"workers": 1})
    tests = ['{"calls": {"name": "f", "cases": [[[1], 2]]}}'] * 2
    texts = [f"```python\ndef f(x): return x + {n}\n```" for n in (1, 2)]
    with pool.executed_by(on_ray):
        function = trl_reward(Reward("code", bound, timeout=100.0, processes=1))
        assert function(prompts=["p"] * 2, completions=texts, completion_ids=[[1]] * 2, tests=tests) == [1.0, 0.0]
