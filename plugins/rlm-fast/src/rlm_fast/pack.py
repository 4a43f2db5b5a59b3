"""Packing of a padded batch into layouts without padding, in which shared prefixes occur once.

The sequences of a batch form a prefix tree (`tree_attention.py`): completions of a group share a prompt, prompts
share a chat template or examples, and completions may share their first tokens. The last token of a completion
predicts nothing that is needed, so it is left out.

::

    padded    . . q u | a b e .        packed   q u a b c d d
              . . q u | c d d e                 segments [0, 2), [2, 4) and [4, 7)
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int

from rlm_fast.packed_attention import TreeAttention
from rlm_fast.tree_attention import MIN_SAVED, Segment, ancestors, common_length, prefix_tree


@dataclass(frozen=True)
class Layout:
    """Batch of B sequences with completions of width C, packed into one sequence of T tokens.

    Args:
        ids: Token ids.
        positions: Position of each token in its padded sequence, or that shifted with its whole path.
        attention: Attention over the sequence.
        logits_to_keep: Indices of the tokens whose logits are needed.
        target: The completion tokens these predict.
        source: Index of the log-prob of each completion token; tokens with equal prefixes share one.
        index: Index of each completion token in the flattened (B, C).
        shape: B and C.
    """

    ids: Int[torch.Tensor, "1 T"]
    positions: Int[torch.Tensor, "1 T"]
    attention: TreeAttention
    logits_to_keep: Int[torch.Tensor, "N"]  # noqa: F821
    target: Int[torch.Tensor, "N"]  # noqa: F821
    source: Int[torch.Tensor, "M"]  # noqa: F821
    index: Int[torch.Tensor, "M"]  # noqa: F821
    shape: tuple[int, int]

    def unpack(self, x: Float[torch.Tensor, "N *H"]) -> Float[torch.Tensor, "B C *H"]:  # noqa: F821
        """Scatter one number or vector per target to the padded batch; 0 elsewhere."""
        batch_size, width = self.shape
        empty = x.new_zeros(batch_size * width, *x.shape[1:])
        return empty.index_put((self.index,), x[self.source]).unflatten(0, (batch_size, width))


TOKEN_IDS = 2**32
"""More than the largest token id: position · TOKEN_IDS + token id is unique for each pair."""


def is_packable(attention_mask: Int[torch.Tensor, "B W"], width: int) -> bool:
    """Return True if prompts are padded on the left only and completions, `width` wide, on the right only."""
    prompt, completion = attention_mask[:, :-width].bool(), attention_mask[:, -width:].bool()
    starts_once = prompt[:, 1:] >= prompt[:, :-1]
    ends_once = completion[:, 1:] <= completion[:, :-1]
    return prompt.shape[1] > 0 and bool(prompt[:, -1].all() & starts_once.all() & ends_once.all())


def layouts(
    ids: Int[torch.Tensor, "B W"],
    attention_mask: Int[torch.Tensor, "B W"],
    width: int,
    *,
    live: Sequence[bool] | None = None,
    budget: int | None = None,
    relative: bool = False,
    min_saved: int = MIN_SAVED,
) -> Iterator[Layout]:
    """Yield the layouts of a batch; several if one would exceed the budget.

    Yields:
        At least one layout; an empty one if no token is needed.
    """
    batch = _Batch(ids, attention_mask, width, relative, min_saved)
    pending: list[int] = []
    tokens, previous = 0, None
    for (key, prompt), members in batch.groups(live).items():
        size = len(prompt) + sum(batch.completion_lens[member] - 1 for member in members)
        shared = common_length([prompt, previous[1]]) if previous is not None and previous[0] == key else 0
        if pending and budget is not None and tokens + size - shared > budget:
            yield batch.layout(pending)
            pending, tokens, shared = [], 0, 0
        pending += members
        tokens += size - shared
        previous = key, prompt
    yield batch.layout(pending)


class _Batch:
    """A padded batch, as in `layouts`."""

    def __init__(
        self, ids: torch.Tensor, attention_mask: torch.Tensor, width: int, relative: bool, min_saved: int
    ) -> None:
        self.ids, self.width, self._relative, self._min_saved = ids, width, relative, min_saved
        self._start = ids.shape[1] - width
        self._prompt_lens = attention_mask[:, : self._start].sum(1).tolist()
        self.completion_lens = attention_mask[:, self._start :].sum(1).tolist()
        self._rows = ids.tolist()

    def groups(self, live: Sequence[bool] | None) -> dict[tuple[Hashable, tuple[int, ...]], list[int]]:
        """Return (key, prompt) → its sequences with a completion; prompts with different keys share no token."""
        groups: dict[tuple[Hashable, tuple[int, ...]], list[int]] = {}
        for index, completion_len in enumerate(self.completion_lens):
            if completion_len and (live is None or live[index]):
                prompt = self._rows[index][self._start - self._prompt_lens[index] : self._start]
                groups.setdefault((self._key(index), tuple(prompt)), []).append(index)
        return groups

    def _key(self, member: int) -> Hashable:
        """Return the position of the first token, where positions are absolute."""
        return None if self._relative else self._prompt_lens[member]

    def layout(self, members: Sequence[int]) -> Layout:
        """Build the layout of some sequences."""
        if not members:
            return self._empty()
        firsts = [self._start - self._prompt_lens[member] for member in members]
        stops = [self._start + self.completion_lens[member] - 1 for member in members]
        sequences = [self._rows[member][a:b] for member, a, b in zip(members, firsts, stops, strict=True)]
        segments, last = prefix_tree(sequences, [self._key(member) for member in members], self._min_saved)
        sizes = [segment.stop - segment.start for segment in segments]
        parents = [segment.parent for segment in segments]
        device = self.ids.device
        positions = torch.arange(sum(sizes), device=device).split(sizes)
        tokens, scored, targets, index = [], [], [], []
        for segment in segments:
            first = firsts[segment.sequence]
            tokens.append(self.ids[members[segment.sequence], first + segment.start : first + segment.stop])
        for sequence, member in enumerate(members):
            path_segments = (*ancestors(last[sequence], parents)[::-1], last[sequence])
            path = torch.cat([positions[i] for i in path_segments])
            # The last prompt token predicts the first completion token.
            scored.append(path[self._prompt_lens[member] - 1 :])
            targets.append(self.ids[member, self._start : stops[sequence] + 1])
            index.append(torch.arange(self.completion_lens[member], device=device) + member * self.width)
        predicted, source = (torch.cat(scored) * TOKEN_IDS + torch.cat(targets)).unique(return_inverse=True)
        return Layout(
            ids=torch.cat(tokens).unsqueeze(0),
            positions=torch.cat(self._positions(segments, last, firsts)).unsqueeze(0),
            attention=TreeAttention(tuple(sizes), tuple(parents), device),
            logits_to_keep=predicted // TOKEN_IDS,
            target=predicted % TOKEN_IDS,
            source=source,
            index=torch.cat(index),
            shape=(len(self.ids), self.width),
        )

    def _positions(self, segments: Sequence[Segment], last: Sequence[int], firsts: Sequence[int]) -> list[torch.Tensor]:
        """Return the positions of each segment's tokens; those of a tree start where its longest prompt starts."""
        roots: list[int] = []
        for index, segment in enumerate(segments):
            roots.append(index if segment.parent < 0 else roots[segment.parent])
        first = dict.fromkeys(roots, self.ids.shape[1])
        for index, column in zip(last, firsts, strict=True):
            first[roots[index]] = min(first[roots[index]], column)
        columns = torch.arange(self.ids.shape[1], device=self.ids.device)
        pairs = zip(roots, segments, strict=True)
        return [columns[first[root] + segment.start : first[root] + segment.stop] for root, segment in pairs]

    def _empty(self) -> Layout:
        """Return the layout of one token: wrappers such as DDP must see a call on each process."""
        empty = self.ids.new_empty(0)
        return Layout(
            ids=self.ids[:1, :1],
            positions=torch.zeros_like(self.ids[:1, :1]),
            attention=TreeAttention((1,), (-1,), self.ids.device),
            logits_to_keep=empty,
            target=empty,
            source=empty,
            index=empty,
            shape=(len(self.ids), self.width),
        )
