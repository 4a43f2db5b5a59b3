"""An error that ends a stage: the last step is saved, the message says how to go on, or the stage is repeated."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rlm_plugins.durable.stop_signals import Interrupted, current
from rlm_plugins.equation.step import Divergence
from rlm_plugins.errors import RlmError, is_out_of_memory
from rlm_plugins.rewards.fault import Fault
from rlm_plugins.run.folder import Run
from rlm_plugins.stage import Stage
from rlm_plugins.trainer.checkpoint import latest_step

_LOG = logging.getLogger(__name__)
_GENERATES = "_generate_and_score_completions"


@contextmanager
def save_on_failure(trainer: Any) -> Iterator[None]:
    """Save the last step if an error (on every process) or a signal ends the run, unless a weight has changed since."""
    try:
        yield
    except (Exception, Interrupted) as error:
        is_collective = trainer.accelerator.num_processes == 1 or getattr(error, "everywhere", False)
        is_sound = trainer.is_safe_point() and not trainer.is_updating and getattr(error, "is_before_update", True)
        if trainer.state.global_step and is_collective and is_sound:
            traceback.clear_frames(error.__traceback__)  # their tensors, if memory ran out
            try:
                trainer.save_last_step()
                if not isinstance(error, RlmError | Interrupted):  # whose messages say so
                    _LOG.warning("step %d is saved; %s", trainer.state.global_step, current().advice)
            except Exception as unsaved:  # a full disk, for example: the first error is the one to report
                _LOG.warning("the last step could not be saved: %s", unsaved)
        raise


def with_remedy(error: Divergence, run: Run, stage: Stage, last_step: int) -> Divergence:
    """Return a divergence with hints on settings and on how to resume."""
    hints = [error.hint, f"the last good checkpoint is that of step {last_step}" if last_step > 0 else ""]
    rate = "critic" if "of the critic" in error.problem else "trainer"
    hints += [f"lower `{rate}.learning_rate` or `max_grad_norm`", "`on_divergence: back_off` repeats from a checkpoint"]
    if last_step > 0:
        hints += [f"`rlm train {run.folder} --resume` resumes from it"]
    where = ", ".join(filter(None, (f"stage '{stage.name}'", error.where)))
    return Divergence(error.problem, where=where, allowed=error.allowed, hint="; ".join(filter(None, hints)))


def with_hints(run: Run, stage: Stage, fault: Fault) -> Fault:
    """Log the samples of a fault and return it with hints on how to resume."""
    run.log_faults(stage, fault.records)
    hint = [fault.hint, f"the sample is in {run.folder / 'faults.jsonl'}"] if fault.records else [fault.hint]
    if (step := latest_step(stage.folder)) > 0:
        hint.append(f"`rlm train {run.folder} --resume` resumes from step {step}")
    if "on_error" not in fault.hint:
        hint.append("`on_error: skip` beside the reward excludes such completions")
    return fault.replace(hint="; ".join(filter(None, hint)))


def repeated(run: Run, stage: Stage, error: Exception) -> Stage:
    """Return the stage to train in place of one that failed, as a section proposes it; raise the error if none does."""
    for section in stage.sections.values():
        other = section.retry(stage, error)
        if other is not None:
            run.log_line(f"{stage.name}: {_reason(error)}; repeated with {_changed_settings(stage, other)}")
            traceback.clear_frames(error.__traceback__)
            return other
    if not is_out_of_memory(error):
        raise error
    advice = [line for section in stage.sections.values() for line in section.smaller(stage, error)]
    advice = advice or ["lower `per_device_train_batch_size` or `max_completion_length`"]
    if (step := latest_step(stage.folder)) > 0:
        advice.append(f"`rlm train {run.folder} --resume` resumes from step {step}")
    raise RlmError(_reason(error), where=f"stage '{stage.name}'", hint="\n        ".join(advice)) from None


def _reason(error: Exception) -> str:
    phase = "generation" if is_in_generation(error) else "the update"
    return f"out of memory in {phase}: {str(error).partition(chr(10))[0] or type(error).__name__}"


def is_in_generation(error: BaseException) -> bool:
    """Return True if completions were generated or scored where an error was raised."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_code.co_name == _GENERATES for frame, _ in frames)


def _changed_settings(before: Stage, after: Stage) -> str:
    changed = {name: value for name, value in after.settings.items() if before.settings.get(name) != value}
    return ", ".join(f"{name} {value}" for name, value in changed.items())
