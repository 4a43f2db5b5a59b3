"""Training in less time with the same numbers: decoding, forward passes, kernels, and an estimate of memory.

Importing this does not load torch.
"""

from rlm_fast import generator
from rlm_fast.speed import Memory, Speed
from rlm_plugins import hookimpl

__all__ = ["rlm_generators", "rlm_sections"]

rlm_generators = hookimpl(lambda: {"fast": generator.fast})
rlm_sections = hookimpl(lambda: {"speed": Speed, "memory": Memory})
