"""``rlm fits``: the largest model, completion and group that fit a card, by the memory estimate of ``rlm check``.

The sizes are searched in this order. The model comes first, with the shortest completions and the smallest group. Then
the completions of that model are as long as fit, then its groups as large.
"""

from __future__ import annotations

import bisect
import math
import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from rlm_fast.workload import KEY, Forecast
from rlm_plugins.errors import ADAPTER, RlmError
from rlm_plugins.recipe import document
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry
from rlm_plugins.report.text_layout import fitted
from rlm_plugins.run.recipe_argument import read
from rlm_plugins.stage import Stage
from rlm_plugins.trainer.options import arguments

FAMILIES: Mapping[str, Any] = tomllib.loads((files("rlm_fast") / "models.toml").read_text())
"""Family → size → fields of its config; `common`: those of all sizes."""
LENGTHS = [256 * 2**n for n in range(8)]
GROUPS = [2 * 2**n for n in range(7)]
MODES = {"LoRA": ADAPTER, "4-bit": "", "full": "null"}
"""Column of the table → `model.lora`; `4-bit` has the adapter of `LoRA`."""
SHARE = 0.9
"""Share of the card that the estimate may fill: CUDA's context and fragmentation are not part of it."""


@dataclass(frozen=True)
class Sizes:
    """Sizes that are searched: a family's size, completions per prompt, tokens of the longest completion."""

    family: str
    model: str
    group: int
    length: int


def fits(
    names: Sequence[str], card: float, prompt: int, group: int, length: int, family: str = "qwen3"
) -> list[dict[str, Any]]:
    """Return one row per recipe or algorithm: each mode's sizes with their `peak` in bytes, or None.

    Args:
        names: Recipes (a file or a run) and algorithms.
        card: Memory of the card in GiB.
        prompt: Tokens of the prompts of an algorithm; those of a recipe are measured.
        group: Smallest number of completions per prompt.
        length: Smallest number of tokens of a completion.
        family: A key of `FAMILIES`.

    Raises:
        RlmError: There is no such recipe, algorithm or family, or it fails in every mode.
    """
    if family not in FAMILIES:
        raise RlmError(f"unknown family '{family}'", where="--family", allowed=", ".join(FAMILIES))
    smallest = Sizes(family, next(name for name in FAMILIES[family] if name != "common"), group, length)
    rows = []
    for name in names:
        row: dict[str, Any] = dict.fromkeys(MODES)
        notes, errors = {}, []
        for mode in MODES:
            try:
                stage = _stage(name, mode, prompt)
            except RlmError as error:
                errors.append(error)
                notes[mode] = error.problem
                continue
            needed = partial(bytes_needed, stage, mode == "4-bit")
            row[mode] = largest(needed, SHARE * card * 2**30, smallest)
            if row[mode] is None:
                notes[mode] = f"the smallest model requires {needed(smallest) / 2**30:.1f} GiB"
        if len(errors) == len(MODES):
            raise errors[0]
        rows.append({"name": Path(name).stem, **row, "notes": notes})
    return rows


def largest(needed: Any, limit: float, best: Sizes) -> dict[str, Any] | None:
    """Return the sizes from `best` on of which `needed` bytes, increasing in each, are within the limit, or None."""
    searched: dict[str, list[Any]] = {
        "model": [name for name in FAMILIES[best.family] if name != "common"],
        "length": sorted({best.length, *(n for n in LENGTHS if n > best.length)}),
        "group": sorted({best.group, *(n for n in GROUPS if n > best.group)}),
    }
    for name, values in searched.items():
        options = [replace(best, **{name: value}) for value in values]
        count = bisect.bisect_right(options, limit, key=needed)
        if count == 0:
            return None
        best = options[count - 1]
    return {**asdict(best), "peak": needed(best)}


def bytes_needed(stage: Stage, four_bits: bool, sizes: Sizes) -> int:
    """Return the peak of ``rlm check`` for a stage on a GPU, with other sizes, in bytes."""
    other = sized(stage, four_bits, sizes)
    return Forecast(other, arguments(other), on_gpu=True).memory.peak


