"""Guard around one reward: every failure is reported, and `on_error` of the recipe determines whether the run stops.

TRL trains on a dict's keys, turns NaN and infinity into "no training" silently, and ends with exit code 0 when a
reward calls `sys.exit`. Here each of these is a fault that names the reward, the plugin, the step and the sample.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from rlm_plugins.registry.protocols import Stateful
from rlm_plugins.rewards.fault import Fault
from rlm_plugins.rewards.fault_log import FaultLog
from rlm_plugins.rewards.process_exit import belongs_to_reward
from rlm_plugins.rewards.score_validation import validate_score, validate_scores
from rlm_plugins.stage_settings import Reward

_LOG = logging.getLogger(__name__)
Columns = Mapping[str, Any]
ScoresAndFaults = tuple[dict[int, float | None], list[Fault]]
"""Index → score, and the faults of all other completions."""


class Guard:
    """Caller of one reward that validates its scores and handles its faults.

    Args:
        reward: With its `on_error`.
        call: Calls it with the columns of some completions.
        fault_log: Log of its faults; None: a fault that stops the run is raised at once.
    """

    def __init__(
        self, reward: Reward, call: Callable[[Columns], Awaitable[Any]], fault_log: FaultLog | None = None
    ) -> None:
        self._reward, self._call, self._log = reward, call, fault_log

    async def scores(self, columns: Columns, texts: Sequence[str]) -> list[float | None]:
        """Return a number or None for each completion; where it failed, the recipe's substitute.

        Args:
            columns: As TRL passes them.
            texts: Completions as text.

        Raises:
            Fault: It failed, `on_error` is ``stop``, and there is no log.
        """
        start = time.perf_counter()
        scores, faults = await self._score(columns, range(len(texts)))
        if not isinstance(self._reward.part.target, Stateful):  # a retry would change its state
            if faults and faults[0].retry and not (scores or self._is_isolated(faults)):
                scores, faults = await self._score_by_group(columns, faults[0])
            else:
                faults = [await self._isolate(fault, columns) for fault in faults]
        if self._log is not None:
            self._log.seconds[self._reward.label] = time.perf_counter() - start
        if faults:
            self._handle([fault.with_samples(self._reward.label, columns, texts) for fault in faults])
        substitute = None if self._reward.on_error == "skip" else 0.0
        return [scores.get(row, substitute) for row in range(len(texts))]

    def _is_isolated(self, faults: Sequence[Fault]) -> bool:
        """Return True if the reward was called on each completion alone, and failed on each."""
        return self._reward.part.part.is_per_completion and all(fault.sample is not None for fault in faults)

    async def _score(self, columns: Columns, rows: Sequence[int]) -> ScoresAndFaults:
        """Call the reward on some completions."""
        where = self._location(columns)
        try:
            returned = validate_scores(await self._call(select_completions(columns, rows)), len(rows))
        except BaseException as error:  # neither an exit nor a cancellation may end a run silently
            if not belongs_to_reward(error):
                raise
            return {}, [Fault.from_error(error).replace(rows=rows, where=where)]
        scores: dict[int, float | None] = {}
        failed: dict[int, tuple[Fault, list[int]]] = {}
        for row, score in zip(rows, returned, strict=True):
            try:
                scores[row] = validate_score(score)
            except Fault as fault:  # the same object on several completions: a worker failed on their group
                failed.setdefault(id(fault), (fault, []))[1].append(row)
        return scores, [_of_rows(fault, failed_rows, where, len(rows)) for fault, failed_rows in failed.values()]

    async def _score_by_group(self, columns: Columns, first: Fault) -> ScoresAndFaults:
        """Call the reward group by group after it failed on the batch; it never gets less than a whole group."""
        scores: dict[int, float | None] = {}
        faults: list[Fault] = []
        groups = groups_of(columns["prompts"])
        if len(groups) == 1:
            return {}, [await self._isolate(first, columns)]
        for rows in groups:
            group_scores, failed = await self._score(columns, rows)
            scores |= group_scores
            faults += failed
            if faults and self._reward.on_error == "stop" and not first.invalid_list:
                break
        if first.invalid_list and not scores:  # no group got a list: the fault is of no single completion
            return {}, [first.replace(rows=range(len(columns["completions"])))]
        if not faults:  # it failed on the batch, and on no group
            return scores, [first] if self._reward.on_error == "stop" else [first.replace(rows=())]
        return scores, [await self._isolate(fault, columns) for fault in faults]

    async def _isolate(self, fault: Fault, columns: Columns) -> Fault:
        """Return the fault of a group with the completion that fails alone, if there is one."""
        isolated, any_scored = fault, False
        for row in fault.rows if fault.sample is None and fault.retry else ():
            _, failed = await self._score(columns, [row])
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
        elif self._log is None:  # no training: an interruption that the reward raised may still end the command
            cause = faults[0].__cause__
            raise cause if isinstance(cause, KeyboardInterrupt) else faults[0]
        if self._log is not None:
            self._log.rows[self._reward.label] = rows
            self._log.records += [record for fault in faults for record in fault.records]
            self._log.stop = self._log.stop or (faults[0] if on_error == "stop" else None)
            self._log.skipped |= {*rows} if on_error == "skip" else set()

    def _location(self, columns: Columns) -> str:
        state = columns.get("trainer_state")
        return location_of(self._reward) + (f", step {state.global_step}" if state is not None else "")


def _of_rows(fault: Fault, rows: list[int], where: str, count: int) -> Fault:
    allowed = fault.allowed or (f"a list of {count} numbers (None: does not apply)" if fault.value is not None else "")
    return fault.replace(rows=rows, sample=rows[0] if len(rows) == 1 else None, where=where, allowed=allowed)


def location_of(reward: Reward) -> str:
    """Return label, plugin and file of a reward, for messages."""
    return f"reward '{reward.label}' (plugin '{reward.part.part.plugin}', {reward.part.part.file})"


def groups_of(prompts: Sequence[Any]) -> list[list[int]]:
    """Return the indices of consecutive completions with equal prompts."""
    groups = itertools.groupby(range(len(prompts)), key=lambda row: repr(prompts[row]))
    return [list(rows) for _, rows in groups]


def select_completions(columns: Columns, rows: Sequence[int]) -> dict[str, Any]:
    """Return the columns of some completions; other data stay as they are."""
    count = len(columns["completions"])
    if len(rows) == count:
        return dict(columns)
    selected = dict(columns)
    for name, column in columns.items():
        if isinstance(column, list) and len(column) == count:
            selected[name] = [column[row] for row in rows]
    return selected
