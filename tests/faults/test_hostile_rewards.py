"""Rewards that fail, exit, hang, block or change the process: faults name the reward, and settings are restored."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hostile_rewards import CHANGES, HANGS, RAISES, RETURNS, SCORES, RaisingFloat

from rlm_plugins.equation.rng_state import temporary_rng_state
from rlm_plugins.registry.part import Part
from rlm_plugins.rewards import containment
from rlm_plugins.rewards.fault import FaultLog
from rlm_plugins.rewards.trl_adapter import trl_reward
from rlm_plugins.stage import Reward
from rlm_plugins.workers import time_limit


def batch() -> dict[str, Any]:
    messages = [[{"role": "user", "content": text}] for text in "ppqq"]
    return {
        "prompts": messages,
        "completions": ["1", "2", "bad", "4"],
        "completion_ids": [[1], [2], [3], [4]],
        "answer": [{"gold": [1]}, {"gold": [2]}, {"gold": [3]}, {"gold": [4]}],
        "trainer_state": SimpleNamespace(global_step=7, max_steps=9),
    }


def scored(function: Callable[..., Any], data: dict[str, Any], log: FaultLog | None, **keys: Any) -> Any:
    part = Part("rlm_rewards", "it", "guest", function)
    part.check()
    scores = trl_reward(Reward("it", part.bind({}), **keys), log)(**data)
    return asyncio.run(scores) if asyncio.iscoroutine(scores) else scores


def forms(call: Callable[[], Any]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield a call as a reward of a batch, of one completion, and as an asynchronous one."""

    def of_batch(completions: list[str]) -> Any:
        return call()

    def of_one(completion: str) -> Any:
        return call() if completion == "bad" else 1.0

    async def waiting(completions: list[str]) -> Any:
        await asyncio.sleep(0)
        return call()

    yield from (("batch", of_batch), ("completion", of_one), ("async", waiting))


@contextlib.contextmanager
def nothing_changes() -> Iterator[None]:
    before = {name: read() for name, (read, _) in containment._SETTINGS.items()}
    with temporary_rng_state() as drawn:
        yield
        assert not drawn()
    assert before == {name: read() for name, (read, _) in containment._SETTINGS.items()}


def check_named(function: Callable[..., Any], expected: list[float | None], **keys: Any) -> None:
    """Check that a reward stops the run with its name, and is left out with `on_error: skip`."""
    log = FaultLog()
    with nothing_changes():
        scored(function, batch(), log, **keys)
        assert log.stop is not None, "no fault"
        assert "reward 'it' (plugin 'guest'" in str(log.stop)
        assert "step 7" in str(log.stop)
        assert len(str(log.stop)) < 6000
        assert scored(function, batch(), FaultLog(), on_error="skip", **keys) == expected


@pytest.mark.faults(group="F6")
def test_invalid_results_name_the_reward(cases: Any) -> None:
    for kind, calls in (("returns", RETURNS), ("raises", RAISES)):
        for name, call in calls.items():
            for form, function in forms(call):
                if form == "completion" and kind == "returns":
                    continue  # its result is a score
                with cases(f"{kind} {name}, {form}"):
                    check_named(function, [1.0, 1.0, None, 1.0] if form == "completion" else [None] * 4)


@pytest.mark.faults(group="F6")
def test_invalid_score_costs_one_completion(cases: Any) -> None:
    for name, make in SCORES.items():
        with cases(f"score {name}"):
            check_named(bind(make), [1.0, 1.0, None, 1.0])
    with cases("a number whose methods raise is that number"):
        assert scored(lambda completions: [RaisingFloat(0.5)] * 4, batch(), FaultLog()) == [0.5] * 4


def bind(make: Callable[[], Any]) -> Callable[..., Any]:
    def it(completions: list[str]) -> list[Any]:
        return [make() if text == "bad" else 1.0 for text in completions]

    return it


