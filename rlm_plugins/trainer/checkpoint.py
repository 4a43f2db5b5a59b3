"""Checkpoints that are complete or absent, saved where a run can be resumed exactly, with the state of parts.

A process that is killed while it saves leaves the last checkpoint untouched. Plain transformers leaves an incomplete
one, at which the next resume fails.
"""

from __future__ import annotations

import copy
import io
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from peft import set_peft_model_state_dict
from transformers import TrainerCallback

from rlm_plugins.durable import stop_signals
from rlm_plugins.durable.files import file_error, publish, remove, seal
from rlm_plugins.equation.dispatch import attribute_errors, location
from rlm_plugins.equation.rng_state import rng_state, set_rng_state
from rlm_plugins.errors import PartError, RlmError
from rlm_plugins.registry.part import Bound
from rlm_plugins.workers.distributed import from_main_process

_NAME = re.compile(r"checkpoint-(\d+)")
STATE = "trainer_state.json"
STAGED = ".saving"
FSDP_WEIGHTS, FSDP_OPTIMIZER = "pytorch_model_fsdp.bin", "optimizer.bin"
_WRITE_ERRORS = (
    "SafetensorError",
    "PytorchStreamWriter",
    "unexpected pos",
    "write failed",
    "cannot be opened",
    "iostream",
)
"""Texts in the errors of torch and safetensors for a file that cannot be written."""


class DurableCheckpoints:
    """Mixin for a transformers `Trainer`: a checkpoint is written to another folder, sealed with checksums and renamed.

    Attributes:
        owner: The run and the stage, recorded in each checkpoint.
        before_publish: Called on the main process before a checkpoint appears under its name.
        rescales_rates: True if the learning rates of a checkpoint are replaced by the config's.
    """

    owner: str = ""
    rescales_rates: bool = False
    _staged: Path | None = None
    before_publish: Callable[[], None] | None = None

    def _get_output_dir(self, trial: Any = None) -> str:
        return str(self._staged) if self._staged else super()._get_output_dir(trial=trial)  # type: ignore[misc]

    def _save_checkpoint(self, model: Any, trial: Any = None) -> None:
        stage = Path(super()._get_output_dir(trial=trial))  # type: ignore[misc]
        self._staged, name = stage / STAGED, f"checkpoint-{self.state.global_step}"  # type: ignore[attr-defined]
        main, wait = self.args.should_save, self.accelerator.wait_for_everyone  # type: ignore[attr-defined]
        try:
            with stop_signals.current().deferred(), saving(stage / name, self._staged if main else None):
                wait()
                super()._save_checkpoint(model, trial)  # type: ignore[misc]
                if main:
                    self._write_extras(self._staged / name)
                wait()
                if main:
                    seal(self._staged / name, owner=self.owner)
                    if self.before_publish is not None:
                        self.before_publish()
                    _publish(self._staged / name, stage / name, keep=self.args.save_total_limit)  # type: ignore[attr-defined]
            wait()
        finally:
            self._staged = None

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Upload nothing during training: `push_to_hub` uploads the result."""

    def _load_from_checkpoint(self, checkpoint: str, *args: Any, **options: Any) -> None:
        with loading(checkpoint):
            if self._is_gathered(checkpoint):
                load_gathered_weights(self.model, Path(checkpoint))  # type: ignore[attr-defined]
            else:
                super()._load_from_checkpoint(checkpoint, *args, **options)  # type: ignore[misc]

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        whole = not self.is_fsdp_enabled or self.args.optim == "sgd"  # type: ignore[attr-defined]
        with loading(checkpoint):
            if checkpoint and not self.is_deepspeed_enabled and not any(Path(checkpoint).glob("optimizer*")):  # type: ignore[attr-defined]
                # transformers would go on with a new state
                raise FileNotFoundError("the state of the optimizer; DeepSpeed's is loaded by DeepSpeed alone")
            if checkpoint and whole and Path(checkpoint, FSDP_OPTIMIZER).is_file():
                load_gathered_states(self, Path(checkpoint))
            else:
                super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[misc]
        if checkpoint and self.rescales_rates:
            rescale_rates(self)

    def _is_gathered(self, checkpoint: str) -> bool:
        """Return True if a run that FSDP sharded wrote a checkpoint, and this one is not sharded."""
        return Path(checkpoint, FSDP_WEIGHTS).is_file() and not self.is_fsdp_enabled  # type: ignore[attr-defined]

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with loading(checkpoint):
            super()._load_rng_state(checkpoint)  # type: ignore[misc]

    def _run_epoch(self, *args: Any, **options: Any) -> None:
        """Train for an epoch; skip it if resumed at the checkpoint of the last step, so that `on_train_end` runs."""
        checkpoint = options.get("resume_from_checkpoint")
        first = options.get("epoch") == options.get("epochs_trained")
        if checkpoint and first and _is_last_step(Path(checkpoint), self.state):  # type: ignore[attr-defined]
            self.control.should_training_stop = True  # type: ignore[attr-defined]
            return
        self.begin_epoch(options["epoch"])
        super()._run_epoch(*args, **options)  # type: ignore[misc]

    def begin_epoch(self, epoch: int) -> None:
        """Prepare an epoch."""

    def is_safe_point(self) -> bool:
        """Return True if a run can be resumed exactly from the last optimizer step."""
        return True

    def may_abort_step(self) -> bool:
        """Return True if the step in progress can be abandoned: :meth:`save_last_step` restores its start."""
        return False

    def save_last_step(self) -> None:
        """Save the last optimizer step, unless a checkpoint of it exists."""
        if self.state.global_step > latest_step(Path(self.args.output_dir)):  # type: ignore[attr-defined]
            self._save_checkpoint(self.model)  # type: ignore[attr-defined]

    def _write_extras(self, folder: Path) -> None:
        """Write further files into a checkpoint; called on the main process."""


def load_gathered_weights(model: Any, checkpoint: Path) -> None:
    """Load the weights that FSDP gathered from its processes; transformers loads them with FSDP alone."""
    state = torch.load(checkpoint / FSDP_WEIGHTS, map_location="cpu", weights_only=True)
    if hasattr(model, "peft_config"):
        set_peft_model_state_dict(model, state)
    else:
        model.load_state_dict(state)


def load_gathered_states(trainer: Any, checkpoint: Path) -> None:
    """Load optimizer, whose state FSDP stores by the names of the weights, and scheduler."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict

    state = torch.load(checkpoint / FSDP_OPTIMIZER, map_location="cpu", weights_only=True)
    if state["state"]:  # SGD has none, which PyTorch cannot broadcast
        whole = StateDictOptions(full_state_dict=True)
        set_optimizer_state_dict(trainer.model, trainer.optimizer.optimizer, state, options=whole)
    scheduler = trainer.lr_scheduler
    scheduler.load_state_dict(torch.load(checkpoint / "scheduler.pt", weights_only=True))
    for group, rate in zip(trainer.optimizer.param_groups, scheduler.get_last_lr(), strict=True):
        group["lr"] = rate


