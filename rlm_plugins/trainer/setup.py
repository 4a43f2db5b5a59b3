"""Set-up of every trainer: its config, the weights and the adapter of its stage, and the errors of TRL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rlm_plugins.distributed import processes
from rlm_plugins.durable.files import file_error
from rlm_plugins.errors import RecipeError, RlmError
from rlm_plugins.models.fingerprints import digest_of_tokenizer, digest_of_weights
from rlm_plugins.recipe.trainer_settings import adapter_config, trainer_defaults
from rlm_plugins.stage import RunState, Stage
from rlm_plugins.trainer.checkpoint import saving
from rlm_plugins.trainer.integration_errors import integration_errors

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def arguments(stage: Stage, run: RunState | None = None, **overrides: Any) -> Any:
    """Return the trainer's config: our defaults, the recipe's ``trainer:``, `overrides`, and what sections choose."""
    config = stage.trainer.config_class()
    settings = {**trainer_defaults(), **stage.settings, "output_dir": str(stage.folder), **overrides}
    if stage.extensions.settings:
        settings["added"] = stage.extensions.settings
    args = config(**settings)
    for section in stage.sections.values():
        chosen = {name: value for name, value in section.settings(stage, args).items() if name not in stage.settings}
        if chosen:
            settings |= chosen
            args = config(**settings)
    args.learning_rate *= 1.0 if run is None else run.rate_scale
    return args


def load_model(stage: Stage, run: RunState) -> tuple[PreTrainedModel, Any, Any]:
    """Return the model to train, its tokenizer or processor, and its adapter (None: all parameters are trained)."""
    processing_class = stage.source.processing_class()
    model = stage.source.load()
    if run.record is not None and not stage.place.results and processes().is_main_process:
        # a later stage starts from the result of an earlier one, which is compared instead
        run.record(base=digest_of_weights(model), tokenizer=digest_of_tokenizer(processing_class))
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
