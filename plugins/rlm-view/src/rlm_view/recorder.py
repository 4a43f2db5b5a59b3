"""Observer of the training steps that writes capsules: of every N-th step, and of a step that a fault ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
import yaml
from transformers import TrainerCallback

from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.rng_state import rng_state
from rlm_plugins.recipe.yaml_strict import dump
from rlm_plugins.stage import Stage
from rlm_plugins.trainer.context import TrainerContext
from rlm_plugins.trainer.observer import StepObserver
from rlm_plugins.trainer.rollout import CompletionView
from rlm_plugins.workers.distributed import gather_lists, processes
from rlm_view.capsule import FOLDER, Capsule, TreeEncoder, decode_tree, write_capsule
from rlm_view.tokens import text_of_tokens

_PLUGINS = "plugins"
PREVIOUS_STAGE = "the-stage-before"
"""Placeholder for the model of a later stage; a replay without the model does not load it."""


def capsule_recipe(stage: Stage) -> tuple[str, list[Path]]:
    """Return a stage as a recipe of its own in YAML, and the files with code that it names.

    Files become ``plugins/NAME``. Other absolute paths keep their last name only: a replay reads no data.
    """
    plugins, files = _plugins(stage.folder.parent), []
    for path in plugins.get("load", ()):
        files.append(stage.folder.parent / path)
    unused = {key for key, section in stage.sections.items() if not section.provides}  # a teacher is named by parts
    body = {key: _portable(value, files) for key, value in stage.body.items() if key not in unused}
    body["model"] = {"name": PREVIOUS_STAGE, **(body.get("model") or {})}
    section = {**plugins, "load": [f"{_PLUGINS}/{Path(path).name}" for path in plugins.get("load", ())]}
    non_empty = {key: value for key, value in section.items() if value}
    return dump({**({"plugins": non_empty} if non_empty else {}), **body, "name": "capsule"}), files


def _plugins(run: Path) -> dict[str, Any]:
    """Return the section ``plugins`` of the recipe of a run; empty without one."""
    try:
        document = yaml.safe_load((run / "recipe.yaml").read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    section = document.get("plugins") if isinstance(document, Mapping) else None
    return dict(section) if isinstance(section, Mapping) else {}


def _portable(value: Any, files: list[Path]) -> Any:
    """Return plain data without absolute paths; files with addressed functions are added to `files`."""
    if isinstance(value, Mapping):
        return {key: _portable(x, files) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [_portable(x, files) for x in value]
    if not isinstance(value, str) or not Path(value).is_absolute():
        return value
    file, colon, function = value.rpartition(":")
    if colon and Path(file).is_file():
        files.append(Path(file))
        return f"{_PLUGINS}/{Path(file).name}:{function}"
    return Path(value).name


_LOG = logging.getLogger(__name__)
SCORED = ("advantages", "mask", "returns", "rewards", "token_rewards", "expected_logp", "keep_mask")
"""Results of the scoring phase in a capsule."""


def capsule_of(
    context: TrainerContext,
    generation: Mapping[str, Any],
    update: dict[str, Any],
    snapshot: Mapping[str, Any],
    measured: Mapping[str, Any],
    fault: Mapping[str, str],
) -> Capsule:
    """Return a training step as a capsule; without a fault, all processes call it together.

    Args:
        context: Context that the collaborators share.
        generation: Record of the generation batch: `sampled`, `batch`, `is_shaped`, `scored`, `turns`, `calls`.
        update: Record of the loss phase of this process.
        snapshot: States and RNG at the start of the generation.
        measured: Scalars of the step: `generated_at`, `grad_norm`.
        fault: Fault that ended the step; the capsule then has the data of this process alone. Empty: no fault.
    """
    args = context.args
    scored, sampled, batch = (generation.get(name) for name in ("scored", "sampled", "batch"))
    is_fault, results = bool(fault), {name: getattr(scored, name, None) for name in SCORED}
    updates = [update] if is_fault else _gathered_updates(update)
    rows = batch.completion_ids if batch is not None and batch.completion_ids else None
    if rows is None:
        rows = [list(map(int, ids)) for ids in (sampled or {}).get("completion_ids", ())]
    capsule = Capsule(
        step=context.step + 1,
        stage="",
        processes=context.accelerator.num_processes,
        sampled=sampled if is_fault or sampled is None else _gathered(sampled),
        batch=batch and replace(batch, **dict.fromkeys(("logprobs_of", "generate", "rewards_of", "tokenizer", "log"))),
        is_shaped=generation.get("is_shaped", False),
        scored={name: x for name, x in results.items() if x is not None},
        calls=generation.get("calls", []),
        updates=updates,
        tokens=text_of_tokens(context.tokenizer, rows),
        turns=generation.get("turns", []) if is_fault else gather_lists(generation.get("turns", [])),
        measured={
            "accumulation": args.gradient_accumulation_steps,
            "steps_per_generation": args.steps_per_generation,
            **measured,
            "temperature": float(context.temperature),
        },
        fault=dict(fault),
    )
    capsule.states = snapshot.get("states", {})
    capsule.rng = {"step": snapshot.get("rng"), "scoring": generation.get("scoring_rng")}
    return capsule


def _gathered(sampled: Mapping[str, Any]) -> dict[str, Any]:
    return {name: gather_lists(list(rows)) for name, rows in sampled.items()}


def _gathered_updates(update: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the loss phase of every process; other processes receive tensors on the CPU."""
    if processes().num_processes == 1:
        return [update]
    encoder = TreeEncoder()
    tree = encoder.encode(update, "update")
    return [decode_tree(*encoded) for encoded in gather_lists([(tree, encoder.tensors)])]