def loadable(trainer: Any, checkpoint: Path | None) -> str | None:
    """Return a checkpoint that `trainer` can load: of another number of processes a copy that DeepSpeed converts.

    The copy is in the folder of the next checkpoint, which removes it.
    """
    if checkpoint is None or not getattr(trainer, "is_deepspeed_enabled", False):
        return str(checkpoint) if checkpoint else None
    states = [*checkpoint.glob("global_step*/*optim_states.pt")]  # a file per process
    converts = bool(states) and len(states) != trainer.accelerator.num_processes
    settings = trainer.accelerator.state.deepspeed_plugin.deepspeed_config.setdefault("checkpoint", {})
    settings["load_universal"] = converts  # a repeated stage has the config of its first attempt
    if not converts:
        return str(checkpoint)
    copy = checkpoint.parent / STAGED / checkpoint.name
    from_main_process(lambda: _convert(checkpoint, states[0].parent, copy))
    return str(copy)


def _convert(checkpoint: Path, states: Path, copy: Path) -> None:
    from deepspeed.checkpoint import ds_to_universal

    shutil.rmtree(copy.parent, ignore_errors=True)
    copy.mkdir(parents=True)
    for file in checkpoint.iterdir():
        (copy / file.name).symlink_to(file.resolve())
    options = {"num_extract_workers": 1, "num_merge_workers": 1, "keep_temp_folder": False, "strict": True}
    paths = {"input_folder": str(states), "output_folder": str(copy / "universal")}
    with saving(copy), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        ds_to_universal.main(SimpleNamespace(**paths, **options, inject_missing_state=True))


