"""Several continuations of one text, from several places of it: how likely each is, read as a tree or one by one.

As a tree the text is there once, and each continuation is a branch that sees the text up to its cut and itself::

    text       a b c d e f
    branches       └ x y        from 2: x y
                       └ x y    from 4: x y
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxtyping import Float

from rlm_plugins.lazy import torch

Branch = tuple[Sequence[int], Sequence[int]]
"""What is said before, and the tokens whose likelihood is asked; token ids."""


def read_tree(
    model: Any, trunk: Sequence[int], cuts: Sequence[int], branches: Sequence[Branch]
) -> Float[torch.Tensor, "S K"]:
    """Mean −log π of the asked tokens of each branch (column), grown from each cut (line), in one pass."""
    ids, places, seen, asked = list(trunk), list(range(len(trunk))), [len(trunk)], []
    for cut in cuts:
        for lead, answer in branches:
            grown = [*lead, *answer[:-1]]
            before = [len(ids) + len(lead) - 1 if lead else cut - 1]
            asked.append(before + [len(ids) + len(lead) + place for place in range(len(answer) - 1)])
            seen.append(len(grown))
            places += range(cut, cut + len(grown))
            ids += grown
    device = model.device
    sees = _sees(seen, [cut for cut in cuts for _ in branches], device)
    mask = torch.zeros_like(sees, dtype=model.dtype).masked_fill(~sees, torch.finfo(model.dtype).min)
    logits = model(
        input_ids=torch.tensor([ids], device=device),
        position_ids=torch.tensor([places], device=device),
        attention_mask=mask[None, None],
        logits_to_keep=torch.tensor([place for row in asked for place in row], device=device),
        use_cache=False,
    ).logits[0]
    return _means(logits, [answer for _ in cuts for _, answer in branches]).view(len(cuts), len(branches))


def _sees(sizes: Sequence[int], cuts: Sequence[int], device: Any) -> torch.Tensor:
    """(N, N): who sees whom; `sizes` of trunk and branches, and where each branch was cut off."""
    sees = torch.ones(sum(sizes), sum(sizes), dtype=torch.bool, device=device).tril()
    start = sizes[0]
    for size, cut in zip(sizes[1:], cuts, strict=True):
        sees[start : start + size, cut:start] = False
        start += size
    return sees


def read_rows(
    model: Any, trunk: Sequence[int], cuts: Sequence[int], branches: Sequence[Branch]
) -> Float[torch.Tensor, "S K"]:
    """As :func:`read_tree`, each branch with its text in a row of its own, padded on the right."""
    rows = [[*trunk[:cut], *lead, *answer] for cut in cuts for lead, answer in branches]
    width = max(map(len, rows))
    ids = torch.tensor([row + row[-1:] * (width - len(row)) for row in rows], device=model.device)
    there = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=model.device)
    logits = model(input_ids=ids, attention_mask=there, use_cache=False).logits
    answers = [answer for _ in cuts for _, answer in branches]
    kept = [
        line[len(row) - len(answer) - 1 : len(row) - 1] for line, row, answer in zip(logits, rows, answers, strict=True)
    ]
    return _means(torch.cat(kept), answers).view(len(cuts), len(branches))


def _means(logits: Float[torch.Tensor, "N V"], answers: Sequence[Sequence[int]]) -> Float[torch.Tensor, "B"]:
    """Mean −log π over each of B answers; `logits` stand side by side, those of one answer after those of another."""
    target = torch.tensor([token for answer in answers for token in answer], device=logits.device)
    cost = -logits.float().log_softmax(-1).gather(1, target[:, None]).squeeze(1)
    return torch.stack([part.mean() for part in cost.split([len(answer) for answer in answers])])
