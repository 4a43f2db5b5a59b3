"""Rewards that fail, exit or change the process: each fault names the reward, and process state is restored."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hostile_rewards import CHANGES, HANGS, RAISES, RETURNS, SCORES, RaisingFloat, fork

from rlm_plugins.registry.part import Part
from rlm_plugins.rewards import containment, process_state, reward_loop, trl_adapter
from rlm_plugins.rewards.fault_log import FaultLog
from rlm_plugins.rewards.state_item import StateItem
from rlm_plugins.rewards.trl_adapter import trl_reward
from rlm_plugins.stage_settings import Reward


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
    changed: list[str] = []
    with process_state.unchanged(changed.extend):
        yield
    # only root may raise the priority again
    lasting = [name for name in changed if process_state.NOT_RESTORED not in name]
    assert set(lasting) <= {"the standard streams"}, f"left behind: {changed}"  # reopened, but other objects
    assert not sys.stdout.closed
    assert not sys.stderr.closed


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
def test_changes_are_undone_and_reported(
    cases: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Callable[[], Any]] = []

    def it(completions: list[str]) -> list[float]:
        calls.pop()()
        return [1.0] * len(completions)

    for stream in ("stdout", "stderr"):  # those of pytest stay open
        monkeypatch.setattr(sys, stream, io.TextIOWrapper(io.FileIO(os.dup(2), "wb")))
    for name, (change, word) in CHANGES.items():
        calls[:] = [change]
        containment._reported.clear()
        caplog.clear()
        with cases(name), nothing_changes(), caplog.at_level(logging.WARNING):
            assert scored(it, batch(), FaultLog()) == [1.0] * 4
            assert f"reward 'it' (plugin 'guest', {__file__}) changed" in caplog.text
            assert word in caplog.text


@pytest.mark.faults(group="F6")
def test_data_of_the_trainer_are_unchanged(cases: Any, caplog: pytest.LogCaptureFixture) -> None:
    def state(completions: list[str], trainer_state: Any) -> list[float]:
        trainer_state.global_step = 10**6
        trainer_state.max_steps = 0
        return [1.0] * 4

    def lists(prompts: Any, completions: Any, completion_ids: Any, answer: Any, **_: Any) -> list[float]:
        prompts[0][0]["content"] = "changed"
        completion_ids[0].append(9)
        answer[0]["gold"].append(9)
        for given in (prompts, completions, completion_ids, answer):
            given.clear()
        return [1.0] * 4

    for function in (state, lists):
        with cases(function.__name__), nothing_changes(), caplog.at_level(logging.WARNING):
            data = batch()
            assert scored(function, data, FaultLog()) == [1.0] * 4
            assert data == batch()
    assert "changed trainer_state.global_step, trainer_state.max_steps; restored" in caplog.text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.faults(group="F6")
def test_a_forked_copy_does_not_train(cases: Any) -> None:
    def it(completions: list[str]) -> list[float]:
        fork()
        return [1.0] * 4

    with cases("fork"):
        pid = os.getpid()
        assert scored(it, batch(), FaultLog()) == [1.0] * 4
        assert os.getpid() == pid


@pytest.mark.faults(group="F6")
def test_hanging_rewards_end_at_their_timeout(cases: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trl_adapter, "DEFAULT", 0.2)
    monkeypatch.setattr(reward_loop, "BLOCKED", 0.2)
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


def test_state_is_read_by_every_item() -> None:
    """An unchanged item reports no change, and one that cannot be read is left out."""
    changed: list[str] = []
    torch.backends.cuda.matmul.fp32_precision = "tf32"  # the setting for all backends then raises when it is read
    try:
        with process_state.unchanged(changed.extend):
            pass
        with pytest.raises(RuntimeError, match="mix of the legacy and new"):
            torch.get_float32_matmul_precision()
    finally:
        torch.backends.cuda.matmul.fp32_precision = "none"
    assert changed == []
    unread = [item.name for item in process_state.STATE_ITEMS if not is_read(item)]
    assert unread == []


def is_read(item: StateItem) -> bool:
    with contextlib.suppress(Exception):
        return bool(item.is_equal(item.read(), item.read()))
    return False


@pytest.mark.faults(group="F6")
def test_what_cannot_be_restored_is_said(cases: Any, caplog: pytest.LogCaptureFixture, monkeypatch: Any) -> None:
    """A process may lower its priority, and only root may raise it."""

    def refused(*_: Any) -> None:
        raise PermissionError

    def it(completions: list[str]) -> list[float]:
        monkeypatch.setattr(os, "getpriority", lambda *_: 19)
        return [1.0] * 4

    monkeypatch.setattr(os, "setpriority", refused)
    with cases("nice without the right to undo it"), caplog.at_level(logging.WARNING):
        containment._reported.clear()
        assert scored(it, batch(), FaultLog()) == [1.0] * 4
        assert "changed the priority of the process (cannot be restored); all else is restored" in caplog.text
