"""Failures of a reward: `on_error` and `timeout` for every failure of a reward, with the sample named."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rlm_testing import conformance

from rlm_plugins.errors import PartError, PluginError, RecipeError
from rlm_plugins.recipe.document import load
from rlm_plugins.recipe.resolve import resolve
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Part
from rlm_plugins.rewards.fault import Fault, FaultLog
from rlm_plugins.rewards.processes import check_processes
from rlm_plugins.rewards.trl_adapter import trl_reward
from rlm_plugins.stage import Reward
from rlm_plugins.trainer.rewards import correlation, shares, ties
from rlm_plugins.workers.time_limit import CallTimeout, time_limit

BATCH: dict[str, Any] = {
    "prompts": ["p", "p", "q", "q"],
    "completions": ["1", "2", "bad", "4"],
    "answer": [1, 2, 3, 4],
    "trainer_state": SimpleNamespace(global_step=7),
}


def judged(function: Callable[..., Any], book: FaultLog | None = None, **beside: Any) -> list[float | None]:
    part = Part("rlm_rewards", "it", "guest", function)
    part.check()
    scores = trl_reward(Reward("it", part.bind({}), **beside), book)(**BATCH)
    return asyncio.run(scores) if asyncio.iscoroutine(scores) else scores


def fails(completions: list[str], answer: list[int]) -> list[float]:
    """Raise on one sample."""
    if "bad" in completions:
        raise ValueError("no")
    return [float(a) for a in answer]


async def fails_async(completions: list[str], answer: list[int]) -> list[float]:
    """Raise on one sample, asynchronously."""
    await asyncio.sleep(0)
    return fails(completions, answer)


class Fails:
    """Stateless class that raises on one sample."""

    def __call__(self, completions: list[str], answer: list[int]) -> list[float]:
        return fails(completions, answer)


@pytest.mark.parametrize("reward", [fails, fails_async, Fails])
def test_exception_names_the_sample(reward: Any) -> None:
    with pytest.raises(
        PartError, match=r"reward 'it' \(plugin 'guest', .*test_on_error.py\), step 7: raised ValueError"
    ):
        judged(reward)
    book = FaultLog()
    judged(reward, book)
    assert book.stop is not None
    assert "for sample 2, whose completion begins 'bad'" in str(book.stop)
    (record,) = book.records
    assert record["step"] == 7
    assert (record["sample"], record["text"], record["columns"]["answer"]) == (2, "bad", 3)
    json.dumps(record)


@pytest.mark.parametrize("reward", [fails, fails_async, Fails])
def test_the_other_groups_keep_their_scores(reward: Any, caplog: pytest.LogCaptureFixture) -> None:
    zero, skip = FaultLog(), FaultLog()
    with caplog.at_level(logging.WARNING):
        assert judged(reward, zero, on_error="zero") == [1.0, 2.0, 0.0, 0.0]
    assert "for sample 2" in caplog.text
    assert judged(reward, skip, on_error="skip") == [1.0, 2.0, None, None]
    assert zero.stop is skip.stop is None
    assert zero.rows == skip.rows == {"it": [2, 3]}
    assert (zero.skipped, skip.skipped) == (set(), {2, 3})


def short(completions: list[str]) -> list[float]:
    """Return one score too few."""
    return [1.0 for text in completions if text != "bad"]


@pytest.mark.parametrize("rows", [slice(0, 4), slice(2, 4)])
def test_a_list_that_is_too_short_names_its_sample(rows: slice, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("prompts", "completions", "answer"):
        monkeypatch.setitem(BATCH, name, BATCH[name][rows])
    book = FaultLog()
    assert judged(short, book, on_error="skip") == [*[1.0] * (len(BATCH["prompts"]) - 2), None, None]
    with pytest.raises(Fault, match=r"returned 0 scores for 1 completions: \[\] for sample \d, .* begins 'bad'"):
        judged(short)


STARTED: list[str] = []


def of_one(completion: str, answer: int, prompt: str, log_metric: Any = None) -> float | None:
    """Score one completion; raise on one, and return None for another."""
    assert prompt in "pq"
    if completion == "bad":
        raise ValueError("no")
    return None if completion == "2" else float(answer)


async def of_one_async(completion: str, answer: int, prompt: str) -> float | None:
    """Return the score asynchronously, after all four calls have started."""
    STARTED.append(completion)
    while len(STARTED) < 4:
        await asyncio.sleep(0)
    return of_one(completion, answer, prompt)


class OfOne:
    """Class that scores one completion at a time."""

    def __call__(self, completion: str, answer: int, prompt: str) -> float | None:
        return of_one(completion, answer, prompt)


@pytest.mark.parametrize("reward", [of_one, of_one_async, OfOne])
def test_per_completion_reward_fails_for_one_completion(reward: Any) -> None:
    STARTED.clear()
    book = FaultLog()
    assert judged(reward, book, on_error="skip", timeout=60.0) == [1.0, None, None, 4.0]
    assert book.rows == {"it": [2]}
    with pytest.raises(Fault, match="raised ValueError: no for sample 2, whose completion begins 'bad'"):
        judged(reward)
    (record,) = book.records
    assert (record["text"], record["columns"]["answer"]) == ("bad", 3)


def test_a_reward_is_of_one_completion_or_of_all() -> None:
    def completion_and_prompts(completion: str, prompts: list[str]) -> float:
        return 0.0

    with pytest.raises(PluginError, match="requires 'completion' and 'prompts'"):
        Part("rlm_rewards", "it", "guest", completion_and_prompts).check()


def short_completion(completion: str, *, characters: int = 9) -> float:
    """Return 1 for a short completion."""
    return float(len(completion) < characters)


test_laws_of_one = conformance("rlm_rewards", short_completion)


def test_stateful_reward_is_not_retried() -> None:
    class Counts:
        calls = 0

        def __call__(self, completions: list[str]) -> list[float]:
            Counts.calls += 1
            raise OSError("gone")

        def state_dict(self) -> dict[str, Any]:
            return {}

        def load_state_dict(self, state: dict[str, Any]) -> None: ...

    assert judged(Counts, on_error="zero") == [0.0] * 4
    assert Counts.calls == 1


def test_transient_failure_stops_or_is_tolerated() -> None:
    def flaky(times: list[int] | None = None) -> Callable[..., Any]:
        calls = times if times is not None else []

        def it(completions: list[str]) -> list[float]:
            calls.append(len(completions))
            if len(calls) == 1:
                raise ConnectionError("reset")
            return [1.0] * len(completions)

        return it

    assert judged(flaky(), on_error="zero") == [1.0] * 4
    with pytest.raises(Fault, match="ConnectionError: reset"):
        judged(flaky())


async def exits(completions: list[str]) -> list[float]:
    raise SystemExit(0)


async def exits_on_one(completion: str) -> float:
    if completion == "bad":
        raise SystemExit(0)
    return 1.0


@pytest.mark.parametrize(("reward", "scores"), [(exits, [0.0] * 4), (exits_on_one, [1.0, 1.0, 0.0, 1.0])])
@pytest.mark.parametrize("timeout", [None, 5.0])
@pytest.mark.parametrize("ahead", [True, False])
def test_exit_does_not_end_the_event_loop(reward: Any, scores: list[float], timeout: float | None, ahead: bool) -> None:
    """Otherwise a task that raises SystemExit would end its event loop, and TRL would wait forever."""
    part = Part("rlm_rewards", "it", "guest", reward).bind({})
    function = trl_reward(Reward("it", part, on_error="zero", timeout=timeout))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    if ahead:
        function.begin(BATCH, loop)  # type: ignore[attr-defined]
    assert asyncio.run_coroutine_threadsafe(function(**BATCH), loop).result(timeout=10) == scores
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)


def test_late_completion_costs_only_itself() -> None:
    async def it(completion: str) -> float:
        await asyncio.sleep(60 if completion == "bad" else 0)
        return 1.0

    assert judged(it, timeout=0.2, on_error="zero") == [1.0, 1.0, 0.0, 1.0]


def test_a_limit_may_be_over_before_the_call_begins() -> None:
    """As on a busy machine: nothing is interrupted after it."""
    for _ in range(100):
        with pytest.raises(CallTimeout), time_limit(0.0):
            time.sleep(60)
    assert sum(thread.name == "time limit" for thread in threading.enumerate()) < 5


def test_limit_of_a_call_in_another_thread() -> None:
    """A race trains in threads, where the signal of the main thread interrupts nothing."""

    def busy(completions: list[str]) -> list[float]:
        while True:
            pass

    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(judged, busy, timeout=0.1, on_error="zero").result(60) == [0.0] * 4


TRACED = """
import sys, threading
from rlm_plugins.workers.time_limit import CallTimeout, time_limit

