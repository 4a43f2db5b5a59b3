"""The work around every trainer: settings, weights, adapter, checkpoints, result."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlm_plugins.data.tokenizer_check import check_tokenizer
from rlm_plugins.errors import RecipeError, RlmError
from rlm_plugins.recipe.trainer_defaults import trainer_defaults
from rlm_plugins.registry.protocols import product_of
from rlm_plugins.specs import ModelSpec
from rlm_plugins.stage import Stage
from rlm_plugins.trainer.checkpoint import checkpoints

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer

    from rlm_plugins.estimate.plan import Forecast

_LOG = logging.getLogger(__name__)


def arguments(stage: Stage, **machine: Any) -> Any:
    """Return the trainer's config: our defaults, then the recipe's ``trainer:``, then `machine`."""
    return forecast(stage, **machine).args


def forecast(stage: Stage, **machine: Any) -> Forecast:
    """Return the trainer's config and the resources of a stage.

    If the recipe does not set gradient checkpointing, it is on only if a step would not fit without it.
    """
    from rlm_plugins.estimate.plan import KEY, Forecast

    config = stage.engine.config_class()
    settings = {**trainer_defaults(), **stage.settings, "output_dir": str(stage.folder), **machine}
    plan = Forecast(stage, config(**settings))
    if KEY not in stage.settings and not plan.needs_checkpointing():
        plan.args = config(**settings, **{KEY: False})
    return plan


def weights(stage: Stage) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, Any]:
    """Return the model to train, its tokenizer, and the LoRA config (None: all parameters are trained)."""
    tokenizer = stage.source.tokenizer()
    check_tokenizer(tokenizer, next(iter(stage.environment_spec.train)))
    model = stage.source.load()
    if stage.lora is None:
        return model, tokenizer, None
    from peft import LoraConfig

    return model, tokenizer, LoraConfig(**{"task_type": "CAUSAL_LM", **stage.lora})


@contextmanager
def refusals(stage: Stage) -> Iterator[None]:
    """Raise errors of TRL, PEFT or an integration while a trainer is built as a `RecipeError`."""
    import torch

    try:
        yield
    except (RlmError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        problem = f"the trainer cannot be built: {type(error).__name__}: {error}"
        raise RecipeError(problem, where=f"stage '{stage.name}'") from error


def run(trainer: Trainer, stage: Stage) -> None:
    """Train, in a resumed stage from the last checkpoint, and save the result."""
    from transformers.trainer_callback import PrinterCallback

    trainer.remove_callback(PrinterCallback)
    for callback in stage.watchers:
        trainer.add_callback(callback)
    available = checkpoints(stage.folder) if stage.resume else []
    with save_on_failure(trainer):
        trainer.train(resume_from_checkpoint=str(available[-1]) if available else None)
    trainer.save_model(str(stage.output))
    if trainer.args.should_save:
        trainer.processing_class.save_pretrained(stage.output)
    trainer.accelerator.wait_for_everyone()


@contextmanager
def save_on_failure(trainer: Any) -> Iterator[None]:
    """Save the last optimizer step if a part fails; with several processes only if all of them raise."""
    try:
        yield
    except RlmError as error:
        single_process = trainer.accelerator.num_processes == 1
        if trainer.state.global_step and (single_process or getattr(error, "everywhere", False)):
            try:
                trainer.keep()
            except Exception:  # a full disk, for example: the first error is the one to report
                _LOG.exception("the last step could not be saved")
        raise


def save_initial_model(model: Any, stage: Stage) -> None:
    """Save a model that was created or merged in memory and set `config._name_or_path` to its folder.

    TRL loads the reference policy of a fully trained model from that path, and a reward model its base.
    """
    from rlm_plugins.distributed import processes

    if stage.source.origin == model.config._name_or_path:
        return
    start = stage.folder / "start"
    if processes().is_main_process:
        model.save_pretrained(start)
    processes().wait_for_everyone()
    model.config._name_or_path = str(start)


def connect(stage: Stage, earlier: Sequence[Stage]) -> None:
    """Set the initial model of a stage and the results of the earlier stages.

    Args:
        stage: Its `source` and `results` are set.
        earlier: All stages before it, connected, with their folders.
    """
    if earlier:
        stage.source = result_of(earlier[-1])
    stage.results = {name: s.output for s in earlier for name in (s.name, s.name[3:])}


def result_of(stage: Stage) -> ModelSpec:
    """Return the policy that a finished stage produced, its adapter merged into the base.

    A trainer that produces something else (declared by `produces`) does not change the policy.
    """
    if product_of(stage.engine) != "policy":
        return stage.source

    def tokenizer() -> PreTrainedTokenizerBase:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(stage.output)

    def load() -> PreTrainedModel:
        if stage.lora is None:
            return _load(stage.output)
        from peft import PeftModel

        merged = PeftModel.from_pretrained(stage.source.load(), stage.output).merge_and_unload()
        return merged.requires_grad_(True)  # PEFT froze the base; the next stage may train all of it

    return ModelSpec(config=stage.source.config, tokenizer=tokenizer, load=load, origin=str(stage.output))


def _load(folder: Path) -> PreTrainedModel:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
