"""State of torch and NumPy that a reward must not change."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from rlm_plugins.rewards.state_item import StateItem, functions


def _torch() -> Any:
    return sys.modules["torch"]


def _cuda_device() -> int:
    cuda = _torch().cuda
    return int(cuda.current_device()) if cuda.is_initialized() else 0


def _set_default_device(device: Any) -> None:
    _torch().set_default_device(None)
    if _torch().get_default_device() != device:
        _torch().set_default_device(device)


def _autocast() -> tuple[Any, ...]:
    torch = _torch()
    enabled = ((device, torch.is_autocast_enabled(device)) for device in ("cpu", "cuda"))
    return tuple((device, is_on, torch.get_autocast_dtype(device) if is_on else None) for device, is_on in enabled)


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


def _leave_forward_mode(before: int) -> None:
    forward = _torch().autograd.forward_ad
    while forward._current_level > before:
        forward.exit_dual_level()


_SUBNORMAL = [sys.float_info.min]


def _flushes() -> bool:
    """Return True if this thread rounds subnormal numbers to zero."""
    return _SUBNORMAL[0] / 2 == 0.0


def _of_torch(name: str, read: Callable[[], Any], restore: Callable[[Any], Any], **options: Any) -> StateItem:
    return StateItem(name, read, restore, "torch", **options)


def _kernels(getter: str, setter: str, *arguments: str) -> StateItem:
    """Return the item of two functions of `torch._C` that choose between kernels, which round differently."""

    def restore(value: Any) -> None:
        getattr(_torch()._C, setter)(*arguments, *(value if isinstance(value, tuple) else (value,)))

    return _of_torch("torch's choice of kernels", lambda: getattr(_torch()._C, getter)(*arguments), restore)


_SWITCHES = (
    "cublas_allow_bf16_reduced_precision_reduction",
    "cublas_allow_fp16_accumulation",
    "cublas_allow_fp16_reduced_precision_reduction",
    "cudnn_allow_tf32",
    "cudnn_benchmark",
    "cudnn_deterministic",
    "cudnn_enabled",
    "mkldnn_deterministic",
    "mkldnn_enabled",
)
_ATTENTION = ("cudnn", "flash", "math", "mem_efficient")
_FP32 = (
    ("generic", "all"),
    *(("cuda", operator) for operator in ("all", "matmul", "conv", "rnn")),
    *(("mkldnn", operator) for operator in ("all", "matmul", "conv", "rnn")),
)
STATE_ITEMS = (
    StateItem(
        "NumPy's errors of floating point",
        lambda: sys.modules["numpy"].geterr(),
        lambda actions: sys.modules["numpy"].seterr(**actions),
        "numpy",
    ),
    _of_torch("the device of CUDA", _cuda_device, lambda device: _torch().cuda.set_device(device)),
    functions("torch's default dtype", "torch", "get_default_dtype", "set_default_dtype"),
    _of_torch("torch's default device", lambda: _torch().get_default_device(), _set_default_device),
    _of_torch("torch's modes of functions and operators", _modes_entered, _leave_modes),
    _of_torch("torch's hooks of saved tensors", _tensor_hooks, _pop_tensor_hooks),
    _of_torch(
        "torch's forward-mode gradients",
        lambda: _torch().autograd.forward_ad._current_level,
        _leave_forward_mode,
    ),
    _of_torch("subnormal numbers", _flushes, lambda flush: _torch().set_flush_denormal(flush)),
    _of_torch("torch's inference mode", lambda: _torch().is_inference_mode_enabled(), _set_inference_mode),
    functions("torch's grad mode", "torch", "is_grad_enabled", "set_grad_enabled"),
    _of_torch("torch's autocast", _autocast, _set_autocast),
    _of_torch(
        "torch's deterministic algorithms",
        _determinism,
        lambda x: _torch().use_deterministic_algorithms(x[0], warn_only=x[1]),
    ),
    functions("torch's anomaly detection", "torch", "is_anomaly_enabled", "autograd.set_detect_anomaly"),
    functions("torch's number of threads", "torch", "get_num_threads", "set_num_threads"),
    functions(
        "torch's precision of float32 products",
        "torch",
        "get_float32_matmul_precision",
        "set_float32_matmul_precision",
    ),
    *(_kernels(f"_get_{name}", f"_set_{name}") for name in _SWITCHES),
    *(_kernels(f"_get_{name}_sdp_enabled", f"_set_sdp_use_{name}") for name in _ATTENTION),
    *(_kernels("_get_fp32_precision_getter", "_set_fp32_precision_setter", *name) for name in _FP32),
)
