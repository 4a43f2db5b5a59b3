"""``rlm export``: the result of a run as a folder, or a repository of the hub, that transformers and PEFT load."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import transformers

from rlm_plugins.cli.card_sections import training_section
from rlm_plugins.cli.recipe_argument import read
from rlm_plugins.cli.run_result import finished_stage
from rlm_plugins.errors import RlmError
from rlm_plugins.models.notice import CARD
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry
from rlm_plugins.run.hub_upload import NOT_UPLOADED
from rlm_plugins.run.model_card import write_model_card
from rlm_plugins.stage import Stage

HUB = "hub:"
"""Prefix of a target that is a repository of the Hugging Face hub."""


def export(run: Path, target: str, *, merge: bool = False, stage: str | None = None) -> str:
    """Write the result of a run: weights, tokenizer, resolved recipe and model card.

    Args:
        run: The folder of a run.
        target: A folder that is new or empty, or ``hub:OWNER/NAME``.
        merge: Merge the adapter into its base and write the whole model.
        stage: Name of a stage (default: the last finished one).

    Returns:
        The folder, or the address of the repository.

    Raises:
        RlmError: No stage is finished, the target is in use, the base of an adapter is in the run folder, or the hub
            refuses the upload.
    """
    transformers.utils.logging.disable_progress_bar()
    recipe, registry = read(run, ())
    trained = finished_stage(run, compose(recipe, registry), stage)
    if target.startswith(HUB):
        repository = target.removeprefix(HUB)
        with TemporaryDirectory() as temporary:
            _write(run, trained, Path(temporary), registry, merge, repository)
            return _upload(Path(temporary), repository)
    folder = Path(target)
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise RlmError("expected a new or empty folder", where=target, hint="choose another --to")
    _write(run, trained, folder, registry, merge, folder.name)
    return target


def _write(run: Path, stage: Stage, folder: Path, registry: Registry, merge: bool, address: str) -> None:
    base = ""
    if stage.lora is not None and not merge:
        base = _base_of(stage)
        shutil.copytree(stage.output, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*NOT_UPLOADED))
    else:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            stage.source.load().save_pretrained(folder)
        except ValueError as error:  # transformers cannot write the weights of some quantizations
            hint = "leave --merge out: the adapter is exported, and its base quantized when it is loaded"
            raise RlmError(f"the model cannot be saved: {error}", where=str(folder), hint=hint) from None
        stage.source.processing_class().save_pretrained(folder)
    shutil.copy(run / "recipe.yaml", folder / "recipe.yaml")
    if (run / "plugins").is_dir():  # the recipe loads them from there
        shutil.copytree(run / "plugins", folder / "plugins", ignore=shutil.ignore_patterns("__pycache__"))
    write_model_card(stage, folder, base, is_adapter=bool(base), address=address)
    with (folder / CARD).open("a", encoding="utf-8") as card:
        card.write(training_section(run, stage, registry))


def _base_of(stage: Stage) -> str:
    """Return the base of an adapter: a name or a path outside the run.

    Raises:
        RlmError: The base was made by this run, so the adapter alone cannot be loaded elsewhere.
    """
    config = json.loads((stage.output / "adapter_config.json").read_text())
    base = config["base_model_name_or_path"] or ""
    run = stage.folder.parent.resolve()
    if not base or Path(base).resolve().is_relative_to(run):
        problem = "the base of this adapter was made by the run itself"
        raise RlmError(problem, where=str(stage.output), hint="--merge writes adapter and base as one model")
    return base


def _upload(folder: Path, repository: str) -> str:
    from huggingface_hub import HfApi

    try:
        api = HfApi()
        api.create_repo(repository, exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=folder, commit_message="Model from rlm export")
    except Exception as error:  # the HTTP client of huggingface_hub has exceptions of its own
        reason = (str(error).strip() or "no reason given").splitlines()[0]
        problem = f"the upload failed: {type(error).__name__}: {reason}"
        hint = "log in with `hf auth login`; without a network, export to a folder"
        raise RlmError(problem, where=HUB + repository, hint=hint) from None
    return f"{api.endpoint}/{repository}"
