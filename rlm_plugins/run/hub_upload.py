"""Upload of the result of a stage to the hub (`trainer.push_to_hub`): weights, tokenizer, model card, nothing else.

TRL would upload the folder of the stage, in which capsules have prompts and completions, and `training_args.bin` is a
pickle.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rlm_plugins.durable.sealed import CHECKSUMS
from rlm_plugins.run.model_card import write_model_card
from rlm_plugins.specs import ModelSpec
from rlm_plugins.stage import Stage

NOT_UPLOADED = ("training_args.bin", CHECKSUMS)
"""Files that stay in the run: a pickle of TRL, and checksums that a new model card would make wrong."""


def upload_result(trainer: Any, stage: Stage, result: ModelSpec) -> str:
    """Upload the result of a stage, and return the name of its repository.

    An adapter on a base that the run created is merged, because only the run has that base.

    Args:
        trainer: The trainer, which has created the repository.
        stage: The stage; its result is on disk.
        result: The policy after the stage, an adapter merged into its base.
    """
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
