"""The result of a stage: saved and sealed, and loaded as the initial policy of the next stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlm_plugins.durable.sealed import damages, publish_sealed
from rlm_plugins.errors import RlmError
from rlm_plugins.models.auto_class import auto_class
from rlm_plugins.registry.protocols import CompletesResults, product_of
from rlm_plugins.run.hub_upload import upload_result
from rlm_plugins.run.model_card import write_model_card
from rlm_plugins.specs import ModelSpec
from rlm_plugins.stage import Stage
from rlm_plugins.trainer.checkpoint import saving

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin, Trainer


def save_result(trainer: Trainer, stage: Stage) -> None:
    """Save model and tokenizer: into another folder, sealed with checksums, and renamed.

    Raises:
        RlmError: They cannot be written.
    """
    staged, main = stage.output.with_name(".result"), trainer.args.should_save
    with saving(stage.output, staged if main else None):
        trainer.accelerator.wait_for_everyone()
        trainer.save_model(str(staged), _internal_call=True)  # else TRL uploads the folder of the stage
        trainer.accelerator.wait_for_everyone()
        if main:
            trainer.processing_class.save_pretrained(staged)
            write_model_card(stage, staged, trainer.model.config._name_or_path)
        if isinstance(stage.trainer, CompletesResults):
            stage.trainer.complete(trainer, stage, staged)
        if main:
            publish_sealed(staged, stage.output)
    if main and trainer.args.push_to_hub:
        upload_result(trainer, stage, result_of(stage))
    trainer.accelerator.wait_for_everyone()


def connected(stages: Sequence[Stage], run: Path) -> list[Stage]:
    """Return the stages of a run in their folders, each with the result of the one before as its initial model."""
    placed: list[Stage] = []
    for stage in stages:
        results = {s.name: s.output for s in placed} | {s.name[3:]: s.output for s in placed}
        place = replace(stage.place, folder=run / stage.name, results=results)
        source = result_of(placed[-1]) if placed else stage.source
        placed.append(replace(stage, place=place, source=source))
    return placed


def result_of(stage: Stage) -> ModelSpec:
    """Return the policy that a finished stage produced, its adapter merged into the base.

    A trainer that produces something else (declared by `produces`) does not change the policy.
    """
    if product_of(stage.trainer) != "policy":
        return stage.source

    trust = {"trust_remote_code": stage.source.runs_code}  # without it transformers would ask

    def tokenizer() -> PreTrainedTokenizerBase:
        from transformers import AutoTokenizer

        with _loading(stage.output):
            return AutoTokenizer.from_pretrained(stage.output, **trust)

    def processor() -> ProcessorMixin:
        from transformers import AutoProcessor

        with _loading(stage.output):
            return AutoProcessor.from_pretrained(stage.output, **trust)  # type: ignore[no-any-return]

    def load() -> PreTrainedModel:
        check_result(stage.output)
        if stage.lora is None:
            with _loading(stage.output):
                model_class = auto_class(stage.source.config)
                return model_class.from_pretrained(stage.output, dtype="auto", **trust)  # type: ignore[no-any-return]
        merged = adapted(stage).merge_and_unload()
        # otherwise a later adapter would record the first base as its base
        merged.name_or_path = merged.config._name_or_path = ""
        for weight in merged.parameters():  # PEFT froze the base; the next stage may train all of it
            weight.requires_grad_(weight.is_floating_point())  # integers of a quantized base have no gradient
        return merged

    vision_processor = None if stage.source.processor is None else processor
    return replace(stage.source, tokenizer=tokenizer, load=load, origin=str(stage.output), processor=vision_processor)


def adapted(stage: Stage) -> Any:
    """Return the base of a finished stage with its adapter on it, a `peft.PeftModel`."""
    from peft import PeftModel

    base = stage.source.load()
    with _loading(stage.output):
        return PeftModel.from_pretrained(base, stage.output)


@contextmanager
def _loading(output: Path) -> Iterator[None]:
    """Raise errors of transformers and PEFT as an `RlmError` that names the folder of a result."""
    try:
        yield
    except Exception as error:
        if isinstance(error, RlmError):
            raise
        reason = str(error).partition("\n")[0]
        problem = f"the result of this stage cannot be loaded: {type(error).__name__}: {reason}"
        raise RlmError(problem, where=str(output)) from None


def check_result(output: Path) -> None:
    """Check that the result of a stage is as it was saved.

    Raises:
        RlmError: A file of it is damaged.
    """
    reasons = damages(output)
    if reasons:
        hint = f"restore the file, or remove {output.parent} and train this stage again with --resume"
        raise RlmError(f"the result of this stage is damaged: {', '.join(reasons)}", where=str(output), hint=hint)
