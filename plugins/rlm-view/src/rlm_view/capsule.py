"""Capsules: training steps as files, tensors and all; see `docs/view.md`."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from rlm_plugins.durable.files import CHECKSUMS, damages, file_errors, make_folder, publish_sealed
from rlm_plugins.equation.batch import Batch
from rlm_plugins.errors import RlmError
from rlm_plugins.lazy import torch

TAG = "$"
_PLAIN = {int, str, bool, type(None)}
_TEXT = {str}
_NUMBERS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


@dataclass
class TreeEncoder:
    """Encodes nested data.

    Attributes:
        tensors: Key → tensor on the CPU, contiguous.
    """

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    _keys: dict[tuple[Any, ...], str] = field(default_factory=dict)
    _encoded: list[torch.Tensor] = field(default_factory=list)

    def encode(self, value: Any, path: str) -> Any:
        """Return `value` as JSON; its tensors go into `tensors` under keys that start with `path`.

        Objects that are no data (functions, images) become their type name: they cannot be replayed.
        """
        if type(value) in _PLAIN:
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {TAG: "number", "is": str(value)}
        if isinstance(value, torch.Tensor):
            return {TAG: "tensor", "at": self._add_tensor(value, path)}
        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf":
            return {TAG: "array", "at": self._add_tensor(torch.tensor(value.tolist(), dtype=_dtype(value)), path)}
        if isinstance(value, Batch):
            named = {f.name: getattr(value, f.name) for f in fields(Batch)}
            data = {name: x for name, x in named.items() if x is not None and not callable(x)}
            return {TAG: "batch", "is": self._mapping(data, path)}
        if isinstance(value, Mapping):
            if _TEXT.issuperset(map(type, value)) and TAG not in value:
                return self._mapping(value, path)
            pairs = [[key, self.encode(x, f"{path}/{key}")] for key, x in value.items()]
            return {TAG: "dict", "is": [[self.encode(key, path), x] for key, x in pairs]}
        if isinstance(value, list | tuple):
            is_plain = _PLAIN.issuperset(map(type, value))  # long lists of token ids
            items = list(value) if is_plain else [self.encode(x, f"{path}/{i}") for i, x in enumerate(value)]
            return items if isinstance(value, list) else {TAG: "tuple", "is": items}
        if isinstance(value, int | str):  # subclasses, such as enumerations
            return value
        return {TAG: "object", "is": type(value).__name__}

    def _mapping(self, value: Mapping[str, Any], path: str) -> dict[str, Any]:
        if _PLAIN.issuperset(map(type, value.values())):
            return dict(value)
        return {name: self.encode(x, f"{path}/{name}") for name, x in value.items()}

    def _add_tensor(self, tensor: torch.Tensor, path: str) -> str:
        """Return the key of a tensor; equal views of one storage share a key."""
        tensor = tensor.detach()
        identity = tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype, str(tensor.device)
        if tensor.numel() and identity in self._keys:
            return self._keys[identity]
        self._keys[identity] = path
        self._encoded.append(tensor)  # or another tensor could get its address
        self.tensors[path] = tensor.cpu().contiguous().clone()
        return path


def decode_tree(value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """Return the data that :class:`TreeEncoder` encoded.

    Raises:
        KeyError, TypeError, ValueError: The JSON is not such an encoding.
    """
    if isinstance(value, list):
        return [decode_tree(x, tensors) for x in value]
    if not isinstance(value, dict):
        return value
    if TAG not in value:
        return {name: decode_tree(x, tensors) for name, x in value.items()}
    tag = value[TAG]
    if tag in ("tensor", "array"):
        tensor = tensors[value["at"]]
        return tensor if tag == "tensor" else tensor.numpy().copy()
    if tag == "number":
        return _NUMBERS[value["is"]]
    if tag == "object":
        return None
    content = decode_tree(value["is"], tensors)
    if tag == "batch":
        return Batch(**content)
    if tag == "tuple":
        return tuple(content)
    if tag == "dict":
        return {(tuple(key) if isinstance(key, list) else key): x for key, x in content}
    raise ValueError(f"unknown tag {tag!r}")


def _dtype(array: Any) -> torch.dtype:
    """Return the type that holds every number of an array; torch has no arithmetic on unsigned 32 bits."""
    if array.dtype.kind == "b":
        return torch.bool
    return torch.float64 if array.dtype.kind == "f" else torch.int64


FOLDER = "capsules"
STEP_FILE, TENSOR_FILE, RECIPE_FILE = "step.json", "tensors.safetensors", "recipe.yaml"
VERSION = 1
_NAME = re.compile(r"step-(\d+)(-process-\d+)?")


@dataclass
class Capsule:
    """One training step.

    Args:
        step: Number of the optimizer step, from 1, as in ``metrics.jsonl``.
        stage: Name of the stage.
        processes: Number of processes of the run.
        sampled: What the rewards of the generation batch were called with: `inputs`, `prompts`, `completions`,
            `completion_ids`. None: the step failed before, or the trainer generates nothing.
        batch: Generation batch of all processes before the advantage; None: the step failed before.
        is_shaped: True if `batch` holds shaped rewards (dynamic sampling).
        scored: Results of the scoring phase: `advantages`, `mask`, `returns`, `rewards`, ….
        states: State of each part at the start of the step.
        calls: Results of the functions that scoring parts called, in order: (name, result).
        rng: State of each random-number generator: `step` at the start of the generation, `scoring` before scoring.
        updates: Per process, the loss phase: `micro_batches` (TRL's dictionaries), `deal` (rows of each micro-batch as
            sampled) and `portions`: `batch`, `rows`, `loss`, `skipped`.
        measured: Logged numbers of the step: `loss`, `grad_norm`.
        tokens: Text of the tokens: `vocabulary` (id → text), `joined` (row → [[position, count, text], …]).
        turns: Per completion, positions of the last token of each turn; empty without episodes.
        fault: `kind`, `problem`, `where` of the error that ended the step; empty without one.
        folder: Path of the capsule, once it is on disk.
    """

    step: int
    stage: str
    processes: int = 1
    sampled: dict[str, Any] | None = None
    batch: Batch | None = None
    is_shaped: bool = False
    scored: dict[str, torch.Tensor] = field(default_factory=dict)
    states: dict[str, Any] = field(default_factory=dict)
    calls: list[Any] = field(default_factory=list)
    rng: dict[str, Any] = field(default_factory=dict)
    updates: list[dict[str, Any]] = field(default_factory=list)
    measured: dict[str, Any] = field(default_factory=dict)
    tokens: dict[str, Any] = field(default_factory=dict)
    turns: list[list[int]] = field(default_factory=list)
    fault: dict[str, str] = field(default_factory=dict)
    folder: Path | None = None


def write_capsule(folder: Path, capsule: Capsule, recipe: str, plugins: Sequence[Path] = ()) -> Path:
    """Write a capsule; an earlier one at the same path is replaced.

    Args:
        folder: Path of the capsule.
        capsule: Tensors may be on any device.
        recipe: The stage as a recipe in YAML, without paths of this machine.
        plugins: Single-file plugins, copied into ``plugins/``.

    Raises:
        RlmError: It cannot be written.
    """
    from safetensors.torch import save

    staged, encoder = folder.with_name(f".{folder.name}.new"), TreeEncoder()
    sections = {name: x for name, x in vars(capsule).items() if name != "folder"}
    document = {"version": VERSION, **{name: encoder.encode(x, name) for name, x in sections.items()}}
    with file_errors(folder):
        shutil.rmtree(staged, ignore_errors=True)
        make_folder(staged)
        (staged / STEP_FILE).write_text(json.dumps(document, ensure_ascii=True, allow_nan=False), encoding="utf-8")
        (staged / TENSOR_FILE).write_bytes(save(encoder.tensors))
        (staged / RECIPE_FILE).write_text(recipe, encoding="utf-8")
        for file in plugins:
            make_folder(staged / "plugins")
            (staged / "plugins" / file.name).write_bytes(file.read_bytes())
        publish_sealed(staged, folder, sync=False)  # waiting for the disk would take longer than all the rest
    return folder


def read_capsule(folder: Path) -> Capsule:
    """Return a capsule, its checksums verified."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    with file_errors(folder, "read"):
        reasons = damages(folder) if (folder / CHECKSUMS).exists() else [f"{CHECKSUMS} is missing"]
    if reasons:
        hint = "copy the capsule again: all files of its folder, unchanged"
        raise RlmError(f"the capsule is damaged: {', '.join(reasons)}", where=str(folder), hint=hint)
    try:
        document = json.loads((folder / STEP_FILE).read_text(encoding="utf-8"))
        version = document.pop("version")
        if version != VERSION:
            raise RlmError(f"expected a capsule of version {VERSION}, got version {version}", where=str(folder))
        capsule = Capsule(**decode_tree(document, load((folder / TENSOR_FILE).read_bytes())), folder=folder)
        _check(capsule)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        problem = f"expected a capsule, got other contents: {type(error).__name__}: {error}"
        raise RlmError(problem, where=str(folder)) from None
    return capsule


