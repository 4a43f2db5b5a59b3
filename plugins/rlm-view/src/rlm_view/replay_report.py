"""A stored step under the algorithm of the run or another one, and the gradient of its policy, as data and as text."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from rlm_plugins.equation.dispatch import location
from rlm_plugins.equation.equation import Equation
from rlm_plugins.equation.rng_state import set_rng_state, temporary_rng_state
from rlm_plugins.errors import PartError, RlmError
from rlm_plugins.recipe import Recipe
from rlm_plugins.recipe.compose import compose
from rlm_plugins.recipe.resolve import resolve_algorithm, resolve_rewards
from rlm_plugins.registry import Registry
from rlm_plugins.report.text_layout import columns
from rlm_plugins.rewards.columns import reward_columns
from rlm_plugins.rewards.trl_adapter import compute_scores, trl_reward
from rlm_plugins.run import stage_result
from rlm_plugins.run.recipe_argument import read
from rlm_plugins.stage import RunState
from rlm_view.capsule import Capsule, find_capsule, read_capsule
from rlm_view.replay import Replay, differences_from_record, replay
from rlm_view.tokens import changes, figures


def replay_gradient(folder: Path, capsule: Capsule, recipe: Recipe, registry: Registry) -> dict[str, float]:
    """Return the norm of the policy's gradient at a step, before clipping: `recorded`, `replayed`.

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


Entry = dict[str, Any]
MALFORMED = (LookupError, TypeError, ValueError, AttributeError, RuntimeError, AssertionError)
"""Errors on a capsule that was not written by a run."""
SHOWN = 12
"""Tokens in the table."""


@dataclass(frozen=True)
class Replayed:
    """A capsule, its replay under the algorithm of the run, and that under another.

    Args:
        capsule: The step.
        recorded: Replay under the algorithm of the run.
        changed: Replay under the overrides; None without any.
    """

    capsule: Capsule
    recorded: Replay
    changed: Replay | None = None


def replays(folder: Path, overrides: Sequence[str]) -> Replayed:
    """Replay a capsule.

    Args:
        folder: Its path.
        overrides: ``algorithm=dapo``, ``rewards.accuracy.weight=2``; empty: as in the run.

    Raises:
        RlmError: The capsule is damaged, an override is invalid, or the step fails as it failed in the run.
    """
    capsule = read_capsule(folder)
    recipe, registry = read(folder, [])
    if not capsule.updates or "portions" not in capsule.updates[0]:
        _refuse_other_losses(capsule, recipe, registry)
    if capsule.batch is None:
        _replay_rewards(capsule, recipe, registry)
    recorded = _replay(capsule, recipe, registry, None)
    if not overrides:
        return Replayed(capsule, recorded)
    changed, registry = read(folder, overrides)
    return Replayed(capsule, recorded, _replay(capsule, changed, registry, recipe))


def report(folder: Path, step: int | None, overrides: Sequence[str], *, with_model: bool = False) -> Entry:
    """Return a replay as data.

    Args:
        folder: A run, or a capsule.
        step: Number of the step; None if `folder` is the capsule.
        overrides: As in :func:`replays`.
        with_model: Compute the gradient of the policy too; `folder` must be the run.

    Returns:
        ``step, stage, fault, differences, recorded, replayed, tokens, gradient``.

    Raises:
        RlmError: As :func:`replays`; the weights of the step were not kept.
    """
    path = find_capsule(folder, step)
    result = replays(path, overrides)
    capsule, current = result.capsule, result.changed or result.recorded
    data: Entry = {"step": capsule.step, "stage": capsule.stage, "fault": capsule.fault.get("problem")}
    data["differences"] = differences_from_record(capsule, result.recorded)
    data["recorded"] = figures(result.recorded)
    data["replayed"] = figures(result.changed) if result.changed else None
    data["tokens"] = changes(capsule, result.recorded, current)[:SHOWN]
    data["gradient"] = _gradient(path, capsule) if with_model else None
    return data


def _gradient(path: Path, capsule: Capsule) -> dict[str, float]:
    """Return the norm of the policy's gradient: `recorded` and `replayed`."""
    run = path.parent.parent.parent
    if not (run / "recipe.yaml").is_file():
        hint = "name the run: `rlm view RUN --step STEP --model`"
        raise RlmError("expected a capsule in the folder of its run, which has the weights", where=str(path), hint=hint)

    return replay_gradient(path, capsule, *read(run, []))


