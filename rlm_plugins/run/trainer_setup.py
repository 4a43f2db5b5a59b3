"""Set-up and run of every trainer: settings, weights, adapter, checkpoints, result."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlm_plugins.distributed import processes
from rlm_plugins.durable import stop_signals
from rlm_plugins.durable.files import file_error
from rlm_plugins.durable.stop_signals import Interrupted
from rlm_plugins.errors import RecipeError, RlmError
from rlm_plugins.evaluation.vllm_model import TrainingEngine
from rlm_plugins.recipe.adapter_kinds import adapter_config
from rlm_plugins.recipe.trainer_defaults import trainer_defaults
from rlm_plugins.run.capsule_recipe import capsule_recipe
from rlm_plugins.run.fingerprints import digest_of_tokenizer, digest_of_weights
from rlm_plugins.run.integration_errors import integration_errors
from rlm_plugins.run.learning_curve import LearningCurve
from rlm_plugins.run.stage_result import save_result
from rlm_plugins.run.trainer_callbacks import StopAtSafePoint
from rlm_plugins.stage import Stage
from rlm_plugins.trainer.capsule_writer import CapsuleWriter
from rlm_plugins.trainer.checkpoint import saving
from rlm_plugins.trainer.divergence_monitor import DivergenceMonitor, rescale_rates

if TYPE_CHECKING:
    from transformers import PreTrainedModel, Trainer

    from rlm_plugins.estimate.plan import Forecast

_LOG = logging.getLogger(__name__)


def arguments(stage: Stage, **machine: Any) -> Any:
    """Return the trainer's config: our defaults, then the recipe's ``trainer:``, then `machine`."""
    args = forecast(stage, **machine).args
    args.learning_rate *= stage.rate_scale
    return args


def forecast(stage: Stage, **machine: Any) -> Forecast:
    """Return the trainer's config and the resources of a stage.

    If the recipe does not set gradient checkpointing, it is on only if a step would not fit without it.
    """
    from rlm_plugins.estimate.plan import KEY, Forecast

    config = stage.trainer.config_class()
    settings = {**trainer_defaults(), **stage.settings, "output_dir": str(stage.folder), **machine}
    plan = Forecast(stage, config(**settings))
    if KEY not in stage.settings and not plan.needs_checkpointing():
        plan.args = config(**settings, **{KEY: False})
    return plan


def weights(stage: Stage) -> tuple[PreTrainedModel, Any, Any]:
    """Return the model to train, its tokenizer or processor, and its adapter (None: all parameters are trained)."""
    processing_class = stage.source.processing_class()
    model = stage.source.load()
    if stage.record is not None and not stage.results and processes().is_main_process:
        # a later stage starts from the result of an earlier one, which is compared instead
        stage.record(base=digest_of_weights(model), tokenizer=digest_of_tokenizer(processing_class))
    if stage.lora is None:
        return model, processing_class, None
    return model, processing_class, adapter_config(stage.lora)


@contextmanager
def refusals(stage: Stage) -> Iterator[None]:
    """Raise errors of TRL, PEFT or an integration while a trainer is built as a `RecipeError`."""
    import torch

    try:
        with integration_errors(stage.name):
            yield
    except (RlmError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise file_error(error) from None
        problem = f"the trainer cannot be built: {type(error).__name__}: {error}"
        raise RecipeError(problem, where=f"stage '{stage.name}'") from error


def run(trainer: Trainer, stage: Stage, complete: Callable[[Path], None] | None = None) -> None:
    """Train, in a resumed stage from its checkpoint, and save the result.

    Args:
        trainer: A trainer with the mixin `DurableCheckpoints`.
        stage: Its result goes to `stage.output`.
        complete: Writes further files into the folder of the result; called on the main process.
    """
    from transformers.trainer_callback import PrinterCallback

    if stage.replay is not None:
        stage.replay(trainer)
        return
    _check_unsharded_best(trainer, stage)
    if stage.record is not None:
        stage.record(settings=trainer.args.to_dict())
    trainer.remove_callback(PrinterCallback)
    for curve in (watcher for watcher in stage.watchers if isinstance(watcher, LearningCurve)):
        if getattr(trainer.args, "use_vllm", False) and stage.source.processor is None:
            curve.generating_model = lambda _: TrainingEngine(trainer)
    signals = stop_signals.current()
    for callback in (StopAtSafePoint(trainer, signals), *stage.watchers):
        trainer.add_callback(callback)
    trainer.before_publish, trainer.owner = stage.sync, stage.owner
    DivergenceMonitor(trainer, CapsuleWriter(trainer, stage.name, stage.folder, partial(capsule_recipe, stage)))
    if stage.rate_scale != 1:
        trainer._load_optimizer_and_scheduler = rescale_rates(trainer, trainer._load_optimizer_and_scheduler)
    with integration_errors(stage.name), save_on_failure(trainer), signals:
        trainer.train(resume_from_checkpoint=str(stage.checkpoint) if stage.checkpoint else None)
        save_result(trainer, stage, complete)


def _check_unsharded_best(trainer: Any, stage: Stage) -> None:
    """Check that the weights are on one device, if the best ones are kept.

    Raises:
        RlmError: FSDP or DeepSpeed shards them.
    """
    keeps_best = stage.evaluation is not None and stage.evaluation.keep == "best"
    if keeps_best and (trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled):
        problem = "`evaluation.keep: best` is not supported with FSDP or DeepSpeed"
        raise RlmError(problem, where=f"stage '{stage.name}'", hint="train with DDP, or `keep: last`")


@contextmanager
def save_on_failure(trainer: Any) -> Iterator[None]:
    """Save the last optimizer step if a part fails or a signal ends the run, unless a weight has changed since.

    With several processes only if all of them raise.
    """
    try:
        yield
    except (RlmError, Interrupted) as error:
        is_collective = trainer.accelerator.num_processes == 1 or getattr(error, "everywhere", False)
        is_safe = trainer.is_safe_point() if isinstance(error, Interrupted) else error.is_before_update
        if trainer.state.global_step and is_collective and is_safe:
            try:
                trainer.save_last_step()
            except RlmError as unsaved:  # a full disk, for example: the first error is the one to report
                _LOG.warning("the last step could not be saved: %s", unsaved)
        raise


def save_initial_model(model: Any, stage: Stage) -> None:
    """Save a model that was created or merged in memory and set `config._name_or_path` to its folder.

    TRL loads the reference policy of a fully trained model from that path, and a reward model its base.
    """
    if stage.source.origin == model.config._name_or_path:
        return
    start = stage.folder / "start"
    if processes().is_main_process:
        with saving(start):
            model.save_pretrained(start)
    processes().wait_for_everyone()
    model.config._name_or_path = str(start)
