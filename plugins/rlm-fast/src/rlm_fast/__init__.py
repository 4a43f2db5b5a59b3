"""Decoding: the samples of `transformers.generate` with prefix sharing and early eviction of finished sequences.

One function is its interface, the generator ``fast``. Importing this does not load torch.
"""

from rlm_fast import choices, generator
from rlm_plugins import hookimpl

__all__ = ["choices", "rlm_generators"]


@hookimpl
def rlm_generators() -> dict[str, object]:
    """Return the generator of this package by name."""
    return {"fast": generator.fast}
