"""Global random generators of Python, NumPy and torch, which a reward must not advance."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from rlm_plugins.rewards.state_item import StateItem, functions


def _torch() -> Any:
    return sys.modules["torch"]


def _numpy() -> Any:
    return sys.modules["numpy"]


_NumpyState = tuple[object, Any]
"""Key of the state, and the state."""
_numpy_states: list[_NumpyState] = [(b"", None)]
_MT19937_BYTES = 4 * 624 + 4
"""Its numbers and the position in them."""


def _numpy_rng() -> _NumpyState:
    """Return the state of NumPy's global generator, cached by its bytes: a full read is slow."""
    generator = _numpy().random.get_bit_generator()
    if type(generator).__name__ != "MT19937":
        return repr(generator.state), generator.state
    key = ctypes.string_at(generator.ctypes.state_address, _MT19937_BYTES)
    if _numpy_states[0][0] != key:
        _numpy_states[0] = key, _numpy().random.get_state(legacy=False)
    return _numpy_states[0]


def _same_tensor(before: Any, after: Any) -> bool:
    return bool(_torch().equal(before, after))


def _cuda_rng() -> list[Any]:
    cuda = _torch().cuda
    return list(cuda.get_rng_state_all()) if cuda.is_initialized() else []


def _same_cuda_rng(before: list[Any], after: list[Any]) -> bool:
    return not before or all(map(_same_tensor, before, after))


def _set_cuda_rng(states: list[Any]) -> None:
    if states:  # a device that was first used in the call keeps its own
        _torch().cuda.set_rng_state_all(states)


STATE_ITEMS = (
    functions("the random numbers of `random`", "random", "getstate", "setstate"),
    StateItem(
        "the random numbers of NumPy",
        _numpy_rng,
        lambda before: _numpy().random.set_state(before[1]),
        "numpy",
        lambda before, after: bool(before[0] == after[0]),
    ),
    StateItem(
        "the random numbers of torch",
        lambda: _torch().get_rng_state(),
        lambda state: _torch().set_rng_state(state),
        "torch",
        _same_tensor,
    ),
    StateItem("the random numbers of CUDA", _cuda_rng, _set_cuda_rng, "torch", _same_cuda_rng),
)
