"""State of NumPy and torch that a reward must not change."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import replace
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


def _same_cuda_rng(before: list[Any], after: list[Any]) -> bool:
    return not before or all(map(_same_tensor, before, after))


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


def _set_determinism(settings: tuple[bool, bool]) -> None:
    _torch().use_deterministic_algorithms(settings[0], warn_only=settings[1])


def _set_anomaly_detection(is_on: bool) -> None:
    _torch().autograd.set_detect_anomaly(is_on)


_BACKENDS = {
    "_get_cublas_allow_fp16_accumulation": "_set_cublas_allow_fp16_accumulation",
    "_get_cudnn_allow_tf32": "_set_cudnn_allow_tf32",
    "_get_cudnn_benchmark": "_set_cudnn_benchmark",
    "_get_cudnn_deterministic": "_set_cudnn_deterministic",
    "_get_cudnn_enabled": "_set_cudnn_enabled",
    "_get_cudnn_sdp_enabled": "_set_sdp_use_cudnn",
    "_get_flash_sdp_enabled": "_set_sdp_use_flash",
    "_get_math_sdp_enabled": "_set_sdp_use_math",
    "_get_mem_efficient_sdp_enabled": "_set_sdp_use_mem_efficient",
    "_get_mkldnn_deterministic": "_set_mkldnn_deterministic",
    "_get_mkldnn_enabled": "_set_mkldnn_enabled",
}
"""Functions of `torch._C` that choose between kernels, which round differently."""


def _backends() -> list[tuple[str, Any]]:
    core = _torch()._C
    readers = ((setter, getattr(core, getter, None)) for getter, setter in _BACKENDS.items())
    return [(setter, reader()) for setter, reader in readers if reader is not None]


def _set_backends(settings: list[tuple[str, Any]]) -> None:
    for setter, value in settings:
        getattr(_torch()._C, setter)(value)


def _modes_entered() -> tuple[int, int]:
    """Return how many modes of functions and of operators are entered: `torch.device`, `FakeTensorMode`, …"""
    core = _torch()._C
    return core._len_torch_function_stack(), core._len_torch_dispatch_stack()


def _leave_modes(before: tuple[int, int]) -> None:
    core = _torch()._C
    while core._len_torch_function_stack() > before[0]:
        core._pop_torch_function_stack()
    while core._len_torch_dispatch_stack() > before[1]:
        core._pop_torch_dispatch_stack(None)


def _tensor_hooks() -> Any:
    return _torch()._C._autograd._top_saved_tensors_default_hooks(True)


def _pop_tensor_hooks(before: Any) -> None:
    while _tensor_hooks() not in (before, None):
        _torch()._C._autograd._pop_saved_tensors_default_hooks()


_SUBNORMAL = [sys.float_info.min]


def _flushes() -> bool:
    """Return True if this thread rounds subnormal numbers to zero."""
    return _SUBNORMAL[0] / 2 == 0.0


def _of_torch(name: str, read: str, restore: str | Callable[[Any], Any]) -> Aspect:
    """Return a setting of torch, by the name of the function that returns it and of the one that sets it."""
    setter = (lambda value: getattr(_torch(), restore)(value)) if isinstance(restore, str) else restore
    return Aspect(name, lambda: getattr(_torch(), read)(), setter, "torch")


ASPECTS = (
    Aspect(
        "NumPy's errors of floating point",
        lambda: sys.modules["numpy"].geterr(),
        lambda actions: sys.modules["numpy"].seterr(**actions),
        "numpy",
    ),
    Aspect("the random numbers of NumPy", _read_numpy, _set_numpy, "numpy", lambda one, two: bool(one[0] == two[0])),
    replace(_of_torch("the random numbers of torch", "get_rng_state", "set_rng_state"), same=_same_tensor),
    Aspect("the random numbers of CUDA", _cuda_rng, _set_cuda_rng, "torch", _same_cuda_rng),
    _of_torch("torch's default dtype", "get_default_dtype", "set_default_dtype"),
    _of_torch("torch's default device", "get_default_device", lambda _: _torch().set_default_device(None)),
    Aspect("torch's modes of functions and operators", _modes_entered, _leave_modes, "torch"),
    Aspect("torch's hooks of saved tensors", _tensor_hooks, _pop_tensor_hooks, "torch"),
    Aspect("torch's choice of kernels", _backends, _set_backends, "torch"),
    Aspect("subnormal numbers", _flushes, lambda flush: _torch().set_flush_denormal(flush), "torch"),
    _of_torch("torch's inference mode", "is_inference_mode_enabled", _set_inference_mode),
    _of_torch("torch's grad mode", "is_grad_enabled", "set_grad_enabled"),
    Aspect("torch's autocast", _autocast, _set_autocast, "torch"),
    Aspect("torch's deterministic algorithms", _determinism, _set_determinism, "torch"),
    _of_torch("torch's anomaly detection", "is_anomaly_enabled", _set_anomaly_detection),
    _of_torch("torch's precision of float32 products", "get_float32_matmul_precision", "set_float32_matmul_precision"),
    _of_torch("torch's number of threads", "get_num_threads", "set_num_threads"),
)