def _replay(capsule: Capsule, recipe: Recipe, registry: Registry, origin: Recipe | None) -> Replay:
    """Replay under the algorithm of a recipe; `origin` is that of the run if `recipe` has overrides."""
    _refuse_other_losses(capsule, recipe, registry)
    slots, plain = resolve_algorithm(recipe, registry)
    equation = Equation.from_slots(slots)
    of_a_model = [part for part in equation.parts() if part.setup_targets or "divergence_of" in part.part.data]
    if of_a_model:
        problem = "requires a model, which a capsule does not contain"
        raise RlmError(problem, where=location(of_a_model[0]), hint="`rlm view` shows what is stored of the step")
    weights = _reward_weights(recipe)
    scored = weights if origin is None else _reward_weights(origin)
    is_recorded = origin is None or (scored == weights and resolve_algorithm(origin, registry)[1] == plain)
    if unscored := sorted(weights.keys() - scored.keys()):
        problem = f"the step has no scores of the reward '{unscored[0]}'"
        raise RlmError(problem, where=f"step {capsule.step} of {capsule.stage}", allowed=", ".join(scored))
    try:
        return replay(capsule, equation, is_recorded=is_recorded, weights=weights)
    except PartError as error:
        if origin is None or "does not provide" not in error.problem:
            raise
        problem = f"{error.problem.partition(',')[0]}, which the run did not compute, so the capsule has none"
        raise PartError(problem, where=error.where, hint="override with parts of the same data") from None
    except MALFORMED as error:
        problem = f"expected the contents of a training step: {type(error).__name__}: {error}"
        raise RlmError(problem, where=str(capsule.folder)) from None


def _refuse_other_losses(capsule: Capsule, recipe: Recipe, registry: Registry) -> None:
    """Check that the algorithm of a recipe is an equation."""
    if resolve_algorithm(recipe, registry)[0].get("policy_loss") is None:
        problem = "the trainer of this stage has a loss of its own, which requires the model"
        hint = "its inputs are in the capsule: `rlm_view.capsule.read_capsule`"
        raise RlmError(problem, where=f"step {capsule.step} of {capsule.stage}", hint=hint)


def _reward_weights(recipe: Recipe) -> dict[str, float]:
    """Return label → weight of the rewards of a recipe."""
    entries = recipe.bodies[0].get("rewards") or []
    return {str(entry.get("as") or entry.get("name")): float(entry.get("weight", 1.0)) for entry in entries}


def _replay_rewards(capsule: Capsule, recipe: Recipe, registry: Registry) -> None:
    """Call the rewards as the step called them; what they raised in the run is raised again."""
    sampled = capsule.sampled
    if not sampled:
        problem = f"the step ended before its completions were complete: {capsule.fault.get('problem', '')}"
        raise RlmError(problem, where=str(capsule.folder), hint="nothing of it can be replayed without the model")
    completions = sampled["prompts"], sampled["completions"], sampled["completion_ids"], sampled["inputs"]
    state = _State(capsule.step - 1)
    columns_of_step = reward_columns(
        *completions, trainer_state=state, log_extra=lambda *_: None, log_metric=lambda *_: None
    )
    for reward in resolve_rewards(recipe, registry):
        compute_scores(trl_reward(reward), columns_of_step)
    problem = f"the step ended with an error that the rewards do not repeat: {capsule.fault.get('problem', '')}"
    raise RlmError(problem, where=str(capsule.folder), hint="the error may depend on the machine, or on time")


@dataclass(frozen=True)
class _State:
    global_step: int


_HEAD = ("completion", "token", "text", "∂J/∂log π", "Â")
_NUMBERS = ("gradient", "advantage")


def render(data: Entry) -> str:
    """Return a replay as text."""
    title = f"step {data['step']} of {data['stage']}"
    lines = [f"{title}, which ended with: {data['fault']}" if data["fault"] else title]
    differences = data["differences"]
    lines.append(f"differs from the run: {', '.join(differences)}" if differences else "equal to the run, bit by bit")
    if data["gradient"]:
        lines.append("norm of the gradient: {recorded:.6g} in the run, {replayed:.6g} now".format(**data["gradient"]))
    before, after = data["recorded"], data["replayed"]
    rows = [("", "recorded", "replayed") if after else ("", "recorded")]
    for name in before:
        rows.append((name, _number(before[name]), *([_number(after[name])] if after else [])))
    lines += ["the overrides change none of these numbers"] if after == before else []
    lines += ["", columns(rows, indent="")]
    if data["tokens"]:
        title = "tokens that change most" if after else "tokens with the largest share of the gradient"
        table = [_HEAD, *(_token_row(token, is_change=bool(after)) for token in data["tokens"])]
        lines += ["", f"{title}:", columns(table, indent="  ")]
    return "\n".join(lines)


def _token_row(token: Entry, *, is_change: bool) -> tuple[str, ...]:
    cells = [_number(token[name]) for name in _NUMBERS]
    if is_change:
        cells = [f"{cell} → {_number(token[f'{name}_after'])}" for cell, name in zip(cells, _NUMBERS, strict=True)]
    return (str(token["row"]), str(token["position"]), repr(token["text"])[1:-1], *cells)


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
