"""Training in less time with the same numbers: decoding, forward passes, kernels, and an estimate of memory.

Importing this does not load torch.
"""

from rlm_fast import generator
from rlm_fast.speed import Memory, Speed
from rlm_plugins import hookimpl

__all__ = ["rlm_generators", "rlm_sections"]


@hookimpl
def rlm_generators() -> dict[str, object]:
    return {"fast": generator.fast}


@hookimpl
def rlm_sections() -> dict[str, object]:
    return {"speed": Speed, "memory": Memory}
