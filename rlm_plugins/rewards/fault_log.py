"""Faults of all rewards in one generation batch, and their synchronization over processes."""

from __future__ import annotations

from typing import Any

from rlm_plugins.rewards.fault import Fault


class FaultLog:
    """Log of the rewards of one generation batch on this process.

    Attributes:
        stop: The first fault of a reward that stops the run.
        records: Samples, as ``faults.jsonl`` has them.
        seconds: Label → seconds of its call.
        rows: Label → indices of the completions without a score.
        skipped: Indices of completions to exclude from the loss.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Empty the log for the next generation batch."""
        self.stop: Fault | None = None
        self.records: list[dict[str, Any]] = []
        self.seconds: dict[str, float] = {}
        self.rows: dict[str, list[int]] = {}
        self.skipped: set[int] = set()


def raise_on_all_processes(fault: Fault | None) -> None:
    """Raise the fault of any process on all processes: otherwise the others would wait in a collective.

    Raises:
        Fault: That of this process, else that of another one; with the records of all processes.
    """
    from rlm_plugins.distributed import processes

    faults: list[Any] = [fault and (fault.texts(), fault.records)]
    if processes().num_processes > 1:
        from accelerate.utils import gather_object

        faults = gather_object(faults)
    failed = [(number, *pair) for number, pair in enumerate(faults) if pair]
    if not failed:
        return
    number, texts, _ = failed[0]
    raised = fault or Fault(**{**texts, "where": f"{texts['where']}, on process {number}"})
    raised.records = [{"process": n, **record} for n, _, records in failed for record in records]
    raised.everywhere = True
    raise raised
