"""Likelihoods of several continuations from several positions of one text, by a tree-shaped or a padded forward pass.

In the tree the text occurs once. Each continuation is a branch that attends to the text up to its cut and to itself::

    text       a b c d e f
    branches       └ x y        from 2: x y
                       └ x y    from 4: x y
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from jaxtyping import Float

from rlm_plugins.lazy import torch

Branch = tuple[Sequence[int], Sequence[int]]
"""(ids between the cut and the answer, ids of the answer whose likelihood is computed)."""


def tree_forward(
    model: Any, trunk: Sequence[int], cuts: Sequence[int], branches: Sequence[Branch]
) -> Float[torch.Tensor, "S K"]:
    """Compute the mean −log π of each branch's answer (column) from each cut (line) in one forward pass over a tree."""
    ids, position_ids, lengths, logit_positions = list(trunk), list(range(len(trunk))), [len(trunk)], []
    for cut in cuts:
        for lead, answer in branches:
            branch_ids = [*lead, *answer[:-1]]
            first_position = [len(ids) + len(lead) - 1 if lead else cut - 1]
            logit_positions.append(
                first_position + [len(ids) + len(lead) + position for position in range(len(answer) - 1)]
            )
            lengths.append(len(branch_ids))
            position_ids += range(cut, cut + len(branch_ids))
            ids += branch_ids
    device = model.device
    visible = _visibility(lengths, [cut for cut in cuts for _ in branches], device)
    mask = torch.zeros_like(visible, dtype=model.dtype).masked_fill(~visible, torch.finfo(model.dtype).min)
    logits = model(
        input_ids=torch.tensor([ids], device=device),
        position_ids=torch.tensor([position_ids], device=device),
        attention_mask=mask[None, None],
        logits_to_keep=torch.tensor(list(chain.from_iterable(logit_positions)), device=device),
        use_cache=False,
    ).logits[0]
    return _mean_nll(logits, [answer for _ in cuts for _, answer in branches]).view(len(cuts), len(branches))


def _visibility(sizes: Sequence[int], cuts: Sequence[int], device: Any) -> torch.Tensor:
    """Return (N, N), True where token i attends to token j.

    Args:
        sizes: Lengths of the trunk and of each branch.
        cuts: Position in the trunk where each branch starts.
        device: Device of the result.
    """
    visible = torch.ones(sum(sizes), sum(sizes), dtype=torch.bool, device=device).tril()
    start = sizes[0]
    for size, cut in zip(sizes[1:], cuts, strict=True):
        visible[start : start + size, cut:start] = False
        start += size
    return visible


def padded_forward(
    model: Any, trunk: Sequence[int], cuts: Sequence[int], branches: Sequence[Branch]
) -> Float[torch.Tensor, "S K"]:
    """Compute the same as :func:`tree_forward` with one right-padded sequence per branch."""
    sequences = [[*trunk[:cut], *lead, *answer] for cut in cuts for lead, answer in branches]
    width = max(map(len, sequences))
    ids = torch.tensor(
        [sequence + sequence[-1:] * (width - len(sequence)) for sequence in sequences], device=model.device
    )
    attention_mask = torch.tensor(
        [[1] * len(sequence) + [0] * (width - len(sequence)) for sequence in sequences], device=model.device
    )
    logits = model(input_ids=ids, attention_mask=attention_mask, use_cache=False).logits
    answers = [answer for _ in cuts for _, answer in branches]
    answer_logits = [
        sequence_logits[len(sequence) - len(answer) - 1 : len(sequence) - 1]
        for sequence_logits, sequence, answer in zip(logits, sequences, answers, strict=True)
    ]
    return _mean_nll(torch.cat(answer_logits), answers).view(len(cuts), len(branches))


def _mean_nll(logits: Float[torch.Tensor, "N V"], answers: Sequence[Sequence[int]]) -> Float[torch.Tensor, "B"]:
    """Return the mean −log π over each of B answers; `logits` are concatenated over the answers."""
    target = torch.tensor([token for answer in answers for token in answer], device=logits.device)
    nll = -logits.float().log_softmax(-1).gather(1, target[:, None]).squeeze(1)
    return torch.stack([tokens.mean() for tokens in nll.split([len(answer) for answer in answers])])
