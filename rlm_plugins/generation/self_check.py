"""Whether the decoding loop writes what transformers writes with a model: tried before it is trusted.

What is known to differ is said in words (`decodes`); the trial is for all else. A model that keeps something of a row
outside its cache, or a cache in another shape, fails here, and is written with by transformers from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int

from rlm_plugins.generation.loop import decode
from rlm_plugins.kernels.plain_linear import is_cast
from rlm_plugins.kernels.rng_guard import DRAWS, FAILS, restored
from rlm_plugins.packing.forward import causal_model

HALF = 0.05
"""Of the range of logits, by which a word is as good: beside others a row's are rounded otherwise, by a hundredth."""
_FOUND: WeakKeyDictionary[Any, dict[bool, str | None]] = WeakKeyDictionary()
"""What was found of a model while it trained, and while it did not: then nothing is dropped."""


def fails(model: Any, generate: Callable[..., Any], *, merge: bool = True) -> str | None:
    """Why the loop is not to be trusted with a model; None: it is. No random number is drawn.

    Args:
        model: With or without adapters.
        generate: Its own.
        merge: Whether adapters are added to their base meanwhile, which takes memory.

    Raises:
        Unfit: By its own settings it asks for what the loop does not do; nothing was tried, so the next call will.
    """
    found = _FOUND.setdefault(model, {})
    if model.training not in found:
        with restored(model.device) as drawn:
            found[model.training] = _try(model, generate, drawn, merge)
    return found[model.training]


def _try(model: Any, generate: Callable[..., Any], drawn: Callable[[], bool], merge: bool) -> str | None:
    """Five rows, two of them twins; what the first one writes as its second token ends a row."""
    device, words = model.device, model.config.get_text_config().vocab_size
    ids = torch.arange(5 * 4, device=device).view(5, 4) * 7 % words
    ids[4] = ids[0]
    there = torch.ones_like(ids)
    there[1:3, :2] = 0
    say = partial(generate, input_ids=ids, attention_mask=there)
    try:
        begun = say(generation_config=_config(2, words - 1))
        end = int(begun[0, 4:][-1])
        usual = say(generation_config=_config(5, end, return_dict_in_generate=True, output_logits=True))
    except FAILS as error:  # what its own settings ask for may not go with being greedy
        return f"the decoding loop cannot be tried with this model ({type(error).__name__}: {error})"
    if drawn():
        return DRAWS
    try:
        found = say(generation_config=_config(5, end), custom_generate=partial(decode, merge=merge))
    except FAILS as error:
        return f"the decoding loop fails with this model ({type(error).__name__}: {error})"
    is_float = next(model.parameters()).dtype == torch.float32
    if is_float and not torch.is_autocast_enabled(device.type) and not is_cast(causal_model(model)):
        same = usual.sequences.shape == found.shape and torch.equal(usual.sequences, found)
    else:
        same = _is_near(found[:, 4:], usual.sequences[:, 4:], torch.stack(usual.logits, 1).float())
    return None if same else "the decoding loop writes otherwise with this model"


def _is_near(
    found: Int[torch.Tensor, "B S"], usual: Int[torch.Tensor, "B T"], logits: Float[torch.Tensor, "B T V"]
) -> bool:
    """Whether each row is what was written usually, until a word came that by its logits was as good."""
    for row, should, z in zip(found, usual, logits, strict=True):
        parted = (row[: len(should)] != should[: len(row)]).nonzero()
        if len(parted):
            at = int(parted[0])
            if z[at].max() - z[at, row[at]] > HALF * (z[at].max() - z[at].min()):
                return False
    return True


def _config(tokens: int, end: int, **asked: bool) -> Any:
    from transformers import GenerationConfig

    ends = {"eos_token_id": end, "pad_token_id": 0}
    return GenerationConfig(max_new_tokens=tokens, do_sample=False, disable_compile=True, **ends, **asked)
