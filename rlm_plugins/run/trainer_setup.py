"""What every engine does around its trainer: settings, weights, adapter, checkpoint, result."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlm_plugins.data.tokenizer_check import check_tokenizer
from rlm_plugins.errors import RecipeError, RlmError
from rlm_plugins.recipe.trainer_settings import default_settings
from rlm_plugins.registry.protocols import product_of
from rlm_plugins.specs import ModelSpec
from rlm_plugins.stage import Stage
from rlm_plugins.trainer.checkpoint import checkpoints

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer

    from rlm_plugins.estimate.plan import Forecast

_LOG = logging.getLogger(__name__)


def arguments(stage: Stage, **machine: Any) -> Any:
    """The engine's config: house defaults, the recipe's ``trainer:``, then what only the machine can know."""
    return forecast(stage, **machine).args


def forecast(stage: Stage, **machine: Any) -> Forecast:
    """The same with what the stage will take.

    Gradient checkpointing, where the recipe does not say, is on only if a step would not fit without it.
    """
    from rlm_plugins.estimate.plan import KEY, Forecast

    config = stage.engine.config_class()
    said = {**default_settings(), **stage.settings, "output_dir": str(stage.folder), **machine}
    found = Forecast(stage, config(**said))
    if KEY not in stage.settings and not found.needs_checkpointing():
        found.args = config(**said, **{KEY: False})
    return found


def weights(stage: Stage) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, Any]:
    """The model to train, its tokenizer, and the LoRA config (None: all weights are trained)."""
    tokenizer = stage.source.tokenizer()
    check_tokenizer(tokenizer, next(iter(stage.environment_spec.train)))
    model = stage.source.load()
    if stage.lora is None:
        return model, tokenizer, None
    from peft import LoraConfig

    return model, tokenizer, LoraConfig(**{"task_type": "CAUSAL_LM", **stage.lora})


@contextmanager
def refusals(stage: Stage) -> Iterator[None]:
    """What TRL, PEFT or an integration refuses while it is put together, as an error of the recipe."""
    import torch

    try:
        yield
    except (RlmError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        problem = f"its trainer cannot be made: {type(error).__name__}: {error}"
        raise RecipeError(problem, where=f"stage '{stage.name}'") from error


def run(trainer: Trainer, stage: Stage) -> None:
    """Trains (from the last checkpoint, when the stage is resumed) and saves the result."""
    from transformers.trainer_callback import PrinterCallback

    trainer.remove_callback(PrinterCallback)
    for watcher in stage.watchers:
        trainer.add_callback(watcher)
    found = checkpoints(stage.folder) if stage.resume else []
    with kept(trainer):
        trainer.train(resume_from_checkpoint=str(found[-1]) if found else None)
    trainer.save_model(str(stage.output))
    if trainer.args.should_save:
        trainer.processing_class.save_pretrained(stage.output)
    trainer.accelerator.wait_for_everyone()


@contextmanager
def kept(trainer: Any) -> Iterator[None]:
    """Where a part fails, what was learned until then is saved; among several processes where all of them know."""
    try:
        yield
    except RlmError as error:
        alone = trainer.accelerator.num_processes == 1
        if trainer.state.global_step and (alone or getattr(error, "everywhere", False)):
            try:
                trainer.keep()
            except Exception:  # a full disk, say: what went wrong first is told
                _LOG.exception("the last step could not be saved")
        raise


def give_address(model: Any, stage: Stage) -> None:
    """Saves a model that was made or merged in memory, so that it can be loaded from where its config says.

    TRL loads the reference of a fully trained model from there, a reward model the base it stands on.
    """
    from rlm_plugins.distributed import processes

    if stage.source.origin == model.config._name_or_path:
        return
    start = stage.folder / "start"
    if processes().is_main_process:
        model.save_pretrained(start)
    processes().wait_for_everyone()
    model.config._name_or_path = str(start)


def follow(stage: Stage, earlier: Sequence[Stage]) -> None:
    """Tells a stage where it starts, and where the results of those before it lie.

    Args:
        stage: Its `source` and `results` are set.
        earlier: All before it, followed themselves and with their folders.
    """
    if earlier:
        stage.source = result_of(earlier[-1])
    stage.results = {name: s.output for s in earlier for name in (s.name, s.name[3:])}


def result_of(stage: Stage) -> ModelSpec:
    """The policy a finished stage left, as the start of the next: its adapter is merged into the base.

    An engine that leaves something else (it says so by `leaves`) has left the policy as it was.
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
        return merged.requires_grad_(True)  # PEFT froze the base; a next stage may train all of it

    return ModelSpec(config=stage.source.config, tokenizer=tokenizer, load=load, origin=str(stage.output))


def _load(folder: Path) -> PreTrainedModel:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
