"""Decoding: the samples of `transformers.generate` with prefix sharing and early eviction of finished sequences.

Code outside this package imports these names and none of its modules:

- `generate`: Call a generator part and validate its output.
- `Generation`, `OnFinished`: Output of a generator; callback for finished sequences.
- `fast_generate`: The built-in generator ``fast``; falls back to transformers.
- `dry_run`: Why a model would fall back and how many bytes decoding needs, on the meta device.
"""

from rlm_plugins.generation.fast import dry_run, fast_generate
from rlm_plugins.generation.generator_call import generate
from rlm_plugins.generation.output import Generation, OnFinished

__all__ = ["Generation", "OnFinished", "dry_run", "fast_generate", "generate"]