class CapsuleRecorder(StepObserver, TrainerCallback):  # type: ignore[misc]
    """Records the generation batch and the optimizer step in progress; writes capsules that are due, and faults.

    Between capsules it only holds references to tensors that the step has anyway: nothing is computed or copied. Of a
    trainer with a loss of its own it records the inputs.

    Args:
        stage: The stage; its capsules go to ``capsules`` in its folder.
        every: Optimizer steps between capsules; 0: only at a fault.
    """

    def __init__(self, stage: Stage, every: int) -> None:
        self._stage, self._every, self._folder = stage, every, stage.folder / FOLDER
        self._document = cache(partial(capsule_recipe, stage))
        self._context: TrainerContext | None = None
        self._grad_norm: Any = None
        self._inputs: list[Any] = []
        self._first_step = -1
        self._generation: dict[str, Any] = {}
        self._micro_batch_rows: list[torch.Tensor] = []
        self._update: dict[str, Any] = {}
        self._step_batch: tuple[Batch, Batch] | None = None

    def attach(self, trainer: Any) -> None:
        self._trainer = trainer
        self._context = trainer.components.context if hasattr(trainer, "components") else None

    @property
    def context(self) -> TrainerContext:
        """Context of a trainer with an equation."""
        assert self._context is not None
        return self._context

    @contextmanager
    def training(self) -> Iterator[None]:
        """Forget what an interrupted call of `train` left."""
        self._forget_step()
        yield

    def requires(self, name: str) -> bool:
        """Return True for lists and log-probs of a batch that becomes a capsule, and for what a step skips."""
        return self.is_due if name == "skipped" else self.is_generation_due

    @property
    def is_due(self) -> bool:
        """True if the current optimizer step becomes a capsule."""
        return self._includes(self.context.step, 1)

    @property
    def is_generation_due(self) -> bool:
        """True if an optimizer step on the current generation batch becomes a capsule."""
        count = self.context.micro_steps_per_generation // self.context.args.gradient_accumulation_steps
        return self._includes(self.context.step, max(count, 1))

    def _includes(self, step: int, count: int) -> bool:
        is_recording = self._every and self.context.is_training
        return bool(is_recording) and (step + count) // self._every > step // self._every

    # -- generation and scoring

    def begin_generation(self) -> None:
        if self.context.is_training:
            self._generation, self._micro_batch_rows, self._first_step = {"calls": []}, [], self.context.step

    def completions(self, inputs: Sequence[Mapping[str, Any]], view: CompletionView) -> None:
        if self.context.is_training:
            names = ("prompts", "completions", "completion_ids")
            self._generation["sampled"] = {"inputs": inputs, **{name: getattr(view, name) for name in names}}

    def scoring(self, batch: Batch, *, is_shaped: bool) -> None:
        if self.context.is_training:
            if self.is_generation_due:
                self._generation["scoring_rng"] = rng_state()
            self._generation |= {"batch": batch, "is_shaped": is_shaped}

    def called(self, name: str, result: Any) -> None:
        """Record the result of a function that a scoring part called, if the batch becomes a capsule."""
        if self.is_generation_due:
            kept = result.detach().clone() if isinstance(result, torch.Tensor) else result
            self._generation["calls"].append((name, kept))

    def scored(self, batch: Batch, turn_ends: Sequence[Sequence[int]]) -> None:
        if self.context.is_training:
            self._generation |= {"scored": batch, "turns": turn_ends}

    def micro_batches(self, micro_batches: Sequence[Mapping[str, Any]]) -> None:
        """Record the rows of each micro-batch as sampled."""
        self._micro_batch_rows = [micro_batch["global_index"] for micro_batch in micro_batches]

    # -- loss

    def micro_batch(self, inputs: Mapping[str, Any]) -> None:
        """Record the inputs of a micro-batch, and the RNG before its forward pass."""
        if self._context is None:
            self._inputs.append(inputs)
            return
        if not self.context.is_training:
            return
        if not self._update:
            self._update = {"micro_batches": [], "rng": [], "portions": [], "first": self.context.micro_step}
        self._update["micro_batches"].append(inputs)
        if self.is_due:
            self._update["rng"].append(rng_state())

    def portion(self, inputs: Mapping[str, Any], batch: Batch, *, has_old_logp: bool) -> None:
        """Record some completions of a micro-batch before their loss is computed."""
        if not self._update or not self.context.is_training:
            return
        if batch.step_batch is not None and (self._step_batch is None or self._step_batch[0] is not batch.step_batch):
            self._step_batch = batch.step_batch, replace(batch.step_batch, log=None)  # type: ignore[arg-type]
        values = None if batch.values is None else batch.values.detach()
        detached = {"logp": batch.logp.detach(), "entropy": batch.entropy.detach(), "values": values}
        recorded = replace(batch, **detached, log=None, step_batch=self._step_batch and self._step_batch[1])  # type: ignore[arg-type]
        entry = {"batch": recorded, "rows": inputs["global_index"], "knows_old": has_old_logp}
        self._update["portions"].append(entry)

    def portion_loss(self, loss: torch.Tensor, skipped: tuple[torch.Tensor, ...] | None) -> None:
        if self._update and self.context.is_training:
            self._update["portions"][-1] |= {"loss": loss.detach(), "skipped": skipped}

    def gradient(self, norm: Any) -> None:
        self._grad_norm = norm

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the optimizer step if it is due, on all processes, before it counts as done."""
        if self._context is not None and self.is_due:
            self._store(self._capsule, main_only=True)
        self._forget_step()

    def _forget_step(self) -> None:
        self._update, self._step_batch, self._grad_norm, self._inputs = {}, None, None, []

    # -- files

    def fault(self, error: Exception) -> None:
        where = getattr(error, "where", "")
        fault = {"kind": type(error).__name__, "problem": getattr(error, "problem", str(error)), "where": where}
        folder = self._store(partial(self._capsule, fault), main_only=getattr(error, "everywhere", False))
        if folder is not None:
            _LOG.warning("the step is stored: `rlm view %s`", folder)

    def _capsule(self, fault: Mapping[str, str] | None = None) -> Capsule:
        """Return the current step as a capsule; without a fault, all processes call it together."""
        if self._context is None:
            updates = [{"micro_batches": self._inputs}]
            step = self._trainer.state.global_step + 1
            return Capsule(step, self._stage.name, updates=updates, fault=dict(fault or {}))
        measured = {
            "generated_at": self._first_step,
            "grad_norm": None if self._grad_norm is None else float(self._grad_norm),
        }
        snapshot = self._trainer.components.states.snapshot_data()
        return capsule_of(self.context, self._generation, self._update_data(), snapshot, measured, fault or {})

    def _store(self, build: Callable[[], Capsule], *, main_only: bool) -> Path | None:
        """Write a capsule and return its path; None if that fails, which is logged and ends no run."""
        rank, is_main = self._trainer.accelerator.process_index, self._trainer.args.should_save
        try:
            capsule = build()
            if main_only and not is_main:
                return None
            capsule.stage = self._stage.name
            name = f"step-{capsule.step}" + ("" if is_main else f"-process-{rank}")
            return write_capsule(self._folder / name, capsule, *self._document())
        except Exception as error:
            _LOG.warning("the step could not be stored in %s: %s", self._folder, error)
            return None

    def _update_data(self) -> dict[str, Any]:
        """Return the loss phase of this process."""
        update = dict(self._update)
        count, total = self.context.args.gradient_accumulation_steps, len(self._micro_batch_rows)
        first = update.get("first", 0) % (total or 1)
        first -= first % count if total and total % count == 0 else 0
        update["deal"] = [self._micro_batch_rows[(first + i) % total] for i in range(count)] if total else []
        return update
