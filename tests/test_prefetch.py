"""Prefetched rewards: equal scores, requested earlier."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import torch
from fixtures_trainer import trainer, weights

from rlm_plugins.errors import RlmError
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Part
from rlm_plugins.rewards import processes as ahead
from rlm_plugins.rewards.trl_adapter import trl_reward
from rlm_plugins.stage import Reward

REGISTRY = Registry()
BATCH: dict[str, Any] = {
    "prompts": ["p", "p", "q", "q"],
    "completions": ["1", "2", "3", "4"],
    "trainer_state": SimpleNamespace(global_step=7),
}
LOG: list[str] = []
"""What happened, in order."""


@pytest.fixture(autouse=True)
def _nothing_yet() -> None:
    LOG.clear()


@pytest.fixture
def loop() -> Any:
    """Run an event loop in a thread, as TRL does."""
    running = asyncio.new_event_loop()
    thread = threading.Thread(target=running.run_forever, daemon=True)
    thread.start()
    yield running
    running.call_soon_threadsafe(running.stop)
    thread.join(5)


async def delayed_eighths(completions: list[str]) -> list[float]:
    """Return multiples of 1/8 after a short sleep."""
    LOG.append("asked " + "".join(completions)[:8])
    await asyncio.sleep(0.01)
    if "bad" in completions:
        raise ValueError("no")
    return [sum(map(ord, text)) % 8 / 8 for text in completions]


def called(function: Any, loop: Any, columns: dict[str, Any]) -> list[float | None]:
    """Call an asynchronous reward as TRL does."""
    found: list[float | None] = asyncio.run_coroutine_threadsafe(function(**columns), loop).result(10)
    return found


def reward(**beside: Any) -> Any:
    return trl_reward(Reward("waits", Part("rlm_rewards", "waits", "guest", delayed_eighths).bind({}), **beside))


def test_prefetched_request_is_sent_once(loop: Any) -> None:
    function = reward()
    function.begin(BATCH, loop)
    assert called(function, loop, BATCH) == [1 / 8, 2 / 8, 3 / 8, 4 / 8]
    assert sorted(LOG) == ["asked 12", "asked 34"]
    assert called(function, loop, BATCH) == [1 / 8, 2 / 8, 3 / 8, 4 / 8]
    assert LOG[2:] == ["asked 1234"]


def test_cheap_reward_is_not_prefetched_again(loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost is measured in each batch, for prefetched requests and for the others."""
    function = reward()
    for cheap, calls in ((60.0, 2), (60.0, 1), (0.0, 2), (60.0, 1)):
        monkeypatch.setattr(ahead, "MIN_SECONDS", cheap)
        LOG.clear()
        function.begin(BATCH, loop)
        assert called(function, loop, BATCH) == [1 / 8, 2 / 8, 3 / 8, 4 / 8]
        assert len(LOG) == calls


def test_prefetch_can_be_disabled() -> None:
    """With `prefetch: false` in the recipe, TRL's call is the only request."""
    assert not hasattr(reward(prefetch=False), "begin")
    assert asyncio.run(reward(prefetch=False)(**BATCH)) == [1 / 8, 2 / 8, 3 / 8, 4 / 8]
    assert LOG == ["asked 1234"]


class Asks:
    """Asynchronous reward that uses the policy."""

    def setup(self, policy: Any, results: Any) -> None:
        """Accept the policy and the results without using them."""

    async def __call__(self, completions: list[str]) -> list[float]:
        return [0.0] * len(completions)


def test_reward_that_uses_the_policy_is_not_prefetched() -> None:
    """An early call could disable adapters during a forward pass of the trainer."""
    assert not hasattr(trl_reward(Reward("asks", Part("rlm_rewards", "asks", "guest", Asks).bind({}))), "begin")


def test_remaining_requests_are_sent_together(loop: Any) -> None:
    function = reward()
    function.begin({name: x[:2] if isinstance(x, list) else x for name, x in BATCH.items()}, loop)
    assert called(function, loop, BATCH) == [1 / 8, 2 / 8, 3 / 8, 4 / 8]
    assert sorted(LOG) == ["asked 12", "asked 34"]


def test_score_of_another_request_is_not_used(loop: Any) -> None:
    function = reward()
    function.begin(BATCH, loop)
    other = {**BATCH, "completions": ["4", "3", "2", "1"]}
    assert called(function, loop, other) == [4 / 8, 3 / 8, 2 / 8, 1 / 8]


def test_prefetched_failure_is_a_fault_of_its_sample(loop: Any) -> None:
    function, wrong = reward(), {**BATCH, "completions": ["1", "2", "bad", "4"]}
    function.begin(wrong, loop)
    with pytest.raises(RlmError, match=r"raised ValueError: no for sample 2"):
        called(function, loop, wrong)
    lenient = reward(on_error="zero")
    lenient.begin(wrong, loop)
    assert called(lenient, loop, wrong) == [1 / 8, 2 / 8, 0.0, 0.0]


HEAVY = """
from rlm_plugins import hookimpl

def heavy(completions):
    \"\"\"Heavy.\"\"\"
    with open(COUNT, "a") as calls:
        calls.write("+".join(text[-9:].strip() or "-" for text in completions).replace(" ", "-") + " ")
    return [float(len(text)) for text in completions]

@hookimpl
def rlm_rewards():
    return {"heavy": heavy}
"""


