"""Has a model write through a generator, and holds what comes back against what was asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import torch

from rlm_plugins.dispatch import attribute_errors, location
from rlm_plugins.errors import PartError
from rlm_plugins.generation.output import Generation, OnFinished
from rlm_plugins.registry.part import Bound


def written(
    generator: Bound | None,
    generate: Callable[..., Any],
    model: Any,
    inputs: Mapping[str, torch.Tensor],
    config: Any,
    *,
    tell: bool = False,
    finished: OnFinished | None = None,
) -> Generation:
    """What a model writes after the prompts; what it thought of it where it was asked to tell, and can.

    Args:
        generator: None: transformers' own.
        generate: The model's own, of transformers.
        model: With or without adapters, not wrapped.
        inputs: Token ids (B, P), padded on the left, their mask, whatever else the model reads.
        config: transformers' GenerationConfig.
        tell: Whether log-probabilities and entropies are asked for.
        finished: Is told of rows as soon as they are done, by generators that can.

    Raises:
        PartError: The generator failed, or returned something else than these rows continued.
    """
    if generator is None:
        return Generation(generate(**inputs, generation_config=config))
    asked = {"inputs": dict(inputs), "config": config, "return_logprobs": tell, "on_finished": finished}
    with attribute_errors(generator):
        found = generator(SimpleNamespace(generate=generate, model=model, **asked))
    found = found if isinstance(found, Generation) else Generation(found)
    _check(generator, found, inputs["input_ids"])
    return found


def _check(generator: Bound, found: Generation, prompts: torch.Tensor) -> None:
    rows, shown = prompts.shape
    ids: Any = found.ids
    if not isinstance(ids, torch.Tensor) or ids.dim() != 2 or len(ids) != rows or ids.is_floating_point():
        got = f"a tensor of shape {tuple(ids.shape)}" if isinstance(ids, torch.Tensor) else type(ids).__name__
        raise PartError(f"returned {got}", where=location(generator), allowed=f"token ids of {rows} rows")
    if not torch.equal(ids[:, :shown], prompts):
        raise PartError("did not return the prompts before what it wrote", where=location(generator))
    told = {"logp": found.logp, "entropy": found.entropy}
    for name, x in told.items():
        if x is not None and x.shape != (rows, ids.shape[1] - shown):
            problem = f"returned '{name}' of shape {tuple(x.shape)}, and wrote {ids.shape[1] - shown} tokens a row"
            raise PartError(problem, where=location(generator))
