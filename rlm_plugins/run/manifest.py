"""The manifest of a run: everything that it starts from, by name and by hash.

::

    id, started, command, folder, git an identity, also in checkpoints; when, how, from which commit
    python, platform, hardware        on what
    processes                         how many of them
    packages, version                 versions of libraries and of plugins
    recipe                            the resolved recipe: every knob, seed and default of the parts
    code, data, files                 digests of code, of the examples in their order, of paths of parts
    stages                            per stage that began: digests of base weights and tokenizer, fields of its trainer
    tuning                            values of kernels that were chosen by measurement
    changes                           differences that were allowed when the run was resumed
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlm_plugins.models.fingerprints import digest_of_path, digest_of_rows
from rlm_plugins.recipe import Recipe
from rlm_plugins.recipe.compose import resolved
from rlm_plugins.recipe.foreign_code import RECEIVERS, ForeignCode, foreign_code
from rlm_plugins.recipe.paths import PATH_KNOBS, format_path, leaves
from rlm_plugins.registry import Registry
from rlm_plugins.run.provenance import provenance
from rlm_plugins.stage import Stage

FILE_MARK = " sha256:"
"""Between path and digest in the origin of a single-file plugin."""
PLUGINS = "plugins"
"""Folder of the copies of single-file plugins."""
_TRAINER_FILES = ("deepspeed", "fsdp_config", "accelerator_config")


def manifest_of(stages: Sequence[Stage], recipe: Recipe, registry: Registry) -> dict[str, Any]:
    """Return the manifest of a run that starts now."""
    parts = [part for stage in stages for part in stage.parts()]
    origins = {name: registry.plugins[name].origin for name in sorted({part.part.plugin for part in parts})}
    data = {
        stage.name: {
            "train": digest_of_rows(stage.environment_spec.train),
            "held_out": digest_of_rows(stage.environment_spec.test),
        }
        for stage in stages
    }
    entries = {
        "id": uuid.uuid4().hex,
        **provenance(),
        "processes": int(os.environ.get("WORLD_SIZE", "1")),
        "overrides": list(recipe.overrides),
        "recipe": portable(resolved(stages, recipe)),
        "version": {name: origin for name, origin in origins.items() if FILE_MARK not in origin},
        "code": code_of(foreign_code(recipe, is_run=True)),
        "data": data,
        "files": files_of(resolved(stages, recipe)),
        "stages": {},
    }
    plain: dict[str, Any] = json.loads(json.dumps(entries, default=str))
    return plain


def files_of(document: Mapping[str, Any]) -> dict[str, str]:
    """Return address → digest of each file or folder that a part or the trainer reads (a reward model, say).

    >>> files_of({"rewards": [{"name": "reward_model", "path": "org/model"}], "environment": {"path": "/etc/hosts"}})
    {}
    """
    digests = {}
    for path, value in leaves(document):
        is_path = isinstance(value, str) and path[-1] in (*PATH_KNOBS, *_TRAINER_FILES) and os.path.isabs(value)
        if is_path and not {"environment", "model"} & set(path[:-1]) and Path(value).exists():
            digests[format_path(path)] = digest_of_path(Path(value))
    return digests


def portable(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe whose single-file plugins are the copies in the run folder.

    >>> Path(portable({"plugins": {"load": ["/home/me/part.py"]}})["plugins"]["load"][0]).parts
    ('plugins', 'part.py')
    """
    plugins = document.get("plugins")
    if not isinstance(plugins, dict) or "load" not in plugins:
        return dict(document)
    return {**document, "plugins": {**plugins, "load": [f"{PLUGINS}/{Path(path).name}" for path in plugins["load"]]}}


def code_of(code: Sequence[ForeignCode]) -> dict[str, str]:
    """Return the name of each piece of foreign code → its hash or version."""
    listed = [item for item in code if item.kind not in RECEIVERS]
    return {Path(item.name).name if item.kind == "file" else item.name: item.version for item in listed}