def sized(stage: Stage, four_bits: bool, sizes: Sizes) -> Stage:
    """Return a stage with other sizes: in bfloat16, and with one optimizer step per generation batch.

    Prompts of a generation batch and completions of a micro-batch stay those of the stage.
    """
    args = arguments(replace(stage, settings={KEY: True, **stage.settings}))
    completions = args.generation_batch_size // args.num_generations * sizes.group
    micro_batch = math.gcd(args.per_device_train_batch_size, completions)
    settings = {KEY: True, **stage.settings, "bf16": True, "num_generations": sizes.group}
    settings |= {"per_device_train_batch_size": micro_batch, "gradient_accumulation_steps": completions // micro_batch}
    settings |= {"steps_per_generation": completions // micro_batch, "max_completion_length": sizes.length}
    settings.pop("generation_batch_size", None)
    source = replace(stage.source, config=_config(sizes, four_bits))
    return replace(stage, settings=settings, source=source)


def _config(sizes: Sizes, four_bits: bool) -> Any:
    from transformers import AutoConfig

    family = FAMILIES[sizes.family]
    config = AutoConfig.for_model(**family["common"], **family[sizes.model], dtype="bfloat16")
    if four_bits:
        config.quantization_config = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    return config


def _stage(name: str, mode: str, prompt: int) -> Stage:
    """Return the last stage of a recipe, or of an algorithm with prompts of a length, as a mode trains it."""
    lora = f"model.lora={MODES[mode] or MODES['LoRA']}"
    if name.endswith((".yaml", ".yml")) or Path(name).is_dir():
        recipe, registry = read(Path(name), [])
        _require_completions(recipe.bodies[-1]["algorithm"]["name"], registry)
        if mode == "full" or not (recipe.bodies[-1].get("model") or {}).get("lora"):
            position = ".".join(map(str, recipe.stage_paths[-1]))
            recipe, registry = read(Path(name), [f"{position}.{lora}".lstrip(".")])
        return compose(recipe, registry)[-1]
    registry = Registry()
    _require_completions(name, registry)
    trainer = {"num_generations": 8, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 64}
    body = {
        "model": {"name": "scratch", "layers": 1, "hidden": 8, "heads": 2},
        "environment": "addition",
        "rewards": ["accuracy"],
        "algorithm": name,
        "trainer": {**trainer, "max_completion_length": 256},
    }
    (stage,) = compose(document.of_mapping(body, [lora], name=name), registry)
    train = [{**stage.environment_spec.train[0], "prompt": digit * prompt} for digit in "01"]
    return replace(stage, environment_spec=replace(stage.environment_spec, train=train))


def _require_completions(algorithm: str, registry: Registry) -> None:
    """Check that an algorithm generates completions, whose number and length are searched."""
    if registry.find("rlm_algorithms", algorithm).target.policy_loss is None:
        hint = "`rlm check RECIPE` estimates the memory of its recipe"
        raise RlmError(f"{algorithm} generates no completions, whose number and length are searched", hint=hint)


def render(rows: Sequence[Mapping[str, Any]], card: float, width: int) -> str:
    """Return the table as text, at most `width` columns wide."""
    head = f"largest model · completions per prompt × tokens of a completion, in {SHARE:.0%} of {card:g} GiB"
    table = [("", *MODES), *((row["name"], *(_cell(row[mode]) for mode in MODES)) for row in rows)]
    notes = [f"{row['name']}, {mode}: {reason}" for row in rows for mode, reason in row["notes"].items()]
    about = "bfloat16, gradient checkpointing, one optimizer step per generation batch; without an inference engine"
    return "\n".join(
        [*textwrap.wrap(head, width), *fitted(table, width), *(textwrap.fill(x, width) for x in [*notes, about])]
    )


def _cell(sizes: Mapping[str, Any] | None) -> str:
    if sizes is None:
        return "—"
    return (
        f"{sizes['family']} {sizes['model']} · {sizes['group']} × {sizes['length']} ({sizes['peak'] / 2**30:.1f} GiB)"
    )
