"""Rows without padding, each prompt once: how a padded batch is laid out as one sequence of live tokens.

Rows of a group start with the same prompt. One copy of it serves them all: as a tree whose trunk is the prompt and
whose branches are the completions. The last token of a completion predicts nothing that is asked, so it is left out.

::

    padded    . . q u | a b e .        packed   q u a b c d d
              . . q u | c d d e                 trunk [0, 2), branches [2, 4) and [4, 7)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int

from rlm_plugins.speed.sizes import PAIRS, PAIRS_GPU, runs


@dataclass(frozen=True)
class Run:
    """Tokens side by side for which attention is called once.

    Args:
        tokens: How many they are.
        sees: Which tokens of the prompt and of the run they see; None: the run starts with the prompt, and each sees
            all before it.
    """

    tokens: int
    sees: Bool[torch.Tensor, "n P+n"] | None = None
    _masks: dict[torch.dtype, torch.Tensor] = field(default_factory=dict)

    def mask(self, dtype: torch.dtype) -> torch.Tensor | None:
        """What is added to the scores, made once for all layers: 0, or −∞ where a token does not see another."""
        if self.sees is not None and dtype not in self._masks:
            nothing = torch.zeros(self.sees.shape, dtype=dtype, device=self.sees.device)
            self._masks[dtype] = nothing.masked_fill_(~self.sees, -torch.inf)
        return self._masks.get(dtype)


@dataclass(frozen=True)
class Tree:
    """One prompt and what was written after it.

    Args:
        shown: Tokens of the prompt.
        runs: They follow each other in the packed sequence; the first holds the prompt and one completion.
    """

    shown: int
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Layout:
    """A batch of B rows with completions of width C, as one sequence of T live tokens.

    Args:
        ids: Token ids.
        positions: Of each token in its padded row, which is where the padded pass has it too.
        trees: Who sees whom.
        read: The tokens after which a completion token is asked for.
        target: The completion tokens asked for.
        place: Where each of them stands in the flattened (B, C).
        shape: B and C.
    """

    ids: Int[torch.Tensor, "1 T"]
    positions: Int[torch.Tensor, "1 T"]
    trees: tuple[Tree, ...]
    read: Int[torch.Tensor, "N"]  # noqa: F821
    target: Int[torch.Tensor, "N"]  # noqa: F821
    place: Int[torch.Tensor, "N"]  # noqa: F821
    shape: tuple[int, int]

    def padded(self, x: Float[torch.Tensor, "N"]) -> Float[torch.Tensor, "B C"]:  # noqa: F821
        """What was read, where it belongs; 0 where nothing was."""
        rows, width = self.shape
        return x.new_zeros(rows * width).index_put((self.place,), x).view(rows, width)


def is_packable(there: Int[torch.Tensor, "B W"], width: int) -> bool:
    """Whether padding only surrounds the rows: prompts padded on the left, completions on the right."""
    prompt, completion = there[:, :-width].bool(), there[:, -width:].bool()
    grows = bool((prompt[:, 1:] >= prompt[:, :-1]).all())
    shrinks = bool((completion[:, 1:] <= completion[:, :-1]).all())
    return grows and shrinks and bool(prompt[:, -1:].all()) and prompt.shape[1] > 0


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
    groups: dict[tuple[int, ...], list[int]] = {}
    for row, (shown, written) in enumerate(zip(before, after, strict=True)):
        if written and (live is None or live[row]):
            groups.setdefault(tuple(ids[row, start - shown : start].tolist()), []).append(row)
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
