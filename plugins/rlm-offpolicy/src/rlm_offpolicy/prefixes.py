"""y: completions that continue a prefix of a demonstration (hook ``rlm_rollouts``)."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from rlm_plugins.builtin.rollouts import demonstration_text
from rlm_plugins.errors import PartError
from rlm_plugins.lazy import torch

Share = Annotated[float, Field(ge=0, le=1)]
COLUMN = "demonstration"


def prefixes(
    prompts: Sequence[Any],
    inputs: Sequence[Mapping[str, Any]],
    source_index: Sequence[int],
    generate: Callable[..., list[list[int]]],
    step: int,
    seed: int,
    trainer: Any,
    *,
    low: Share = 0.05,
    high: Share = 0.95,
    trained: Share = 0.2,
) -> dict[str, Any]:
    """Continue a prefix of a demonstration with the policy.

    Each completion is the first k of the demonstration's n tokens, and the policy's continuation. The share
    k / n is drawn from U(low, high). Prefix-RFT, arXiv 2507.01679, has one such completion per group. There `low` falls
    from `high` to 0.05 along a cosine: ``low: {from: 0.95, to: 0.05, over: 500, shape: cosine}``.

    Of the prefix, only the share `trained` of tokens with the highest entropy is trained on (0.2 in the paper).
    Otherwise the prefix, which the policy did not sample, would dominate the gradient.

    The draw depends only on seed, step and prompt, so a resumed run repeats it. The column ``demonstration`` has a
    text, or a list of texts, one per completion. If it is empty, the policy generates the completion. The prefix counts
    towards `max_completion_length`.

    Raises:
        PartError: The data set has no such column, or it has values other than text.
    """
    starts = []
    for prompt, example, number in zip(prompts, inputs, source_index, strict=True):
        answer = _answer_ids(trainer, prompt, example, number)
        share = random.Random(f"{seed}/{step}/{number}/{prompt}").uniform(min(low, high), high)
        starts.append(answer[: min(round(share * len(answer)), len(answer) - 1)])
    continuations = generate(prompts, starts)
    completion_ids: list[Any] = []
    masks: list[Any] = []
    for prompt_ids, start, continuation in zip(trainer.prompt_ids(prompts), starts, continuations, strict=True):
        completion_ids.append([*start, *continuation] if start else None)
        masks.append([*_entropy_mask(trainer.model, prompt_ids, start, trained), *[True] * len(continuation)])
    return {"completion_ids": completion_ids, "mask": masks}


prefixes.columns = (COLUMN,)  # type: ignore[attr-defined]


def _answer_ids(trainer: Any, prompt: Any, example: Mapping[str, Any], number: int) -> list[int]:
    """Return the token ids of a demonstration; empty if there is none."""
    if COLUMN not in example:
        raise PartError(f"no column '{COLUMN}'", allowed="text, or a list of texts")
    text = demonstration_text(example[COLUMN], number, COLUMN)
    return list(trainer.answer_ids(prompt, text)) if text else []


def _entropy_mask(model: Any, prompt_ids: Sequence[int], start: Sequence[int], share: float) -> list[bool]:
    """Return True for the share of tokens of `start` at which the policy has the highest entropy."""
    from rlm_plugins.models.adapters import evaluation_mode

    count = round(share * len(start))
    if not 0 < count < len(start):
        return [count > 0] * len(start)
    ids = torch.tensor([[*prompt_ids, *start]], device=model.device)
    with evaluation_mode(model), torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits[0, len(prompt_ids) - 1 : -1].float()
    entropy = torch.distributions.Categorical(logits=logits).entropy()
    highest = set(entropy.topk(count).indices.tolist())
    return [position in highest for position in range(len(start))]
