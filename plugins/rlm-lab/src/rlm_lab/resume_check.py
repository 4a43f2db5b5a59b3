"""``rlm doctor RECIPE``: is every resumed run of a recipe equal to an uninterrupted one, byte for byte?

The runs are of a stand-in: the same algorithm, data and parts on a tiny model, for a few steps.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import shutil
import string
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlm_plugins.durable.files import CHECKSUMS
from rlm_plugins.recipe import Recipe
from rlm_plugins.recipe.yaml_strict import dump
from rlm_plugins.run.folder import DONE, SUMMARY
from rlm_plugins.run.launch import launch
from rlm_plugins.run.recipe_argument import read
from rlm_plugins.run.trainer_callbacks import SCORE
from rlm_plugins.trainer.checkpoint import STATE, checkpoints

STEPS = 4
CHARACTERS = "".join(c for c in string.printable if c.isprintable() or c == "\n")
MODEL = {"name": "scratch", "hidden": 16, "heads": 2, "layers": 1, "intermediate": 16, "characters": CHARACTERS}
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
"""Settings of the trainer in every recipe; None: removed."""
_TIMED = (STATE, "training_args.bin", "README.md")
"""Files with times or paths of a run."""


def resume_check(source: Path, overrides: Sequence[str], at: Sequence[int] = ()) -> list[dict[str, Any]]:
    """Train the stand-in of a recipe, then resume it from each step of each stage, and compare all files.

    Args:
        source: A recipe, or the folder of a run.
        overrides: ``key=value``.
        at: Steps; by default all.

    Returns:
        Per interruption ``stage``, ``step``, ``equal`` and ``differs``: the files that differ.
    """
    recipe, _ = read(source, overrides)
    with tempfile.TemporaryDirectory(prefix="rlm-resume-check-") as name:
        run, reference, file = Path(name, "run"), Path(name, "whole"), Path(name, "recipe.yaml")
        file.write_text(dump(stand_in(recipe)), encoding="utf-8")
        _quiet(file, out=run)
        run.rename(reference)  # every run has the same path, which is in the files of adapters
        stages = sorted(path.parent.name for path in reference.glob(f"*/{DONE}"))
        expected = _digests(reference)
        results = []
        for number, stage in enumerate(stages):
            for step in at or range(1, STEPS + 1):
                shutil.copytree(reference, run)
                _interrupt(run, stages[number:], step)
                _quiet(run, resume=True)
                different = sorted({name for name, _ in expected.items() ^ _digests(run).items()})
                results.append({"stage": stage, "step": step, "equal": not different, "differs": different})
                shutil.rmtree(run)
    return results


def render(results: Sequence[dict[str, Any]]) -> str:
    """Return a line per interruption that differs, and the count of those that are equal."""
    lines = [f"{r['stage']} step {r['step']}: differs in {', '.join(r['differs'])}" for r in results if not r["equal"]]
    equal = sum(result["equal"] for result in results)
    return "\n".join([*lines, f"{equal} of {len(results)} interruptions end with equal bytes"])


def _quiet(source: Path, **options: Any) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        launch(source, [], **options)


def _interrupt(run: Path, stages: Sequence[str], step: int) -> None:
    """Leave what a run has on disk that was killed in the first of the stages, after a step."""
    for later_stage in stages[1:]:
        shutil.rmtree(run / later_stage)
    stage = run / stages[0]
    best_model, kept_folders = stage / "best", checkpoints(stage)[:step]
    if best_model.is_dir() and json.loads((best_model / SCORE).read_bytes())["step"] <= step:
        kept_folders.append(best_model)
    for path in (*stage.iterdir(), run / SUMMARY, run / "curve.png"):
        if path.is_dir() and path not in kept_folders:
            shutil.rmtree(path)
        elif path.is_file():
            path.unlink()


def _digests(run: Path) -> dict[str, str]:
    """Return the checksum of each file in the checkpoints and results of a run."""
    digests: dict[str, str] = {}
    for file in run.glob(f"*/*/{CHECKSUMS}"):
        entries = json.loads(file.read_bytes())["files"]
        folder = file.parent.relative_to(run)
        digests |= {f"{folder}/{name}": entry["sha256"] for name, entry in entries.items() if name not in _TIMED}
    return digests


def stand_in(recipe: Recipe) -> dict[str, Any]:
    """Return the stand-in of a recipe as a document; paths in it are absolute."""
    plugins = {"load": [str(path) for path in recipe.load], "block": recipe.block, "packages": recipe.packages}
    used = {key: list(value) for key, value in plugins.items() if value}
    head = {"name": f"{recipe.name}-stand-in", **({"plugins": used} if used else {})}
    first, *later = recipe.bodies
    bodies = [_stand_in_stage(first, {**MODEL, "max_positions": 32768}), *(_stand_in_stage(body, {}) for body in later)]
    return head | ({"stages": bodies} if later else bodies[0])


def _stand_in_stage(body: dict[str, Any], tiny_model: dict[str, Any]) -> dict[str, Any]:
    body = copy.deepcopy(body)
    model, trainer = body.get("model") or {}, body.get("trainer") or {}
    tools = {"tools": True} if tiny_model and model.get("tools") else {}
    lora = {"lora": {"r": 2, "target_modules": "all-linear"}} if model.get("lora") else {}
    body["model"] = {**tiny_model, **tools, **lora}
    sizes = {key: value for key, value in SIZES.items() if key in trainer}
    if trainer.get("num_generations") == 1:
        del sizes["num_generations"]
    body["trainer"] = {key: value for key, value in {**trainer, **sizes, **ALWAYS}.items() if value is not None}
    if evaluation := body.get("evaluation"):
        evaluation.pop("stop", None)
        keeps_best = evaluation.get("keep", "last") != "last"  # requires evaluations during training
        evaluation |= {"rows": 2, "every": int(keeps_best)}
    return body
