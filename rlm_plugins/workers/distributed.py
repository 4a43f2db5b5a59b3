"""Ranks of the current run, as accelerate counts them, and collectives over Python objects."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from rlm_plugins.errors import RlmError
from rlm_plugins.lazy import torch, transformers

if TYPE_CHECKING:
    from accelerate import PartialState

T = TypeVar("T")


def processes() -> PartialState:
    """Return accelerate's state: rank, number of ranks and device of this process.

    Without an accelerator, `cpu=True` is required: otherwise accelerate sets the number of processes to 1.
    """
    from accelerate import PartialState

    try:
        return PartialState(cpu=not torch.accelerator.is_available())
    except (ValueError, KeyError) as error:
        hint = "unset the variables of a launcher that is not there (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, …)"
        raise RlmError(f"accelerate cannot start: {error}", where="environment", hint=hint) from None


def num_launched() -> int:
    """Return the number of processes that are planned, or that a launcher has started with this one: `WORLD_SIZE`.

    Raises:
        RlmError: It is no number, or left over from another command; or accelerate started one process for `MULTI_CPU`.
    """
    if PLANNED[1] > 1:
        return int(PLANNED[1])
    if {"MASTER_ADDR", "ACCELERATE_USE_CPU"} <= os.environ.keys() and not {"RANK", "WORLD_SIZE"} & os.environ.keys():
        problem = "expected the several processes of the config of accelerate, got one"
        hint = "`accelerate launch --multi_gpu --num_processes N` starts them on CPUs too; or set num_processes: 1"
        raise RlmError(problem, where="environment", hint=hint)
    text = os.environ.get("WORLD_SIZE", "1")
    if text == "1" or (text.isdecimal() and int(text) > 1 and {"RANK", "MASTER_ADDR"} <= os.environ.keys()):
        return int(text)
    problem = f"expected RANK and MASTER_ADDR beside a number of processes, got WORLD_SIZE={text!r}"
    raise RlmError(problem, where="environment", hint="unset WORLD_SIZE, or start with `accelerate launch`")


def rank_slice(count: int) -> slice:
    """Return the slice of `count` items that this rank processes; the slices of all ranks concatenate to all items."""
    state = processes()
    per_rank = -(-count // state.num_processes)
    return slice(per_rank * state.process_index, per_rank * (state.process_index + 1))


def gather_lists(local: list[T]) -> list[T]:
    """Return the concatenation of every rank's list, in rank order, on all ranks."""
    from accelerate.utils import gather_object

    return gather_object(local) if processes().num_processes > 1 else local


def from_main_process(choose: Callable[[], T]) -> T:
    """Call `choose` on the main process and return its result on every process.

    Other processes must not read the files themselves: the main process may just have created some.

    Raises:
        RlmError: Raised by the main process; re-raised on every process.
    """
    if num_launched() == 1:
        return choose()
    from accelerate.utils import broadcast_object_list

    result: list[Any] = [None, None]
    if processes().is_main_process:
        try:
            result[0] = choose()
        except RlmError as error:
            result[1] = error.problem, error.where, error.allowed, error.hint
    value, failed = broadcast_object_list(result)
    if failed is None:
        return value  # type: ignore[no-any-return]
    problem, where, allowed, hint = failed
    raise RlmError(problem, where=where, allowed=allowed, hint=hint)


SHARDING = {"none": "", "fsdp2": "FSDP", "zero2": "DeepSpeed", "zero3": "DeepSpeed"}
"""Kind of sharding → its name in errors."""
PLANNED: list[Any] = ["none", 1]
"""Kind of sharding and number of processes inside :func:`planned`."""


@contextmanager
def planned(num_processes: int, kind: str) -> Iterator[None]:
    """Count processes and shards inside the block as a launch with so many would, without starting any."""
    if num_processes > 1:
        arguments = transformers.TrainingArguments
        counted, arguments.world_size = arguments.world_size, property(lambda self: num_processes)
    PLANNED[:] = kind, num_processes
    try:
        yield
    finally:
        PLANNED[:] = "none", 1
        if num_processes > 1:
            arguments.world_size = counted


def sharding(args: Any) -> str:
    """Return ``FSDP`` or ``DeepSpeed`` if the config of a trainer or of accelerate requests it; otherwise empty."""
    if title := SHARDING[PLANNED[0]]:
        return title
    for name, title in (("fsdp", "FSDP"), ("deepspeed", "DeepSpeed")):
        if getattr(args, name, None) or os.environ.get(f"ACCELERATE_USE_{title.upper()}", "").lower() == "true":
            return title
    return ""


def whole(x: Any) -> Any:
    """Return a tensor that FSDP2 shards as one tensor, by a collective call; any other tensor unchanged."""
    return x.full_tensor() if hasattr(x, "full_tensor") else x


def shutdown() -> None:
    """Destroy the process group; a rank that exits without this may be aborted by its own network threads."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
