"""The model that ``rlm eval`` and ``rlm sample`` use: of a run, an adapter, a model folder, a GGUF file or the hub."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from rlm_plugins.cli.recipe_argument import read
from rlm_plugins.cli.run_result import finished_stage
from rlm_plugins.errors import RlmError
from rlm_plugins.recipe.compose import compose
from rlm_plugins.recipe.part_lookup import part_of
from rlm_plugins.registry import Registry
from rlm_plugins.run.folder import MANIFEST
from rlm_plugins.specs import ModelSpec
from rlm_plugins.stage import Stage

ADAPTER = "adapter_config.json"


def is_recipe_or_run(source: Path) -> bool:
    """Return True for a recipe file, or the folder of a run; an exported model has a recipe and no manifest."""
    return source.suffix in (".yaml", ".yml") or (source / MANIFEST).is_file()


def model_of(source: Path, stage: str | None, overrides: Sequence[str]) -> tuple[ModelSpec, Stage | None]:
    """Return a model, and the stage that trained it if it is that of a run.

    Args:
        source: A run, a recipe, a folder of an adapter or a model, a ``.gguf`` file, or a name on the hub.
        stage: Name of a stage of a run (default: the last finished one).
        overrides: Of the recipe of a run.

    Raises:
        RlmError: There is no such model, or the stage is unknown or unfinished.
    """
    if not is_recipe_or_run(source):
        model = _without_recipe(source)
        exported = source / "recipe.yaml"  # written by `rlm export`
        trained = compose(*read(exported, ()), held_out_only=True, source=model)[-1] if exported.is_file() else None
        return model, trained
    stages = compose(*read(source, overrides), held_out_only=True)
    judged_stage = finished_stage(source, stages, stage) if source.is_dir() else stages[0]
    return judged_stage.source, judged_stage


def _without_recipe(source: Path) -> ModelSpec:
    if (source / ADAPTER).is_file():
        return _adapter(source)
    if not source.exists() and (source.is_absolute() or str(source).count("/") != 1):
        raise RlmError("there is no such run, recipe or model", where=str(source), hint="a hub name is OWNER/NAME")
    return _checkpoint(str(source))


def _checkpoint(path: str) -> ModelSpec:
    part = Registry().find("rlm_models", part_of(path))
    return cast(ModelSpec, part.bind({"path": path}).call({}))


def _adapter(folder: Path) -> ModelSpec:
    """Return the base of an adapter with the adapter merged into it."""
    base: str = json.loads((folder / ADAPTER).read_text(encoding="utf-8")).get("base_model_name_or_path") or ""
    if not base:
        hint = "`rlm export RUN --merge` writes adapter and base as one model"
        raise RlmError("the adapter does not name its base", where=str(folder / ADAPTER), hint=hint)
    model = _checkpoint(base)

    def load() -> Any:
        from peft import PeftModel

        return PeftModel.from_pretrained(model.load(), folder).merge_and_unload()

    has_tokenizer = (folder / "tokenizer_config.json").is_file()
    tokenizer = pretrained_tokenizer(folder) if has_tokenizer else model.tokenizer
    return replace(model, tokenizer=tokenizer, load=load, origin=str(folder))


def pretrained_tokenizer(folder: Path) -> Any:
    """Return the function that loads the tokenizer of a folder, padding on the left."""
    from transformers import AutoTokenizer

    return lambda: AutoTokenizer.from_pretrained(folder, padding_side="left", trust_remote_code=False)
