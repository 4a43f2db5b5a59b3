"""Adapter of a reward part to TRL's `reward_func`: data by name, time limit, validation, faults and prefetch.

TRL trains on a dict's keys, turns NaN and infinity into "no training" silently, and ends with exit code 0 when a
reward calls `sys.exit`. Here each of these is a fault that names the reward, the plugin, the step and the sample.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.protocols import Stateful
from rlm_plugins.rewards.columns import (
    Columns,
    as_messages,
    call_part,
    call_part_async,
    columns_and_groups,
    groups_of,
    part_data,
    reads_messages,
    select_completions,
    texts_of,
)
from rlm_plugins.rewards.containment import contained
from rlm_plugins.rewards.fault import Fault, FaultLog, allowed, plain_scores, validate_score, validate_scores
from rlm_plugins.rewards.processes import LOCAL_DATA, AsyncReward, ProcessPoolReward
from rlm_plugins.stage import Reward
from rlm_plugins.workers import time_limit
from rlm_plugins.workers.time_limit import LoopThread, is_of_call

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_TESTED: set[str] = set()
"""Rewards whose first batch of messages was tested."""
_TEXT_HINT = (
    "it gets text; for messages annotate `completions: list[list[dict[str, str]]]`, or set `messages: true` beside it"
)
_ScoresAndFaults = tuple[dict[int, float | None], list[Fault]]
"""Index → score, and the faults of all other completions."""
_Calls = Generator[Columns, Any, T]
"""Generator that yields the columns of each call to make, and is sent what the reward returned, or its fault."""


def setup_parts(parts: Iterable[Bound], policy: Any, results: Mapping[str, Path], tokenizer: Any = None) -> None:
    """Call `setup` of the parts that have it, before a policy is trained or evaluated."""
    from rlm_plugins.equation.dispatch import attribute_errors

    for part in parts:
        for target in part.setup_targets:
            has_parameter = "tokenizer" in inspect.signature(target.setup).parameters
            with attribute_errors(part):
                target.setup(policy, results, **({"tokenizer": tokenizer} if has_parameter else {}))


def trl_reward(reward: Reward, fault_log: FaultLog | None = None) -> Callable[..., Any]:
    """Return `reward` as a function that TRL accepts, named by its label; asynchronous if the part is.

    A function that supports prefetching has an attribute ``begin(columns, loop)``, which starts its calls. That holds
    for asynchronous rewards and those with `processes`, unless `prefetch` is off or they call the policy, which is
    generating meanwhile. Its attribute ``by_group`` is True if ``begin`` may get some groups before the others.
    """
    adapter = RewardAdapter(reward, fault_log)
    if not reward.part.is_async:
        return adapter

    async def scores(**columns: Any) -> list[float | None]:
        return await adapter.scores_async(columns)

    function: Any = scores
    function.__name__ = reward.label
    if hasattr(adapter, "begin"):
        function.begin, function.by_group = adapter.begin, adapter.by_group
    return scores


def compute_scores(function: Callable[..., Any], columns: Columns) -> list[float | None]:
    """Return the scores of a function of :func:`trl_reward`, asynchronous or not; outside of any event loop."""
    return time_limit.resolved(function(**columns))  # type: ignore[no-any-return]


class RewardAdapter:
    """Function of one reward that TRL calls: it validates the scores, and handles faults by `on_error`."""

    begin: Callable[[Columns, Any], None]
    by_group: bool

    def __init__(self, reward: Reward, fault_log: FaultLog | None = None) -> None:
        part = reward.part
        self.__name__ = reward.label
        self._reward, self._part, self._log = reward, part, fault_log
        self._where = f"reward '{reward.label}' (plugin '{part.part.plugin}', {part.part.file})"
        self._pool = None if reward.processes is None else ProcessPoolReward(reward)
        self._loop = LoopThread(f"reward {reward.label}")
        self.by_group = not set(part.part.data) & {*LOCAL_DATA}
        self._is_tested = part.is_async or self._where in _TESTED or not reads_messages(reward)
        self._prefetched = AsyncReward(self._call_async, by_group=self.by_group)
        if reward.prefetch and not part.setup_targets:
            if part.is_async:
                self.begin = self._prefetched.begin
            elif (pool := self._pool) is not None:
                self.begin = lambda columns, _: pool.begin(*columns_and_groups(reward, columns))

    def __call__(self, /, **columns: Any) -> list[float | None]:  # a column may be called `self`
        """Return a number or None for each completion; where it failed, the recipe's substitute."""
        calls = self._calls(columns)
        try:
            request = next(calls)
            while True:
                request = calls.send(self._returned(request))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def scores_async(self, columns: Columns) -> list[float | None]:
        """Return the scores of an asynchronous reward, as :meth:`__call__` does."""
        calls = self._calls(columns)
        try:
            request = next(calls)
            while True:
                request = calls.send(await self._returned_async(request))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def _returned(self, columns: Columns) -> Any:
        """Return what the reward returns for some completions, or its fault."""
        try:
            if self._pool is not None:
                return self._pool.call(*columns_and_groups(self._reward, columns))
            with contained(self._where), time_limit.time_limit(self._seconds):
                return plain_scores(call_part(self._part, part_data(self._reward, columns)), _count(columns))
        except BaseException as error:  # neither an exit nor a cancellation may end a run silently
            if not is_of_call(error):
                raise
            fault = Fault.from_error(error)
            is_str = isinstance(error, TypeError | AttributeError) and "str" in str(error) and not fault.hint
            return fault.replace(hint=_TEXT_HINT) if is_str and not reads_messages(self._reward) else fault

    async def _returned_async(self, columns: Columns) -> Any:
        try:
            return await self._prefetched.call(columns)
        except BaseException as error:
            if not is_of_call(error):
                raise
            return Fault.from_error(error)

    async def _call_async(self, columns: Columns) -> Any:
        """Return the scores of an asynchronous reward, called in its own event loop."""
        return await self._loop.run(partial(self._awaited_scores, columns), self._seconds)

    async def _awaited_scores(self, columns: Columns) -> list[Any]:
        returned = await call_part_async(self._part, part_data(self._reward, columns), self._seconds)
        return plain_scores(returned, _count(columns))

    @property
    def _seconds(self) -> float:
        return time_limit.DEFAULT if self._reward.timeout is None else self._reward.timeout

    def _calls(self, columns: Columns) -> _Calls[list[float | None]]:
        """Yield the calls of a batch, and return its scores: one call, and after a failure those that isolate it."""
        start, texts = time.perf_counter(), texts_of(columns)
        scores, faults = yield from self._score(columns, range(len(texts)))
        if not isinstance(self._part.target, Stateful):  # a retry would change its state
            is_isolated = self._part.part.is_per_completion and all(fault.sample is not None for fault in faults)
            if faults and faults[0].retry and not (scores or is_isolated):
                scores, faults = yield from self._score_by_group(columns, faults[0])
            else:
                faults = yield from self._isolate_all(faults, columns)
        if self._log is not None:
            self._log.seconds[self._reward.label] = time.perf_counter() - start
        if not (self._is_tested or faults or isinstance(columns["completions"][0], str)):
            self._is_tested = True
            _TESTED.add(self._where)
            yield from self._test_messages(columns, {*scores.values()})
        if faults:
            self._handle([fault.with_samples(self._reward.label, columns, texts) for fault in faults])
        substitute = None if self._reward.on_error == "skip" else 0.0
        return [scores.get(row, substitute) for row in range(len(texts))]

    def _test_messages(self, columns: Columns, scores: set[float | None]) -> _Calls[None]:
        """Warn if messages all earn the same where text does not: the reward reads messages as if they were text."""
        if len(scores) > 1:
            return
        names = [name for name in columns if name not in ("prompts", "completions", "completion_ids")]
        references = [[*map(str, columns[name])] for name in names if isinstance(columns[name], list)]
        for texts in (texts_of(columns), *(texts for texts in references if len(texts) == _count(columns))):
            as_chat, _ = yield from self._score({**columns, "completions": as_messages(texts)}, range(len(texts)))
            as_text, _ = yield from self._score({**columns, "completions": texts}, range(len(texts)))
            if {*as_chat.values()} == scores and len({*as_text.values()} | scores) > 1:
                problem = "reads messages as if they were text: all completions earn the same, and not so as text"
                hint = "a chat completion is a list of messages: `text = completion[-1]['content']`"
                _LOG.warning("%s %s. hint: %s", self._where, problem, hint)
                return

    def _score(self, columns: Columns, rows: Sequence[int]) -> _Calls[_ScoresAndFaults]:
        """Call the reward on some completions."""
        state = columns.get("trainer_state")
        where = self._where + (f", step {state.global_step}" if state is not None else "")
        returned = yield select_completions(columns, rows)
        try:
            returned = validate_scores(returned, len(rows))
        except Fault as fault:
            return {}, [fault.replace(rows=rows, where=where)]
        scores: dict[int, float | None] = {}
        failed: dict[int, tuple[Fault, list[int]]] = {}
        for row, score in zip(rows, returned, strict=True):
            try:
                scores[row] = validate_score(score)
            except Fault as fault:  # the same object on several completions: a worker failed on their group
                failed.setdefault(id(fault), (fault, []))[1].append(row)
        return scores, [_of_rows(fault, failed_rows, where, len(rows)) for fault, failed_rows in failed.values()]

    def _score_by_group(self, columns: Columns, first: Fault) -> _Calls[_ScoresAndFaults]:
        """Call the reward group by group after it failed on the batch; it never gets less than a whole group."""
        scores: dict[int, float | None] = {}
        faults: list[Fault] = []
        groups = groups_of(columns["prompts"])
        if len(groups) == 1:
            return {}, (yield from self._isolate_all([first], columns))
        for rows in groups:
            group_scores, failed = yield from self._score(columns, rows)
            scores |= group_scores
            faults += failed
            if faults and self._reward.on_error == "stop" and not first.invalid_list:
                break
        if first.invalid_list and not scores:  # no group got a list: the fault is of no single completion
            return {}, [first.replace(rows=range(_count(columns)))]
        if not faults:  # it failed on the batch, and on no group
            return scores, [first] if self._reward.on_error == "stop" else [first.replace(rows=())]
        return scores, (yield from self._isolate_all(faults, columns))

    def _isolate_all(self, faults: Sequence[Fault], columns: Columns) -> _Calls[list[Fault]]:
        isolated = []
        for fault in faults:
            isolated.append((yield from self._isolate(fault, columns)))
        return isolated

    def _isolate(self, fault: Fault, columns: Columns) -> _Calls[Fault]:
        """Return the fault of a group with the completion that fails alone, if there is one."""
        isolated, any_scored = fault, False
        for row in fault.rows if fault.sample is None and fault.retry else ():
            _, failed = yield from self._score(columns, [row])
            if failed and isolated is fault and type(failed[0].__cause__) is type(fault.__cause__):
                details = {name: getattr(failed[0], name) for name in ("problem", "allowed", "value")}
                isolated = fault.replace(sample=row, **details)
            any_scored |= not failed
            if isolated is not fault and (any_scored or not fault.invalid_list):
                return isolated
        return fault

    def _handle(self, faults: list[Fault]) -> None:
        """Raise, log or warn, by `on_error`."""
        on_error, rows = self._reward.on_error, sorted({row for fault in faults for row in fault.rows})
        if on_error != "stop":
            _LOG.warning("%s\n  on_error: %s, for %d completions", faults[0], on_error, len(rows))
        elif self._log is None:
            raise faults[0]
        if self._log is not None:
            self._log.rows[self._reward.label] = rows
            self._log.records += [record for fault in faults for record in fault.records]
            self._log.stop = self._log.stop or (faults[0] if on_error == "stop" else None)
            self._log.skipped |= {*rows} if on_error == "skip" else set()


def _count(columns: Columns) -> int:
    return len(columns["completions"])


def _of_rows(fault: Fault, rows: list[int], where: str, count: int) -> Fault:
    expected = fault.allowed or (allowed(count) if fault.value is not None else "")
    return fault.replace(rows=rows, sample=rows[0] if len(rows) == 1 else None, where=where, allowed=expected)
