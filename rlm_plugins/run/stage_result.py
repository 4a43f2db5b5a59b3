"""The result of a stage: saved and sealed with a model card, uploaded, and loaded by the next stage.

TRL would upload the folder of the stage, in which capsules have prompts and completions, and `training_args.bin` is a
pickle.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rlm_plugins.durable.files import CHECKSUMS, damages, publish_sealed
from rlm_plugins.errors import RlmError
from rlm_plugins.models.pretrained import CARD, WeightsNotice, auto_class, front_matter
from rlm_plugins.registry.protocols import CompletesResults, product_of
from rlm_plugins.specs import ModelSpec
from rlm_plugins.stage import Stage
from rlm_plugins.trainer.checkpoint import STAGED, saving

if TYPE_CHECKING:
    from transformers import PreTrainedModel, Trainer


_CARD = Template("""$header
# $title

$kind trained with `$algorithm` on `$environment` (rlm-plugins, TRL$peft).

- Base: $base
- License of the base: $license. It applies to weights that include the base.
- Rewards: $rewards
- The resolved recipe is `recipe.yaml` of the run.

```python
$code
```
""")
_ADAPTER = """from peft import PeftModel
from transformers import {model}, {processing}

base = {model}.from_pretrained({base})
model = PeftModel.from_pretrained(base, {folder}).merge_and_unload()
{variable} = {processing}.from_pretrained({folder})"""
_MODEL = """from transformers import {model}, {processing}

model = {model}.from_pretrained({folder})
{variable} = {processing}.from_pretrained({folder})"""
_TEXT = {"model": "AutoModelForCausalLM", "processing": "AutoTokenizer", "variable": "tokenizer"}
_VISION = {"model": "AutoModelForImageTextToText", "processing": "AutoProcessor", "variable": "processor"}


def write_model_card(
    stage: Stage, folder: Path, base: str, *, is_adapter: bool | None = None, address: str = ""
) -> None:
    """Write the model card of a stage into a folder with its adapter or model, over those that TRL and PEFT write.

    `base` is the path or hub name of the base as it was loaded (empty: random weights), and `address` that of the
    result for code and heading (empty: the stage's). `is_adapter` is None where the stage says it.
    """
    get_notice = stage.source.notice
    notice = WeightsNotice(base or "none, made from nothing") if get_notice is None else get_notice()
    adapter = stage.lora is not None if is_adapter is None else is_adapter
    header = front_matter(
        base_model=notice.source.removeprefix("https://huggingface.co/"),
        library_name="peft" if adapter else "transformers",
        license=notice.license.lower(),
    )
    names = {"base": repr(base or "BASE"), "folder": repr(address or str(stage.output))}
    classes = _TEXT if stage.source.processor is None else _VISION
    text = _CARD.substitute(
        header=header,
        title=address or f"{stage.folder.parent.name}: {stage.name}",
        kind="A LoRA adapter" if adapter else "A model",
        algorithm=stage.body["algorithm"]["name"],
        environment=stage.body["environment"]["name"],
        peft=", PEFT" if adapter else "",
        base=f"{notice}" if notice.source or not base else f"{base}; license: {notice.license or 'not stated'}",
        license=notice.license or "not stated by its model card",
        rewards=", ".join(f"{reward.weight:g} {reward.label}" for reward in stage.rewards) or "none",
        code=(_ADAPTER if adapter else _MODEL).format(**names, **classes),
    )
    (folder / CARD).write_text(text, encoding="utf-8")
    if not address:
        (stage.folder / CARD).unlink(missing_ok=True)


NOT_UPLOADED = ("training_args.bin", CHECKSUMS)
"""Files that stay in the run: a pickle of TRL, and checksums that a new model card would make wrong."""


def upload_result(trainer: Any, stage: Stage, result: ModelSpec) -> str:
    """Upload the result of a stage, an adapter on a base of the run alone as a model, and return its repository."""
    from huggingface_hub import HfApi

    args, base = trainer.args, str(trainer.model.config._name_or_path or "")
    is_local = not base or Path(base).resolve().is_relative_to(stage.folder.parent.resolve())
    merges = stage.lora is not None and is_local and result.origin == str(stage.output)  # else a reward model
    with TemporaryDirectory() as name:
        folder = Path(name)
        if merges:
            result.load().save_pretrained(folder)
            trainer.processing_class.save_pretrained(folder)
        else:
            shutil.copytree(stage.output, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*NOT_UPLOADED))
        is_adapter = stage.lora is not None and not merges
        write_model_card(stage, folder, base if is_adapter else "", is_adapter=is_adapter, address=trainer.hub_model_id)
        HfApi().upload_folder(
            repo_id=trainer.hub_model_id,
            folder_path=folder,
            revision=args.hub_revision,
            commit_message=f"Result of {stage.folder.parent.name}, {stage.name}",
        )
    return str(trainer.hub_model_id)


def save_result(trainer: Trainer, stage: Stage) -> None:
    """Save model and tokenizer: into another folder, sealed with checksums, and renamed."""
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
            shutil.rmtree(stage.folder / STAGED, ignore_errors=True)
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
    """Return the policy that a finished stage left, its adapter merged into the base; of another product the source."""
    if product_of(stage.trainer) != "policy":
        return stage.source

    trust = {"trust_remote_code": stage.source.runs_code}  # without it transformers would ask

    def processing(auto: str) -> Any:
        import transformers

        with _loading(stage.output):
            return getattr(transformers, auto).from_pretrained(stage.output, **trust)

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

    tokenizer = partial(processing, "AutoTokenizer")
    processor = None if stage.source.processor is None else partial(processing, "AutoProcessor")
    return replace(stage.source, tokenizer=tokenizer, load=load, origin=str(stage.output), processor=processor)


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
    """Check that the result of a stage is as it was saved."""
    reasons = damages(output)
    if reasons:
        hint = f"restore the file, or remove {output.parent} and train this stage again with --resume"
        raise RlmError(f"the result of this stage is damaged: {', '.join(reasons)}", where=str(output), hint=hint)
