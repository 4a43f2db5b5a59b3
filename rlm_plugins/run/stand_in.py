"""The stand-in of a recipe: the same algorithm, data and parts on a tiny model, for a few steps."""

from __future__ import annotations

import copy
import string
from typing import Any

from rlm_plugins.recipe import Recipe

STEPS = 4
MODEL = {
    "name": "scratch",
    "hidden": 16,
    "heads": 2,
    "layers": 1,
    "intermediate": 16,
    "characters": "".join(c for c in string.printable if c.isprintable() or c == "\n"),
    "max_positions": 32768,
}
SIZES = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "generation_batch_size": None,
    "num_generations": 4,
    "max_completion_length": 6,
    "warmup_steps": 0,
    "use_vllm": False,
    "num_train_epochs": 3,
}
"""Settings of the trainer that are replaced where a recipe has them; None: removed."""
ALWAYS = {"max_steps": STEPS, "save_strategy": "steps", "save_steps": 1, "save_total_limit": None, "logging_steps": 1}


def stand_in(recipe: Recipe) -> dict[str, Any]:
    """Return the stand-in of a recipe as a document; paths in it are absolute."""
    bodies = [_stand_in_stage(body, is_first=number == 0) for number, body in enumerate(recipe.bodies)]
    plugins = {"load": [str(path) for path in recipe.load], "block": recipe.block, "packages": recipe.packages}
    document: dict[str, Any] = {"name": f"{recipe.name}-stand-in"}
    document |= (
        {"plugins": {key: list(value) for key, value in plugins.items() if value}} if any(plugins.values()) else {}
    )
    return document | (bodies[0] if len(bodies) == 1 else {"stages": bodies})


def _stand_in_stage(body: dict[str, Any], *, is_first: bool) -> dict[str, Any]:
    body = copy.deepcopy(body)
    model = body.get("model") or {}
    lora = {"lora": {"r": 2, "target_modules": "all-linear"}} if model.get("lora") else {}
    body["model"] = {
        **(MODEL if is_first else {}),
        **({"tools": True} if is_first and model.get("tools") else {}),
        **lora,
    }
    trainer = body.get("trainer") or {}
    sizes = {key: value for key, value in SIZES.items() if key in trainer}
    if trainer.get("num_generations") == 1:
        del sizes["num_generations"]
    settings = {key: value for key, value in {**trainer, **sizes}.items() if value is not None}
    body["trainer"] = {**settings, **{key: value for key, value in ALWAYS.items() if value is not None}}
    body["trainer"].pop("save_total_limit", None)
    if evaluation := body.get("evaluation"):
        evaluation.pop("stop", None)
        keeps_best = evaluation.get("keep", "last") != "last"  # requires evaluations during training
        body["evaluation"] |= {"rows": 2, "every": int(keeps_best)}
    return body
