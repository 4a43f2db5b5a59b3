"""How a padded batch is laid out as one sequence of live tokens, or several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Bool, Int

from rlm_plugins.kernels.chunk_sizes import PAIRS, PAIRS_GPU, runs
from rlm_plugins.packing.layout import Layout, Run, Tree


def is_packable(there: Int[torch.Tensor, "B W"], width: int) -> bool:
    """Whether padding only surrounds the rows: prompts padded on the left, completions on the right."""
    prompt, completion = there[:, :-width].bool(), there[:, -width:].bool()
    grows, shrinks = prompt[:, 1:] >= prompt[:, :-1], completion[:, 1:] <= completion[:, :-1]
    return prompt.shape[1] > 0 and bool(prompt[:, -1].all() & grows.all() & shrinks.all())


def layouts(
    ids: Int[torch.Tensor, "B W"],
    there: Int[torch.Tensor, "B W"],
    width: int,
    *,
    live: Sequence[bool] | None = None,
    budget: int | None = None,
) -> Iterator[Layout]:
    """The layouts of a batch; several where one would be longer than the budget.

    Args:
        ids: Prompts, padded on the left, and completions, padded on the right.
        there: 1 where a token is no padding.
        width: Of the completions.
        live: Whether a row is asked for at all. Default: every row.
        budget: Most tokens of one layout; a single tree may be longer, a tree is never cut.

    Yields:
        At least one layout; where no token is asked for, one that reads nothing.
    """
    before = there[:, :-width].sum(1).tolist()
    after = there[:, -width:].sum(1).tolist()
    start = ids.shape[1] - width
    prompts = ids[:, :start].tolist()
    groups: dict[tuple[int, ...], list[int]] = {}
    for row, (shown, written) in enumerate(zip(before, after, strict=True)):
        if written and (live is None or live[row]):
            groups.setdefault(tuple(prompts[row][start - shown :]), []).append(row)
    pending: list[list[int]] = []
    tokens = 0
    for rows in groups.values():
        size = before[rows[0]] + sum(after[row] - 1 for row in rows)
        if pending and budget is not None and tokens + size > budget:
            yield _layout(ids, width, pending, before, after)
            pending, tokens = [], 0
        pending.append(rows)
        tokens += size
    yield _layout(ids, width, pending, before, after)


def _layout(
    ids: torch.Tensor, width: int, groups: Sequence[Sequence[int]], before: Sequence[int], after: Sequence[int]
) -> Layout:
    start, columns = ids.shape[1] - width, torch.arange(ids.shape[1], device=ids.device)
    tokens, positions, read, target, place, trees = [], [], [], [], [], []
    at = 0
    for rows in groups:
        shown = before[rows[0]]
        tokens.append(ids[rows[0], start - shown : start])
        positions.append(columns[start - shown : start])
        at += shown
        trunk = at - 1
        trees.append(_tree(shown, [after[row] - 1 for row in rows], ids.device))
        for row in rows:
            end = start + after[row]
            branch = (at, at + after[row] - 1)
            at = branch[1]
            tokens.append(ids[row, start : end - 1])
            positions.append(columns[start : end - 1])
            read += [columns.new_tensor([trunk]), torch.arange(*branch, device=ids.device)]
            target.append(ids[row, start:end])
            place.append(columns[: after[row]] + row * width)
    if not trees:  # a model is asked something all the same: its wrappers count on every process taking part
        tokens, positions = [ids[0, :1]], [columns[:1]]
        trees.append(_tree(1, [], ids.device))
    empty = columns[:0]
    return Layout(
        ids=torch.cat(tokens).unsqueeze(0),
        positions=torch.cat(positions).unsqueeze(0),
        trees=tuple(trees),
        read=torch.cat([empty, *read]),
        target=torch.cat([empty, *target]),
        place=torch.cat([empty, *place]),
        shape=(len(ids), width),
    )


def _tree(shown: int, lengths: Sequence[int], device: torch.device) -> Tree:
    first, *rest = runs([n for n in lengths if n], PAIRS if device.type == "cpu" else PAIRS_GPU)
    others = (Run(sum(run), _seen(shown, run, device)) for run in rest)
    return Tree(shown, (Run(shown + sum(first)), *others))


def _seen(shown: int, lengths: Sequence[int], device: torch.device) -> Bool[torch.Tensor, "n P+n"]:
    prompt = torch.ones(sum(lengths), shown, dtype=torch.bool, device=device)
    own = (torch.ones(n, n, dtype=torch.bool, device=device).tril() for n in lengths)
    return torch.cat([prompt, torch.block_diag(*own)], 1)
