"""The checkpoint at which a stage resumes: the newest valid one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from rlm_plugins.durable.files import file_errors, remove
from rlm_plugins.durable.sealed import CHECKSUMS, damages, is_sealed, owner_of
from rlm_plugins.errors import RlmError
from rlm_plugins.trainer.checkpoint import STATE, checkpoints


def valid_checkpoint(stage: Path, log_line: Callable[[str], None], *, owner: str = "") -> Path | None:
    """Return the newest valid checkpoint of a stage; damaged ones are renamed and reported.

    Args:
        stage: Folder of the stage.
        log_line: Called with one line per damaged checkpoint.
        owner: As recorded in the checkpoints of this run and stage; empty: any.

    Raises:
        RlmError: There are checkpoints, and all are damaged.
    """
    damages_found: list[str] = []
    for checkpoint in reversed(checkpoints(stage)):
        reasons = reasons_against(checkpoint, owner=owner)
        if not reasons:
            if damages_found:
                log_line(f"{stage.name}: {'; '.join(damages_found)}; resuming from {checkpoint.name}")
            return checkpoint
        damages_found.append(f"{checkpoint.name} is damaged ({', '.join(reasons)})")
        _rename_damaged(checkpoint)
    damaged = sorted(stage.glob("checkpoint-*.damaged"))
    if not damaged:
        return None
    problem = "; ".join(damages_found) or f"{', '.join(folder.name for folder in damaged)}: damaged"
    hint = f"no sound checkpoint is left; to start the stage again, remove {stage}"
    raise RlmError(problem, where=str(stage), hint=hint)


def _rename_damaged(checkpoint: Path) -> None:
    with file_errors(checkpoint, "renamed"):
        damaged = checkpoint.with_name(f"{checkpoint.name}.damaged")
        remove(damaged)
        checkpoint.rename(damaged)


def reasons_against(checkpoint: Path, *, owner: str = "") -> list[str]:
    """Return the reasons why a checkpoint cannot be used; empty if it is valid."""
    if checkpoint.is_symlink() or not checkpoint.is_dir():
        return ["it is not a folder"]
    if not is_sealed(checkpoint):
        return [f"{CHECKSUMS} is missing"]
    return damages(checkpoint) or _of_another_run(checkpoint, owner) or _wrong_step(checkpoint)


def _of_another_run(checkpoint: Path, owner: str) -> list[str]:
    """Return a reason if the checkpoint was copied from another run or stage; its checksums are valid then."""
    recorded = owner_of(checkpoint)
    return ["it was saved by another run or stage"] if owner and recorded and recorded != owner else []


def _wrong_step(checkpoint: Path) -> list[str]:
    """Return a reason if the state of the trainer is not that of the step in the name of the folder."""
    try:
        step = json.loads((checkpoint / STATE).read_bytes())["global_step"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return [f"{STATE} cannot be read"]
    return [] if f"checkpoint-{step}" == checkpoint.name else [f"{STATE} is that of step {step}"]
