"""The faults of one generation: written down reward by reward, then known to every process at once."""

from __future__ import annotations

from typing import Any

from rlm_plugins.rewards.fault import Fault


class Faults:
    """What happened in the rewards of one generation on this process.

    Attributes:
        stop: The first fault of a reward that stops the run.
        records: The samples, as ``faults.jsonl`` keeps them.
        seconds: Label → seconds its call took.
        rows: Label → the rows it has no score for.
        skipped: Rows that are to teach nothing.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forgets them: the next generation begins."""
        self.stop: Fault | None = None
        self.records: list[dict[str, Any]] = []
        self.seconds: dict[str, float] = {}
        self.rows: dict[str, list[int]] = {}
        self.skipped: set[int] = set()


def agree(fault: Fault | None) -> None:
    """Raises the fault of any process on all of them: nobody waits for one that has gone.

    Raises:
        Fault: The own one; else that of another process. Its records are those of all.
    """
    from rlm_plugins.distributed import processes

    told: list[Any] = [fault and (fault.place(), fault.records)]
    if processes().num_processes > 1:
        from accelerate.utils import gather_object

        told = gather_object(told)
    failed = [(number, *said) for number, said in enumerate(told) if said]
    if not failed:
        return
    number, place, _ = failed[0]
    raised = fault or Fault(**{**place, "where": f"{place['where']}, on process {number}"})
    raised.records = [{"process": n, **record} for n, _, records in failed for record in records]
    raised.everywhere = True
    raise raised
