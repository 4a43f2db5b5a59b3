"""Packing of a padded batch into one or several layouts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Bool, Int

from rlm_plugins.kernels.chunk_sizes import PAIRS, PAIRS_GPU, attention_calls
from rlm_plugins.packing.layout import Layout, Run, Tree


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
) -> Iterator[Layout]:
    """Yield the layouts of a batch; several if one would exceed the budget.

    Args:
        ids: Prompts, padded on the left, and completions, padded on the right.
        attention_mask: 1 for tokens, 0 for padding.
        width: Width of the completions.
        live: True for each sequence that is needed; None: all.
        budget: Most tokens of a layout. A prompt with its completions is never cut, so one of them may exceed it.

    Yields:
        At least one layout; an empty one if no token is needed.
    """
    prompt_lens = attention_mask[:, :-width].sum(1).tolist()
    completion_lens = attention_mask[:, -width:].sum(1).tolist()
    start = ids.shape[1] - width
    prompts = ids[:, :start].tolist()
    groups: dict[tuple[int, ...], list[int]] = {}
    for index, (prompt_len, completion_len) in enumerate(zip(prompt_lens, completion_lens, strict=True)):
        if completion_len and (live is None or live[index]):
            groups.setdefault(tuple(prompts[index][start - prompt_len :]), []).append(index)
    pending: list[list[int]] = []
    tokens = 0
    for members in groups.values():
        size = prompt_lens[members[0]] + sum(completion_lens[index] - 1 for index in members)
        if pending and budget is not None and tokens + size > budget:
            yield _layout(ids, width, pending, prompt_lens, completion_lens)
            pending, tokens = [], 0
        pending.append(members)
        tokens += size
    yield _layout(ids, width, pending, prompt_lens, completion_lens)


def _layout(
    ids: torch.Tensor,
    width: int,
    groups: Sequence[Sequence[int]],
    prompt_lens: Sequence[int],
    completion_lens: Sequence[int],
) -> Layout:
    """Build the layout of some groups of sequences that share a prompt."""
    start, columns = ids.shape[1] - width, torch.arange(ids.shape[1], device=ids.device)
    tokens, positions, logits_to_keep, target, index, trees = [], [], [], [], [], []
    at = 0
    for members in groups:
        prompt_len = prompt_lens[members[0]]
        tokens.append(ids[members[0], start - prompt_len : start])
        positions.append(columns[start - prompt_len : start])
        at += prompt_len
        last_of_prompt = at - 1
        trees.append(_tree(prompt_len, [completion_lens[member] - 1 for member in members], ids.device))
        for member in members:
            end = start + completion_lens[member]
            branch = (at, at + completion_lens[member] - 1)
            at = branch[1]
            tokens.append(ids[member, start : end - 1])
            positions.append(columns[start : end - 1])
            # The last prompt token predicts the first completion token, for each completion anew.
            logits_to_keep += [columns.new_tensor([last_of_prompt]), torch.arange(*branch, device=ids.device)]
            target.append(ids[member, start:end])
            index.append(columns[: completion_lens[member]] + member * width)
    if not trees:  # the model must be called all the same: wrappers such as DDP synchronize over processes
        tokens, positions = [ids[0, :1]], [columns[:1]]
        trees.append(_tree(1, [], ids.device))
    empty = columns[:0]
    return Layout(
        ids=torch.cat(tokens).unsqueeze(0),
        positions=torch.cat(positions).unsqueeze(0),
        trees=tuple(trees),
        logits_to_keep=torch.cat([empty, *logits_to_keep]),
        target=torch.cat([empty, *target]),
        index=torch.cat([empty, *index]),
        shape=(len(ids), width),
    )


def _tree(prompt_len: int, lengths: Sequence[int], device: torch.device) -> Tree:
    """Return a prompt with completions of these lengths, grouped by attention call."""
    pairs = PAIRS if device.type == "cpu" else PAIRS_GPU
    first, *rest = attention_calls([n for n in lengths if n], pairs)
    others = (Run(sum(run), _visible(prompt_len, run, device)) for run in rest)
    return Tree(prompt_len, (Run(prompt_len + sum(first)), *others))


def _visible(prompt_len: int, lengths: Sequence[int], device: torch.device) -> Bool[torch.Tensor, "n P+n"]:
    """Return the mask of several completions: the prompt, and each completion's own earlier tokens."""
    prompt = torch.ones(sum(lengths), prompt_len, dtype=torch.bool, device=device)
    own = (torch.ones(n, n, dtype=torch.bool, device=device).tril() for n in lengths)
    return torch.cat([prompt, torch.block_diag(*own)], 1)
