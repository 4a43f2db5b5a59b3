"""Replay of a capsule with its model: the gradient of the policy at that step."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from rlm_plugins.equation.rng_state import set_rng_state, temporary_rng_state
from rlm_plugins.errors import RlmError
from rlm_plugins.recipe import Recipe
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry
from rlm_plugins.run import stage_result
from rlm_plugins.stage import RunState
from rlm_view.capsule import Capsule


def replay_gradient(folder: Path, capsule: Capsule, recipe: Recipe, registry: Registry) -> dict[str, float]:
    """Return the norm of the policy's gradient at a step, before clipping: `recorded`, `replayed`.

    Args:
        folder: Path of the capsule in the folder of its run.
        capsule: The step.
        recipe: That of the run.
        registry: Supplies its parts.

    Raises:
        RlmError: The weights at the start of the step were not kept, or several processes trained.
    """
    gradients = policy_gradient(folder, capsule, recipe, registry)
    norm = torch.nn.utils.get_total_norm(list(gradients.values()))
    return {"recorded": float(capsule.measured.get("grad_norm") or torch.nan), "replayed": float(norm)}


def policy_gradient(folder: Path, capsule: Capsule, recipe: Recipe, registry: Registry) -> dict[str, torch.Tensor]:
    """Return the gradient of each trained weight of the policy at a step, before clipping."""
    run, stage_folder = folder.parent.parent.parent, folder.parent.parent
    if capsule.processes > 1 or not capsule.updates or "portions" not in capsule.updates[0]:
        problem = "the gradient can be replayed for steps of one process with an algorithm"
        raise RlmError(problem, where=str(folder), hint="leave out --model")
    checkpoint = stage_folder / f"checkpoint-{capsule.step - 1}"
    if capsule.step > 1 and not checkpoint.is_dir():
        checkpoints = ", ".join(sorted(path.name for path in stage_folder.glob("checkpoint-*"))) or "none"
        hint = "`trainer.save_steps` and `capsule.every` that fit: a checkpoint right before the capsule"
        raise RlmError(
            f"expected {checkpoint.name}, the weights at the start of the step",
            where=str(stage_folder),
            allowed=checkpoints,
            hint=hint,
        )
    stages = stage_result.connected(compose(recipe, registry), run)
    stage = next(stage for stage in stages if stage.name == stage_folder.name)
    with tempfile.TemporaryDirectory() as scratch, temporary_rng_state():
        scratch_stage = replace(stage, place=replace(stage.place, folder=Path(scratch)))
        return _compute(stage.trainer.build(scratch_stage, RunState()), capsule, checkpoint)


def _compute(trainer: Any, capsule: Capsule, checkpoint: Path) -> dict[str, torch.Tensor]:
    """Run the forward and backward passes of a step on a trainer that has not begun; return the gradients."""
    update, model = capsule.updates[0], trainer.model
    if capsule.step > 1:
        trainer._load_from_checkpoint(str(checkpoint))
        trainer.components.states.load(str(checkpoint))
    model.train()
    trainer.state.global_step = capsule.step - 1
    trainer.current_gradient_accumulation_steps = capsule.measured["accumulation"]
    device = trainer.accelerator.device
    inputs = [_on_device(micro_batch, device) for micro_batch in update["micro_batches"]]
    trainer._buffered_inputs, trainer._step = inputs, 0
    for number, micro_batch in enumerate(inputs):
        if number < len(update["rng"]):
            set_rng_state(update["rng"][number])
        trainer.accelerator.gradient_state._set_sync_gradients(number == len(inputs) - 1)
        trainer.accelerator.backward(trainer.components.loss.of_micro_batch(model, micro_batch))
        trainer._step += 1
    return {name: w.grad.detach().clone() for name, w in model.named_parameters() if w.grad is not None}


def _on_device(value: Any, device: torch.device) -> Any:
    if isinstance(value, dict):
        return {name: _on_device(x, device) for name, x in value.items()}
    if isinstance(value, list):
        return [_on_device(x, device) for x in value]
    return value.to(device) if isinstance(value, torch.Tensor) else value
