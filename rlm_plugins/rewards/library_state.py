"""State of NumPy and torch that a reward must not change."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from rlm_plugins.rewards.aspect import Aspect


def _torch() -> Any:
    return sys.modules["torch"]


def _numpy_random() -> Any:
    return sys.modules["numpy"].random  # type: ignore[attr-defined]


_NumpyState = tuple[object, Any]
"""Key of the state, and the state."""
_numpy_states: list[_NumpyState] = [(b"", None)]


def _read_numpy() -> _NumpyState:
    """Return the state of NumPy's global generator; reading all of it takes longer than all other items together."""
    generator = _numpy_random().get_bit_generator()
    if type(generator).__name__ != "MT19937":
        return repr(generator.state), generator.state
    key = ctypes.string_at(generator.ctypes.state_address, _MT19937_BYTES)
    if _numpy_states[0][0] != key:
        _numpy_states[0] = key, _numpy_random().get_state(legacy=False)
    return _numpy_states[0]


def _set_numpy(before: _NumpyState) -> None:
    _numpy_random().set_state(before[1])


_MT19937_BYTES = 4 * 624 + 4
"""Its numbers and the position in them."""


def _same_tensor(before: Any, after: Any) -> bool:
    return bool(_torch().equal(before, after))


def _cuda_rng() -> list[Any]:
    cuda = _torch().cuda
    return list(cuda.get_rng_state_all()) if cuda.is_initialized() else []


def _set_cuda_rng(states: list[Any]) -> None:
    if states:  # a device that was first used in the call keeps its own
        _torch().cuda.set_rng_state_all(states)


def _autocast() -> tuple[Any, ...]:
    torch = _torch()
    on = ((device, torch.is_autocast_enabled(device)) for device in ("cpu", "cuda"))
    return tuple((device, is_on, torch.get_autocast_dtype(device) if is_on else None) for device, is_on in on)


def _set_autocast(settings: tuple[Any, ...]) -> None:
    for device, is_on, dtype in settings:
        _torch().set_autocast_enabled(device, is_on)
        if dtype is not None:
            _torch().set_autocast_dtype(device, dtype)


_modes: list[Any] = []
"""A mode ends with its object."""


def _set_inference_mode(is_on: bool) -> None:
    _modes.append(_torch().inference_mode(is_on))
    _modes[-1].__enter__()


def _determinism() -> tuple[bool, bool]:
    torch = _torch()
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


ASPECTS = (
    Aspect(
        "the random numbers of NumPy",
        _read_numpy,
        _set_numpy,
        "numpy",
        lambda before, after: bool(before[0] == after[0]),
    ),
    Aspect(
        "the random numbers of torch",
        lambda: _torch().get_rng_state(),
        lambda state: _torch().set_rng_state(state),
        "torch",
        _same_tensor,
    ),
    Aspect(
        "the random numbers of CUDA",
        _cuda_rng,
        _set_cuda_rng,
        "torch",
        lambda before, after: not before or all(map(_same_tensor, before, after)),
    ),
    Aspect(
        "torch's default dtype",
        lambda: _torch().get_default_dtype(),
        lambda dtype: _torch().set_default_dtype(dtype),
        "torch",
    ),
    Aspect(
        "torch's default device",
        lambda: _torch().get_default_device(),
        lambda _: _torch().set_default_device(None),
        "torch",
    ),
    Aspect(
        "torch's inference mode",
        lambda: _torch().is_inference_mode_enabled(),
        _set_inference_mode,
        "torch",
    ),
    Aspect(
        "torch's grad mode",
        lambda: _torch().is_grad_enabled(),
        lambda is_on: _torch().set_grad_enabled(is_on),
        "torch",
    ),
    Aspect("torch's autocast", _autocast, _set_autocast, "torch"),
    Aspect(
        "torch's deterministic algorithms",
        _determinism,
        lambda x: _torch().use_deterministic_algorithms(x[0], warn_only=x[1]),
        "torch",
    ),
    Aspect(
        "torch's anomaly detection",
        lambda: _torch().is_anomaly_enabled(),
        lambda is_on: _torch().autograd.set_detect_anomaly(is_on),
        "torch",
    ),
    Aspect(
        "torch's precision of float32 products",
        lambda: _torch().get_float32_matmul_precision(),
        lambda name: _torch().set_float32_matmul_precision(name),
        "torch",
    ),
    Aspect(
        "torch's number of threads",
        lambda: _torch().get_num_threads(),
        lambda count: _torch().set_num_threads(count),
        "torch",
    ),
)