def rescale_rates(trainer: Any) -> None:
    """Set the learning rates that a checkpoint restored to that of the config."""
    scheduler = trainer.lr_scheduler
    bases = getattr(scheduler, "base_lrs", None)
    if not bases or not bases[0]:
        return
    ratio = trainer.args.learning_rate / bases[0]
    scheduler.base_lrs = [rate * ratio for rate in bases]
    scheduler._last_lr = [rate * ratio for rate in scheduler._last_lr]
    for group in trainer.optimizer.param_groups:
        group["lr"], group["initial_lr"] = group["lr"] * ratio, group.get("initial_lr", group["lr"]) * ratio


def _publish(staged: Path, target: Path, keep: int | None) -> None:
    """Move a complete checkpoint to its name, and remove the oldest beyond `keep` and damaged ones of earlier steps."""
    publish(staged, target)
    for old in checkpoints(target.parent)[: -keep if keep else 0]:
        remove(old)
    for damaged in target.parent.glob("checkpoint-*.damaged"):
        step = _NAME.match(damaged.name)
        if step is not None and int(step[1]) <= int(target.name.split("-")[1]):
            remove(damaged)


def _is_last_step(checkpoint: Path, state: Any) -> bool:
    """Return True if training is complete at this checkpoint: all steps done, or stopped early by a callback."""
    if state.global_step >= state.max_steps:
        return True
    saved = json.loads((checkpoint / STATE).read_bytes())
    stopped = saved.get("stateful_callbacks", {}).get("TrainerControl", {}).get("args", {}).get("should_training_stop")
    return bool(stopped) and saved.get("global_step", 0) < saved.get("max_steps", 0) == state.max_steps


@contextmanager
def saving(target: Path, staged: Path | None = None) -> Iterator[None]:
    """Raise errors of the disk as an `RlmError` that names `target`; torch and safetensors have errors of their own.

    Args:
        target: The file or folder that is saved.
        staged: A folder that is empty at the start and absent at the end; None on other than the main process.

    Raises:
        RlmError: It cannot be saved.
    """
    if staged is not None:
        shutil.rmtree(staged, ignore_errors=True)
    try:
        yield
    except OSError as error:
        raise file_error(error, target) from None
    except Exception as error:
        if isinstance(error, RlmError | UnicodeEncodeError):
            raise
        reason = str(error).partition("\n")[0] or type(error).__name__
        is_write_error = any(word in f"{type(error).__name__} {reason}" for word in _WRITE_ERRORS)
        hint = (
            "is the disk full? what was saved before is intact" if is_write_error else "what was saved before is intact"
        )
        raise RlmError(f"cannot be saved: {reason}", where=str(target), hint=hint) from (
            None if is_write_error else error
        )
    finally:
        if staged is not None:
            shutil.rmtree(staged, ignore_errors=True)


@contextmanager
def loading(checkpoint: str | Path | None) -> Iterator[None]:
    """Raise errors of a checkpoint that cannot be loaded as an `RlmError`, without the advice of other libraries."""
    try:
        yield
    except RlmError:
        raise
    except Exception as error:
        reason = next((line for line in str(error).splitlines() if "weights_only" not in line), "not a file of tensors")
        problem = f"the checkpoint cannot be loaded: {type(error).__name__}: {reason}"
        hint = "if recipe and sharding are those of the run, remove this folder: an earlier checkpoint is used then"
        raise RlmError(problem, where=str(checkpoint), hint=hint) from None


def checkpoints(folder: Path) -> list[Path]:
    """Return complete checkpoints in `folder`, oldest first."""
    folders = [p for p in folder.glob("checkpoint-*") if _NAME.fullmatch(p.name)]
    return sorted(folders, key=lambda p: int(p.name.split("-")[1]))


def latest_step(folder: Path) -> int:
    """Return the step of the last complete checkpoint in `folder`; -1 without one."""
    folders = checkpoints(folder)
    return int(folders[-1].name.split("-")[1]) if folders else -1