def heavy(folder: Path) -> Reward:
    """Return a reward with one worker process, which appends its calls to the file `calls`."""
    (folder / "heavy.py").write_text(HEAVY.replace("COUNT", repr(str(folder / "calls"))))
    bound = Registry([folder / "heavy.py"]).find("rlm_rewards", "heavy").bind({})
    return Reward("heavy", bound, timeout=60.0, processes=1)


def test_processes_get_one_group_per_request(tmp_path: Path) -> None:
    """Groups that were prefetched are not requested again."""
    function = trl_reward(heavy(tmp_path))
    first = {name: x[:2] if isinstance(x, list) else x for name, x in BATCH.items()}
    function.begin(first, None)
    assert function(**BATCH) == [1.0] * 4
    assert sorted((tmp_path / "calls").read_text().split()) == ["1+2", "3+4"]


def test_run_with_multiprocess_rewards_only(tmp_path: Path) -> None:
    """Nothing is asynchronous, so TRL has no event loop; each group is requested once."""
    reward = heavy(tmp_path)
    fast = REGISTRY.find("rlm_generators", "fast").bind({})
    pieces = {"generator": fast}
    it = trainer(tmp_path, pieces={**pieces, "rewards": [reward], "reward_funcs": [trl_reward(reward)]}, max_steps=1)
    it.train()
    assert len((tmp_path / "calls").read_text().split()) == it.args.generation_batch_size // it.num_generations


def test_idle_process_takes_later_requests(tmp_path: Path) -> None:
    """The first group waits until another process has scored the second."""
    (tmp_path / "patient.py").write_text(
        f"""
import time
from pathlib import Path
from rlm_plugins import hookimpl

def patient(completions):
    \"\"\"Patient.\"\"\"
    second, end = Path({str(tmp_path / "second")!r}), time.monotonic() + 60
    if "3" in completions:
        second.touch()
    while not second.exists() and time.monotonic() < end:
        time.sleep(0.01)
    return [float(second.exists()) for _ in completions]

@hookimpl
def rlm_rewards():
    return {{"patient": patient}}
"""
    )
    bound = Registry([tmp_path / "patient.py"]).find("rlm_rewards", "patient").bind({})
    function = trl_reward(Reward("patient", bound, processes=2))
    first, second = ({name: x[i : i + 2] if isinstance(x, list) else x for name, x in BATCH.items()} for i in (0, 2))
    function.begin(first, None)
    time.sleep(0.2)  # it has been handed over
    function.begin(second, None)
    assert function(**BATCH) == [1.0] * 4


def logged_call(name: str, function: Any, *args: Any, **options: Any) -> Any:
    LOG.append(name)
    found = function(*args, **options)
    LOG.append(f"{name} done")
    return found


GENERATORS = [None, "fast"]


def prefetch_trainer(folder: Path, generator: str | None, overlap: bool, **settings: Any) -> Any:
    """Return a trainer whose groups end at different times."""
    found = generator and REGISTRY.find("rlm_generators", generator).bind({})
    reward = Reward("delayed", Part("rlm_rewards", "delayed", "test", delayed_eighths).bind({}), prefetch=overlap)
    pieces = {"rewards": [reward], "reward_funcs": [trl_reward(reward)], "generator": found, "model": tiny.model()}
    return trainer(folder, learning_rate=1e-3, pieces=pieces, **settings)


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("generator", GENERATORS)
def test_run_prefetches_before_the_forward_pass(
    generator: str | None, overlap: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups are requested during generation if the generator reports finished sequences, otherwise just after it."""
    it = prefetch_trainer(tmp_path, generator, overlap, beta=0.1, max_steps=1)
    watched = [(it, "_generate_single_turn"), (it, "_get_per_token_logps_and_entropies")]
    for owner, name in [*watched, *([(it.reward_funcs[0], "begin")] if overlap else [])]:
        monkeypatch.setattr(owner, name, partial(logged_call, name, getattr(owner, name)))
    it.train()
    happened = [event for event in LOG if not event.startswith("asked")]
    written, read = happened.index("_generate_single_turn done"), happened.index("_get_per_token_logps_and_entropies")
    begun = [i for i, event in enumerate(happened) if event == "begin"]
    groups = it.args.generation_batch_size // it.num_generations
    assert len(begun) == (0 if not overlap else 1 if generator is None else groups + 1)
    assert len([i for i in begun if i < written]) == (groups if overlap and generator else 0)
    assert all(i < read for i in begun)
    calls = sorted("".join(event.split()[1:]) for event in LOG if event.startswith("asked"))
    assert len(calls) == (groups if overlap else 1)


def test_the_weights_are_the_same(tmp_path: Path) -> None:
    runs = [("stock", None, False), ("whole", None, True), ("groups", "fast", True)]
    trained = []
    for name, generator, overlap in runs:
        it = prefetch_trainer(tmp_path / name, generator, overlap, max_steps=2)
        it.train()
        trained.append(weights(it))
    plain, *others = trained
    for other in others:
        for name, x in other.items():
            torch.testing.assert_close(x, plain[name], rtol=0, atol=0)
