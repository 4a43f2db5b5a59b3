"""Calls of generator parts: their output and its validation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from jaxtyping import Float, Int

from rlm_plugins.equation.dispatch import attribute_errors, location
from rlm_plugins.errors import PartError
from rlm_plugins.registry.part import Bound

OnFinished = Callable[[list[int], list[list[int]]], None]
"""Callback with the indices of finished sequences and the token ids generated for each."""


@dataclass
class Generation:
    """Output of a generator that returns more than token ids.

    Args:
        ids: Prompts, and completions padded after their end.
        logp: Log-prob of each completion token (nats), at the sampling temperature and before top-k, top-p or min-p.
        entropy: Entropy of the same distribution (nats). None for both: not recorded.
    """

    ids: Int[torch.Tensor, "B W"]
    logp: Float[torch.Tensor, "B T"] | None = None
    entropy: Float[torch.Tensor, "B T"] | None = None


def generate(
    generator: Bound | None,
    transformers_generate: Callable[..., Any],
    model: Any,
    inputs: Mapping[str, torch.Tensor],
    config: Any,
    *,
    return_logprobs: bool = False,
    on_finished: OnFinished | None = None,
) -> Generation:
    """Generate completions with a generator part and validate its output against the prompts.

    Args:
        generator: The generator part; None: `transformers.generate`.
        transformers_generate: `generate` of the model itself.
        model: With or without adapters, not wrapped.
        inputs: `input_ids` (B, P) padded on the left, `attention_mask`, and further inputs of the model.
        config: `GenerationConfig` of transformers.
        return_logprobs: Request log-probs and entropies; a generator may ignore it.
        on_finished: Called with finished sequences while others are still decoded, if the generator supports it.

    Returns:
        Token ids (B, P + T), with log-probs and entropies if requested and supported.

    Raises:
        PartError: The generator failed, or its output does not continue these prompts.
    """
    if generator is None:
        return Generation(transformers_generate(**inputs, generation_config=config))
    options = {"inputs": dict(inputs), "config": config, "return_logprobs": return_logprobs, "on_finished": on_finished}
    with attribute_errors(generator):
        output = generator(SimpleNamespace(generate=transformers_generate, model=model, **options))
    generation = output if isinstance(output, Generation) else Generation(output)
    _validate(generator, generation, inputs["input_ids"])
    return generation


def _validate(generator: Bound, generation: Generation, prompts: torch.Tensor) -> None:
    """Raise PartError if a generation does not continue the prompts (B, P)."""
    batch_size, prompt_len = prompts.shape
    ids: Any = generation.ids
    if not isinstance(ids, torch.Tensor) or ids.dim() != 2 or len(ids) != batch_size or ids.is_floating_point():
        actual = f"a tensor of shape {tuple(ids.shape)}" if isinstance(ids, torch.Tensor) else type(ids).__name__
        raise PartError(f"expected token ids of {batch_size} sequences, got {actual}", where=location(generator))
    if not torch.equal(ids[:, :prompt_len], prompts):
        raise PartError("expected the prompts before the completions, got other token ids", where=location(generator))
    new_tokens = ids.shape[1] - prompt_len
    for name, x in {"logp": generation.logp, "entropy": generation.entropy}.items():
        if x is not None and x.shape != (batch_size, new_tokens):
            problem = f"expected `{name}` of shape {(batch_size, new_tokens)}, got {tuple(x.shape)}"
            raise PartError(problem, where=location(generator))
