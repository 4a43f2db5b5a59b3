"""The decoding loop where it fits, and transformers' own where it does not, with a line in the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import torch

from rlm_plugins.generation.loop import Unfit, decode
from rlm_plugins.generation.output import Generation, OnFinished
from rlm_plugins.generation.sampling import by_inverse
from rlm_plugins.generation.self_check import fails
from rlm_plugins.generation.support import why_not_model

logger = logging.getLogger(__name__)
DRAWS = {"as_transformers": None, "inverse_cdf": by_inverse}


def write(
    generate: Callable[..., Any],
    model: Any,
    inputs: Mapping[str, torch.Tensor],
    config: Any,
    *,
    tell: bool = False,
    finished: OnFinished | None = None,
    merge: bool = True,
    sampling: str = "as_transformers",
) -> torch.Tensor | Generation:
    """What `generate` of a model would have written, with less work (see `rlm_plugins.hookspecs.rlm_generators`)."""
    try:
        if reason := why_not_model(model) or fails(model, generate, merge=merge):
            raise Unfit(reason)
        loop = partial(decode, draw=DRAWS[sampling], merge=merge, tell=tell, finished=finished)
        return generate(**inputs, generation_config=config, custom_generate=loop)  # type: ignore[no-any-return]
    except Unfit as reason:
        _say(str(reason))
        return generate(**inputs, generation_config=config)  # type: ignore[no-any-return]


@cache
def _say(reason: str) -> None:
    logger.warning("rows are written by transformers: %s", reason)