@pytest.mark.faults(group="F6")
def test_changes_are_undone_and_reported(cases: Any, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[Callable[[], Any]] = []

    def it(completions: list[str]) -> list[float]:
        calls.pop()()
        return [1.0] * len(completions)

    for name, (change, word) in CHANGES.items():
        calls[:] = [change]
        containment._reported.clear()
        caplog.clear()
        with cases(name), nothing_changes(), caplog.at_level(logging.WARNING):
            assert scored(it, batch(), FaultLog()) == [1.0] * 4
            assert f"reward 'it' (plugin 'guest', {__file__}) changed" in caplog.text
            assert word in caplog.text


@pytest.mark.faults(group="F6")
def test_data_of_the_trainer_are_unchanged(cases: Any) -> None:
    def state(completions: list[str], trainer_state: Any) -> list[float]:
        trainer_state.global_step = 10**6
        trainer_state.max_steps = 0
        return [1.0] * 4

    def lists(
        prompts: Any, completions: list[list[dict[str, str]]], completion_ids: Any, answer: Any, **_: Any
    ) -> list[float]:
        prompts[0][0]["content"] = "changed"
        completion_ids[0].append(9)
        answer[0]["gold"].append(9)
        for given in (prompts, completions, completion_ids, answer):
            given.clear()
        return [1.0] * 4

    for function in (state, lists):
        with cases(function.__name__), nothing_changes():
            data = batch()
            assert scored(function, data, FaultLog()) == [1.0] * 4
            assert data == batch()


@pytest.mark.faults(group="F6")
def test_hanging_rewards_end_at_their_timeout(cases: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit, "DEFAULT", 0.2)
    monkeypatch.setattr(time_limit, "BLOCKED", 0.2)
    for name, call in HANGS.items():
        for form, function in forms(call):
            for keys in ({"timeout": 0.2}, {}) if form != "async" else ({"timeout": 0.2},):
                with cases(f"{name}, {form}, {'its timeout' if keys else 'the default'}"), nothing_changes():
                    log = FaultLog()
                    scored(function, batch(), log, **keys)
                    assert log.stop is not None
                    assert "reward 'it' (plugin 'guest'" in str(log.stop)
                    assert "no answer within 0.2 s" in str(log.stop)
                    assert "hostile_rewards.py" in str(log.stop), "the stack at that moment"


PART = """
import re
from rlm_plugins import hookimpl


def holds(completions, trainer_state):
    if trainer_state is not None and trainer_state.global_step == 1:
        re.match(r"(a+)+$", "a" * 60 + "b")
    return [float(len(text) % 3) for text in completions]


@hookimpl
def rlm_rewards():
    return {"holds": holds}
"""
RECIPE = """
plugins: {load: [part.py]}
environment: {name: addition, digits: 2, train_rows: 8, test_rows: 4}
rewards: [REWARD]
model: {name: scratch, hidden: 16, heads: 2, intermediate: 16}
algorithm: {name: grpo, penalties: []}
evaluation: null
trainer: {max_steps: 2, per_device_train_batch_size: 8, num_generations: 4, max_completion_length: 4, save_steps: 1}
"""
SHORT_GRACE = (
    "import rlm_plugins.workers.time_limit as w; w.GRACE = 1.0; from rlm_plugins.cli.typer_app import main; main()"
)


def command(folder: Path, reward: str, *more: str, script: str = "", **variables: str) -> Any:
    (folder / "part.py").write_text(PART)
    (folder / "r.yaml").write_text(RECIPE.replace("REWARD", reward))
    program = ["-c", script] if script else ["-m", "rlm_plugins"]
    arguments = [sys.executable, *program, "train", "r.yaml", "--out", "run", *more]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.faults(group="F6")
def test_blocked_process_names_the_reward(tmp_path: Path, cases: Any) -> None:
    with cases("a call that holds the interpreter"):
        blocked = command(tmp_path, "{name: holds, timeout: 1}", script=SHORT_GRACE)
        assert blocked.returncode == 1
        assert re.search(r'part.py", line \d+ in holds', blocked.stderr), blocked.stderr[-3000:]
        assert (tmp_path / "run" / "01-grpo" / "checkpoint-1").is_dir()
