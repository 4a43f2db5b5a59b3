"""Nested data with tensors as JSON beside a table of tensors, without pickle.

A tensor becomes ``{"$": "tensor", "at": KEY}``. Tuples, dictionaries with keys other than text, bytes, NumPy arrays
and :class:`rlm_plugins.batch.Batch` have tags of their own. Equal views of one storage are written once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch

from rlm_plugins.batch import Batch

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
            return {TAG: "batch", "is": self._mapping({n: x for n, x in named.items() if _is_data(x)}, path)}
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


def _is_data(value: Any) -> bool:
    return value is not None and not callable(value)


def _dtype(array: Any) -> torch.dtype:
    """Return the type that holds every number of an array; torch has no arithmetic on unsigned 32 bits."""
    if array.dtype.kind == "b":
        return torch.bool
    return torch.float64 if array.dtype.kind == "f" else torch.int64
