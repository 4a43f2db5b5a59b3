"""r of turns (hook ``rlm_shapers``): what each of them was worth, put where it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jaxtyping import Bool, Float

from rlm_plugins.errors import PartError
from rlm_plugins.ingredients.borrowed import borrow_function, called
from rlm_plugins.lazy import torch
from rlm_process.knobs import Address
from rlm_process.pieces import pieces
from rlm_process.turns import turns


def per_turn(
    completion_ids: Sequence[Sequence[int]],
    mask: Bool[torch.Tensor, "B T"],
    inputs: Sequence[Mapping[str, Any]],
    tokenizer: Any,
    *,
    by: Address,
    weight: float = 1.0,
) -> Float[torch.Tensor, "B T"]:
    """Pays each turn, on its last token, what a function of yours says of it.

    r′ᵢₜ = rᵢₜ + weight · f(turn) on the last token t of a turn: f is found at `by`.

    f is called once per row and takes what it names: `said`, the text of each turn; `heard`, what was said to the
    policy before each of them (before the first, nothing but what stands in the prompt); and the columns of the data
    set. It returns one number per turn, or None for one that it does not judge.

    A turn is a run of tokens that are trained on: see :func:`turns`.
    """
    function = borrow_function(by, where="shapers: per_turn.by")
    paid = torch.zeros(mask.shape, device=mask.device)
    for row, (ids, owner) in enumerate(zip(completion_ids, turns(mask).tolist(), strict=True)):
        texts, count = pieces(ids, tokenizer), max(owner, default=-1) + 1
        said, heard = [""] * count, [""] * (count + 1)
        last, upcoming = [0] * count, 0
        for token, text in enumerate(texts):
            if owner[token] < 0:
                heard[upcoming] += text
            else:
                said[owner[token]] += text
                last[owner[token]], upcoming = token, owner[token] + 1
        scores = called(function, {**inputs[row], "said": said, "heard": heard[:count]})
        for place, score in zip(last, _one_each(scores, count, by), strict=True):
            paid[row, place] = weight * (score or 0.0)
    return paid


def _one_each(scores: Any, count: int, by: str) -> list[float | None]:
    found = list(scores) if isinstance(scores, Sequence) and not isinstance(scores, str) else None
    if found is None or len(found) != count or not all(x is None or isinstance(x, int | float) for x in found):
        raise PartError(f"'{by}' returned {scores!r:.80}", where="shapers: per_turn.by", allowed=f"{count} numbers")
    return found
