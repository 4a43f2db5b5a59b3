"""An inference engine for `flash_rl`: it samples with the policy's weights rounded to eight bits, as FlashRL does.

A plugin file: the part `eight_bits` of the hook ``rlm_rollouts`` returns the log-probs of the rounded policy, which
differ slightly from those of the policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from rlm_plugins import hookimpl


def eight_bits(prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
    """Sample from the policy with every tensor rounded to float8 (e4m3, one scale per tensor)."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    with rounded(model), torch.no_grad():
        rows, _ = trainer.generate(prompts)
        logps = logprobs(model, trainer.prompt_ids(prompts), rows, trainer.temperature)
    return {"completion_ids": rows, "logprobs": logps}


@contextmanager
def rounded(model: torch.nn.Module) -> Iterator[None]:
    """Round the weights to eight bits within the context."""
    weights = [(weight, weight.detach().clone()) for weight in model.parameters()]
    largest = torch.finfo(torch.float8_e4m3fn).max
    try:
        for weight, exact in weights:
            scale = exact.abs().max().clamp(min=1e-12) / largest
            weight.data.copy_((exact / scale).to(torch.float8_e4m3fn).to(exact.dtype) * scale)
        yield
    finally:
        for weight, exact in weights:
            weight.data.copy_(exact)


def logprobs(
    model: torch.nn.Module, prompts: Sequence[list[int]], rows: Sequence[list[int]], temperature: float
) -> list[list[float]]:
    """Return log π of every completion token, in nats."""
    texts = [torch.tensor([*prompt, *row]) for prompt, row in zip(prompts, rows, strict=True)]
    ids = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True)
    seen = torch.nn.utils.rnn.pad_sequence([torch.ones_like(text) for text in texts], batch_first=True)
    logits = model(input_ids=ids, attention_mask=seen).logits[:, :-1] / temperature
    read = logits.log_softmax(-1).gather(-1, ids[:, 1:].unsqueeze(-1)).squeeze(-1)
    ends = [(len(prompt) - 1, len(prompt) - 1 + len(row)) for prompt, row in zip(prompts, rows, strict=True)]
    return [line[first:last].tolist() for line, (first, last) in zip(read, ends, strict=True)]


@hookimpl
def rlm_rollouts() -> dict[str, object]:
    return {"eight_bits": eight_bits}