def _check(capsule: Capsule) -> None:
    """Check the types of the sections that a replay uses."""
    kinds = {
        "step": int,
        "processes": int,
        "scored": dict,
        "updates": list,
        "tokens": dict,
        "fault": dict,
        "calls": list,
    }
    wrong = [name for name, kind in kinds.items() if not isinstance(getattr(capsule, name), kind)]
    if wrong or not (capsule.batch is None or isinstance(capsule.batch, Batch)):
        raise TypeError(f"unexpected type of {', '.join(wrong) or 'batch'}")


def capsules_of(run: Path) -> list[Path]:
    """Return the capsules of a run folder, in the order of stages and steps."""
    folders = [path for path in run.glob(f"*/{FOLDER}/step-*") if _NAME.fullmatch(path.name) and path.is_dir()]
    return sorted(folders, key=lambda path: (path.parent.parent.name, step_of(path), path.name))


def step_of(folder: Path) -> int:
    """Return the number of the step in the name of a capsule; 0 for a renamed folder."""
    match = _NAME.fullmatch(folder.name)
    return int(match[1]) if match else 0


def find_capsule(place: Path, step: int | None) -> Path:
    """Return the capsule of a step.

    Args:
        place: The folder of a capsule, of a run, or of one stage of it.
        step: Number of the step; None: `place` is the capsule, or has only one.
    """
    if (place / STEP_FILE).is_file():
        return place
    folders = capsules_of(place) or capsules_of(place.parent) if place.is_dir() else []
    folders = [path for path in folders if place.name in (path.parent.parent.name, path.parent.parent.parent.name)]
    chosen = [path for path in folders if step is None or step_of(path) == step]
    if len(chosen) == 1 or (chosen and step is not None):
        return chosen[-1]
    problem = f"no capsule of step {step}" if step is not None else "expected the number of a step"
    steps = ", ".join(dict.fromkeys(str(step_of(path)) for path in folders))
    hint = "" if folders else "`capsule: {every: 10}` in the recipe stores every tenth step"
    raise RlmError(problem, where=str(place), allowed=steps and f"steps {steps}", hint=hint)