def late():
    try:
        with time_limit(0.1):
            while True:
                pass
    except CallTimeout:
        print("late")

thread = threading.Thread(target=late)
thread.start(), thread.join()
sys.settrace(lambda *_: None); (lambda: None)()
"""


def test_a_limit_leaves_nothing_that_stops_a_tracer() -> None:
    """A debugger, coverage and Hypothesis trace calls: one that CPython could not begin ran for ever."""
    run = subprocess.run([sys.executable, "-c", TRACED], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout == "late\n"


HEAVY = '''
import os, re, sys
from rlm_plugins import hookimpl


def heavy(completions, answer, log_metric=None, *, factor: float = 2.0):
    """Computes, and can do anything but be interrupted."""
    assert log_metric is None, "nobody could hear it"
    for text in completions:
        if text == "hang":
            re.match(r"(a+)+$", "a" * 60 + "b")
        if text == "exit":
            os._exit(0)
        if text == "raise":
            raise ValueError(os.getpid())
    return [float("nan") if text == "nan" else factor * x for text, x in zip(completions, answer)]


def one(completion, answer):
    """Of one completion."""
    return heavy([completion], [answer])[0] + 1


def remembers(completions, trainer_state):
    """Needs what stays here."""
    return [0.0] * len(completions)


@hookimpl
def rlm_rewards():
    return {"heavy": heavy, "one": one, "remembers": remembers}
'''


@pytest.mark.slow
def test_processes_of_its_own_can_be_killed(tmp_path: Path) -> None:
    (tmp_path / "part.py").write_text(HEAVY)
    registry = Registry([tmp_path / "part.py"])
    bound = registry.find("rlm_rewards", "heavy").bind({"factor": 3.0})
    texts = ["1", "2", "hang", "3", "exit", "4", "raise", "5", "nan", "6"]
    given = {"prompts": list("aabbccddee"), "completions": texts, "answer": [1.0] * 10, "completion_ids": [[1]] * 10}
    book = FaultLog()
    reward = Reward("heavy", bound, on_error="skip", timeout=8.0, processes=2)
    assert trl_reward(reward, book)(**given) == [3.0, 3.0, *[None] * 7, 3.0]
    recorded = {(record["sample"], record["fault"].partition("\n")[0]) for record in book.records}
    assert {(2, "gave no answer within 8 s, and was killed"), (8, "returned nan")} <= recorded
    assert (4, "ended its process: out of memory, a crash, or an exit") in recorded
    (raised,) = [problem for sample, problem in recorded if sample == 6]
    assert raised.startswith("raised ValueError: ")
    assert raised != f"raised ValueError: {os.getpid()}"
    reward, book = Reward("one", registry.find("rlm_rewards", "one").bind({}), on_error="zero", processes=1), FaultLog()
    texts = {"prompts": ["p"] * 4, "completions": ["1", "raise", "nan", "2"], "completion_ids": [[1]] * 4}
    assert trl_reward(reward, book)(**texts, answer=[1.0] * 4) == [3.0, 0.0, 0.0, 3.0]
    assert [(record["sample"], record["fault"].split(":")[0]) for record in book.records] == [
        (1, "raised ValueError"),
        (2, "returned nan"),
    ]
    with pytest.raises(RecipeError, match="cannot be sent"):
        check_processes(registry.find("rlm_rewards", "remembers").bind({}), "rewards[0]")
    with pytest.raises(RecipeError, match="asynchronous"):
        check_processes(Part("rlm_rewards", "it", "guest", fails_async).bind({}), "rewards[0]")


RECIPE = """
environment: addition
model: {name: scratch}
rewards: [{name: accuracy, BESIDE}]
algorithm: grpo
"""


def planned(folder: Path, beside: str) -> Reward:
    file = folder / "r.yaml"
    file.write_text(RECIPE.replace("BESIDE", beside))
    return resolve(load(file, []), Registry(), 0).stage.rewards[0]


def test_on_error_is_set_in_the_recipe(tmp_path: Path) -> None:
    reward = planned(tmp_path, "on_error: skip, timeout: 2.5")
    assert (reward.on_error, reward.timeout) == ("skip", 2.5)
    plain = planned(tmp_path, "weight: 1.0")
    assert (plain.on_error, plain.prefetch) == ("stop", True)
    assert not planned(tmp_path, "prefetch: false").prefetch
    for wrong in ("prefetch: 3", "on_error: ignore", "timeout: 0", "timeout: soon"):
        with pytest.raises(RecipeError, match=re.escape(wrong.partition(":")[0])):
            planned(tmp_path, wrong)
    for wrong, expected in (("timeout: -1", "expected more than 0"), ("processes: 65", "expected 64 or less")):
        with pytest.raises(RecipeError, match=expected):
            planned(tmp_path, wrong)


def test_components() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(50), torch.randn(50)
    found = shares({"x": 2 * x, "y": y}, 2 * x + y, torch.ones(50, dtype=torch.bool))
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-5)
    total = torch.stack([2 * x, 2 * x + y])
    assert found["x"] == pytest.approx((torch.cov(total)[0, 1] / torch.cov(total)[1, 1]).item(), rel=1e-4)
    rows = torch.arange(50) % 3 > 0
    assert correlation(x, y, rows) == pytest.approx(torch.corrcoef(torch.stack([x, y])[:, rows])[0, 1].item(), rel=1e-4)
    assert correlation(x, torch.ones(50), rows) is None
    assert shares({"x": torch.ones(3)}, torch.ones(3), torch.ones(3, dtype=torch.bool)) == {}
    assert ties(torch.tensor([1.0, torch.nan, 1.0, 0.0]), torch.tensor([0, 0, 0, 0])) == pytest.approx(1 / 3)
    assert ties(torch.tensor([1.0, 1.0]), torch.tensor([0, 1])) is None
