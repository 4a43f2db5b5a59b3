"""A guard around one reward: nothing it does is silent, and the recipe says whether the run stops for it.

TRL trains on a dict's keys, turns NaN and infinity into "no training" without a word, and ends with exit code 0 when
a reward calls `sys.exit`. Here each of these is a fault that names the reward, the plugin, the step and the sample.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from rlm_plugins.registry.protocols import Stateful
from rlm_plugins.rewards.fault import Fault
from rlm_plugins.rewards.fault_log import Faults
from rlm_plugins.rewards.score_validation import listed, number
from rlm_plugins.stage import Reward

_LOG = logging.getLogger(__name__)
Columns = Mapping[str, Any]
Said = tuple[dict[int, float | None], list[Fault]]
"""Row → score, and why the other rows have none."""


class Guard:
    """Asks one reward about a batch, and sees to what it says.

    Args:
        reward: With its `on_error`.
        ask: Calls it with the columns of some rows.
        book: Where faults are written down; None: one that stops the run is raised at once.
    """

    def __init__(self, reward: Reward, ask: Callable[[Columns], Awaitable[Any]], book: Faults | None = None) -> None:
        self._reward, self._ask, self._book = reward, ask, book

    async def scores(self, columns: Columns, texts: Sequence[str]) -> list[float | None]:
        """A number or None for each row; where it failed, what the recipe wants in its place.

        Args:
            columns: As TRL hands them over.
            texts: The completions as text.

        Raises:
            Fault: It failed, `on_error` is ``stop``, and there is no book.
        """
        began = time.perf_counter()
        scores, faults = await self._answers(columns, range(len(texts)))
        if not isinstance(self._reward.part.target, Stateful):  # asking again would go into its memory
            if faults and faults[0].narrow and not (scores or self._is_sure(faults)):
                scores, faults = await self._group_by_group(columns, faults[0])
            else:
                faults = [await self._closer(fault, columns) for fault in faults]
        if self._book is not None:
            self._book.seconds[self._reward.label] = time.perf_counter() - began
        if faults:
            self._see_to([fault.seen(self._reward.label, columns, texts) for fault in faults])
        instead = None if self._reward.on_error == "skip" else 0.0
        return [scores.get(row, instead) for row in range(len(texts))]

    def _is_sure(self, faults: Sequence[Fault]) -> bool:
        """Whether each row was asked about alone, and failed."""
        return self._reward.part.part.by_row and all(fault.sample is not None for fault in faults)

    async def _answers(self, columns: Columns, rows: Sequence[int]) -> Said:
        """What it says about some rows."""
        where = self._where(columns)
        try:
            said = listed(await self._ask(some(columns, rows)), len(rows))
        except (Exception, SystemExit, asyncio.CancelledError) as error:  # none of them may end a run quietly
            return {}, [Fault.of(error).but(rows=rows, where=where)]
        scores: dict[int, float | None] = {}
        failed: dict[int, tuple[Fault, list[int]]] = {}
        for row, score in zip(rows, said, strict=True):
            try:
                scores[row] = number(score)
            except Fault as fault:  # one of several rows: a process that failed on a group
                failed.setdefault(id(fault), (fault, []))[1].append(row)
        return scores, [_of_rows(fault, its, where, len(rows)) for fault, its in failed.values()]

    async def _group_by_group(self, columns: Columns, whole: Fault) -> Said:
        """The same after the whole batch failed: a reward is called with whole groups, and does not see the others."""
        scores: dict[int, float | None] = {}
        faults: list[Fault] = []
        groups = groups_of(columns["prompts"])
        if len(groups) == 1:
            return {}, [await self._closer(whole, columns)]
        for rows in groups:
            some, failed = await self._answers(columns, rows)
            scores |= some
            faults += failed
            if faults and self._reward.on_error == "stop" and not whole.whole:
                break
        if whole.whole and not scores:  # it is no list whoever is asked about
            return {}, [whole.but(rows=range(len(columns["completions"])))]
        if not faults:  # it failed once, and not again
            return scores, [whole] if self._reward.on_error == "stop" else [whole.but(rows=())]
        return scores, [await self._closer(fault, columns) for fault in faults]

    async def _closer(self, fault: Fault, columns: Columns) -> Fault:
        """The fault of a group with the sample that fails alone, if one does."""
        found, answered = fault, False
        for row in fault.rows if fault.sample is None and fault.narrow else ():
            _, failed = await self._answers(columns, [row])
            if failed and found is fault and type(failed[0].__cause__) is type(fault.__cause__):
                alone = {name: getattr(failed[0], name) for name in ("problem", "allowed", "value")}
                found = fault.but(sample=row, **alone)
            answered |= not failed
            if found is not fault and (answered or not fault.whole):
                return found
        return fault

    def _see_to(self, faults: list[Fault]) -> None:
        """Raises, writes down or warns, as the recipe wants."""
        policy, rows = self._reward.on_error, sorted({row for fault in faults for row in fault.rows})
        if policy != "stop":
            _LOG.warning("%s\n  on_error: %s, for %d rows", faults[0], policy, len(rows))
        elif self._book is None:
            raise faults[0]
        if self._book is not None:
            self._book.rows[self._reward.label] = rows
            self._book.records += [record for fault in faults for record in fault.records]
            self._book.stop = self._book.stop or (faults[0] if policy == "stop" else None)
            self._book.skipped |= {*rows} if policy == "skip" else set()

    def _where(self, columns: Columns) -> str:
        state, part = columns.get("trainer_state"), self._reward.part.part
        step = f", step {state.global_step}" if state is not None else ""
        return f"reward '{self._reward.label}' (plugin '{part.plugin}', {part.file}){step}"


def _of_rows(fault: Fault, rows: list[int], where: str, count: int) -> Fault:
    allowed = fault.allowed or (f"a list of {count} numbers (None: does not apply)" if fault.value is not None else "")
    return fault.but(rows=rows, sample=rows[0] if len(rows) == 1 else None, where=where, allowed=allowed)


def groups_of(prompts: Sequence[Any]) -> list[list[int]]:
    """Rows in a row that answer one prompt."""
    runs = itertools.groupby(range(len(prompts)), key=lambda row: repr(prompts[row]))
    return [list(rows) for _, rows in runs]


def some(columns: Columns, rows: Sequence[int]) -> dict[str, Any]:
    """The columns of some rows; what is no column stays."""
    count = len(columns["completions"])
    if len(rows) == count:
        return dict(columns)
    return {n: [x[row] for row in rows] if isinstance(x, list) and len(x) == count else x for n, x in columns.items()}