class SaveWhenBufferIsEmpty(TrainerCallback):  # type: ignore[misc]
    """Delays a save until every buffered completion has been trained on; only then a resume is exact."""

    _is_save_due = False

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Save if a save is due and the buffer is empty."""
        self._is_save_due |= control.should_save
        micro_steps = args.steps_per_generation * args.num_iterations  # that one generation batch serves
        empty = state.global_step * args.gradient_accumulation_steps % micro_steps == 0
        control.should_save = self._is_save_due and empty
        self._is_save_due &= not empty


PARTS_FILE = "parts.pt"
CRITIC = "critic"


class PartState:
    """State of a part with `state_dict` and `load_state_dict`; errors name the part."""

    def __init__(self, part: Bound) -> None:
        self._part = part

    def state_dict(self) -> Any:
        """Return its state."""
        target: Any = self._part.target
        with attribute_errors(self._part):
            return target.state_dict()

    def check(self) -> None:
        """Check that a checkpoint with its state can be loaded."""
        file = io.BytesIO()
        try:
            torch.save(self.state_dict(), file)
            file.seek(0)
            torch.load(file, weights_only=True, map_location="cpu")
        except PartError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            problem = f"its state_dict cannot be kept in a checkpoint ({reason})"
            allowed = "numbers, text, None and tensors, in lists, tuples and dicts"
            raise PartError(problem, where=location(self._part), allowed=allowed) from error

    def load_state_dict(self, state: Any) -> None:
        """Restore a state."""
        target: Any = self._part.target
        with attribute_errors(self._part):
            target.load_state_dict(state)


class PartStates:
    """States that a checkpoint holds beside weights and optimizer: of parts, and of others by name (or None)."""

    def __init__(self, parts: list[Bound], others: Mapping[str, Any]) -> None:
        stateful = [(number, part) for number, part in enumerate(parts) if hasattr(part.target, "state_dict")]
        self.by_name: dict[str, Any] = {f"{number}:{part.part.full_name}": PartState(part) for number, part in stateful}
        self.by_name |= {name: target for name, target in others.items() if target is not None}
        self._snapshot: StepSnapshot | None = None
        self._epoch: StepSnapshot | None = None

    def check(self) -> None:
        """Check that a checkpoint with the states can be loaded."""
        for state in self.by_name.values():
            if isinstance(state, PartState):
                state.check()

    def save(self, folder: Path) -> None:
        """Write the states into a checkpoint."""
        self.check()
        if self.by_name:
            torch.save({name: state.state_dict() for name, state in self.by_name.items()}, folder / PARTS_FILE)

    def load(self, checkpoint: str) -> None:
        """Restore the states of a checkpoint; raise if the file is damaged, or lacks the critic or a trained part."""
        if not self.by_name:
            return
        with loading(Path(checkpoint) / PARTS_FILE):
            saved = torch.load(Path(checkpoint) / PARTS_FILE, weights_only=True)
        if CRITIC in self.by_name and CRITIC not in saved:
            raise RlmError("the checkpoint has no critic: neither its value head nor its trunk", where=checkpoint)
        for name, state in self.by_name.items():
            if name not in saved:
                raise RlmError(f"the checkpoint has no state of '{name}'", where=str(Path(checkpoint) / PARTS_FILE))
            state.load_state_dict(saved[name])

    def forget_snapshot(self) -> None:
        """Discard the snapshots of an earlier call of `train`."""
        self._snapshot = self._epoch = None

    def begin_epoch(self, step: int) -> None:
        """Keep the RNG at the end of step `step`, before an epoch begins: its data loader draws a number."""
        self._epoch = StepSnapshot(step, {})

    def take_snapshot(self, step: int) -> None:
        """Keep RNG and states at the end of optimizer step `step`, once; weights only change with the step."""
        if self._snapshot is None or self._snapshot.step != step:
            restored = {n: x for n, x in self.by_name.items() if n != CRITIC and getattr(x, "in_snapshot", True)}
            self._snapshot = StepSnapshot(step, restored)

    def snapshot_data(self) -> dict[str, Any]:
        """Return `states` of the parts and `rng` at the start of the generation batch; empty without one."""
        if self._snapshot is None:
            return {}
        return {"states": self._snapshot.states_of_parts(), "rng": self._snapshot.rng}

    def restore_snapshot(self, step: int) -> None:
        """Restore RNG and states to the end of optimizer step `step`, if they have been kept since."""
        for snapshot in (self._snapshot, self._epoch):
            if snapshot is not None and snapshot.step == step:
                snapshot.restore()


class StepSnapshot:
    """RNG and states (name → object with a `state_dict`) after `step` steps, restored if the next one fails."""

    def __init__(self, step: int, states: Mapping[str, Any]) -> None:
        self.step, self._targets = step, states
        self._states = {name: copy.deepcopy(target.state_dict()) for name, target in states.items()}
        self.rng = rng_state()

    def states_of_parts(self) -> dict[str, Any]:
        """Return the state of each part: no cache and no prompt source."""
        return {name: state for name, state in self._states.items() if ":" in name}

    def restore(self) -> None:
        """Restore everything."""
        set_rng_state(self.rng)
        for name, state in self._states.items():
            self._targets[name].load_state_dict(state)
