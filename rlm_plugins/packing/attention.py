"""Attention over a packed layout: a prompt sees itself, a completion sees its prompt and itself.

It stands in transformers' register of attention functions, and takes over where a pass brings a layout; every other
pass goes on to the function the model had before, so that generation is untouched. The gradient of all branches flows
into the one trunk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention as attend
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from rlm_plugins.packing.layout import Layout

USUAL = ("sdpa", "eager")
"""The implementations it can stand in for."""
OURS = "rlm_"
"""Before their names where it does."""
OTHER = ("softcap", "position_bias", "s_aux")
"""What may bend the scores of a model. At its start that may be too little for a trial to see."""


def usual(model: Any) -> str:
    """The attention of a transformers model, whether ours stands in for it already or not."""
    return str(model.config._attn_implementation).removeprefix(OURS)


def install(model: Any) -> None:
    """Lets `model`, a transformers model whose attention is one of `USUAL`, take passes with a layout."""
    own = model.config._attn_implementation
    if own in USUAL:
        name = OURS + own
        if name not in ALL_ATTENTION_FUNCTIONS.valid_keys():
            AttentionInterface.register(name, _beside(own))
            AttentionMaskInterface.register(name, ALL_MASK_ATTENTION_FUNCTIONS[own])
        model.set_attn_implementation(name)


def uninstall(model: Any) -> None:
    """Undoes `install`."""
    if model.config._attn_implementation != usual(model):
        model.set_attn_implementation(usual(model))


def _beside(own: str) -> Callable[..., Any]:
    def attention(module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **options: Any) -> Any:
        layout: Layout | None = options.pop("layout", None)
        if layout is not None:
            _check(attention_mask, options)
            return over(layout, query, key, value, options.get("scaling")), None
        eager = own == "eager" and _eager_of(module)
        return (eager or ALL_ATTENTION_FUNCTIONS[own])(module, query, key, value, attention_mask, **options)

    return attention


def _check(mask: torch.Tensor | None, options: Mapping[str, Any]) -> None:
    """Raises what a trial takes for an answer.

    Raises:
        TypeError: A model bends the scores, or has a mask of its own in place of the one `packed.inputs_of` gives it.
    """
    if odd := [name for name in OTHER if options.get(name) is not None]:
        raise TypeError(f"packed rows know no `{odd[0]}` of attention")
    if mask is not None and mask.numel() > 1:
        raise TypeError("packed rows know no mask of a model's own")


def _eager_of(module: Any) -> Callable[..., Any]:
    """A model's own eager attention: each file of transformers that has one defines it beside its modules."""
    import sys

    found: Callable[..., Any] = sys.modules[type(module).__module__].eager_attention_forward  # type: ignore[attr-defined]
    return found


def over(
    layout: Layout, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None
) -> torch.Tensor:
    """Attention of one packed sequence.

    Args:
        layout: Who sees whom.
        query: (1, heads, T, d).
        key: (1, heads or fewer, T, d); a head of it serves as many consecutive ones of the query as there are more.
        value: Like `key`.
        scale: Of the scores; None: 1/√d.

    Returns:
        (1, T, heads, d).
    """
    shares = query.shape[1] > key.shape[1]
    if shares and query.device.type != "cpu":  # only the CPU's kernel takes fewer heads and a mask together
        times = query.shape[1] // key.shape[1]
        key, value, shares = key.repeat_interleave(times, 1), value.repeat_interleave(times, 1), False
    sizes = [run.tokens for tree in layout.trees for run in tree.runs]
    pieces = zip(*(x.split(sizes, 2) for x in (query, key, value)), strict=True)
    found = []
    for tree in layout.trees:
        for run in tree.runs:
            q, k, v = next(pieces)
            if run.sees is None:
                prompt = k[:, :, : tree.shown], v[:, :, : tree.shown]
            else:
                k, v = torch.cat([prompt[0], k], 2), torch.cat([prompt[1], v], 2)
            mask = run.mask(q.dtype)
            found.append(attend(q, k, v, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=shares))
    return torch.cat([x.transpose(1, 2) for x in found], 1)
