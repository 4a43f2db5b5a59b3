"""Micro-batches grouped by prompt, zero-advantage completions last, and filled within a token budget.

TRL shuffles the completions of a generation. The sum over an optimizer step does not depend on their order. But only
completions in the same micro-batch can share a prompt, and a micro-batch without gradient costs nothing. A budget fills
a micro-batch with whole groups, each shared prefix of prompts counted once; a group is only split if it exceeds the
budget. Without a budget, whole micro-batches are merged while they are small. The portions of an optimizer step are
assigned to its last micro-batches; those without a portion take no time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, pairwise, product
from operator import itemgetter
from typing import Any

import torch

from rlm_fast import linear_layers
from rlm_fast.tree_attention import common_length
from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.equation import Equation
from rlm_plugins.equation.step import objective
from rlm_plugins.errors import PartError
from rlm_plugins.rollout.dynamic_sampling import has_batch_dim
from rlm_plugins.rollout.group_layout import POLICY

_LEAVES = ("logp", "entropy", "values")
_REWARDS = (-1e3, -1.0, 0.0, 0.5, 1.0, 1e3)
"""Rewards of zero-advantage completions: a term may apply to correct ones only, or to wrong ones only."""


def zero_advantage_has_no_gradient(equation: Equation, step: int, sources: Iterable[str] = ()) -> bool:
    """Return True if completions with advantage 0 have no gradient and do not change that of the others.

    A term that raises on the synthetic batch, such as one with a tensor on another device, counts as using them.
    """
    try:
        return equation.is_per_sequence and _is_independent(equation, *_synthetic_batch(step, sources))
    except (PartError, RuntimeError):
        return False


def _is_independent(equation: Equation, batch: Batch, zero: torch.Tensor) -> bool:
    """Return True if the sequences marked in `zero` (B,) have no gradient and leave the others' as it is."""
    gradients = _gradients(equation, batch)
    if any(x[zero].any() for x in gradients):
        return False
    column = zero.unsqueeze(1)
    changed = replace(batch, logp=batch.logp.where(~column, batch.old_logp), entropy=batch.entropy * ~column)
    # A statistic over the batch would carry changed log-probs into the gradients of the others.
    changed_gradients = _gradients(equation, changed)
    return all(torch.equal(x[~zero], y[~zero]) for x, y in zip(gradients, changed_gradients, strict=True))


def _synthetic_batch(step: int, sources: Iterable[str]) -> tuple[Batch, torch.Tensor]:
    """Build a batch of two groups, and return which completions have zero advantage (B,).

    The second group has zero advantage, with every reward, both finished and truncated.
    """
    rng, outcomes = torch.Generator().manual_seed(0), list(product(_REWARDS, (False, True)))
    zero = torch.tensor([False, False] + [True] * len(outcomes))
    count, truncated = len(zero), torch.tensor([False, False] + [is_truncated for _, is_truncated in outcomes])
    num_sequences = torch.tensor(float(count))

    def random_logprobs() -> torch.Tensor:
        return -torch.rand(count, 3, generator=rng)

    batch = Batch(
        group=zero.long(),
        mask=torch.tensor([1, 1, 0]).bool() | truncated.unsqueeze(1),
        truncated=truncated,
        sources={name: torch.ones(count, dtype=torch.bool) for name in (POLICY, *sources)},
        max_completion_length=3,
        step=step,
        rewards=torch.tensor([0.7, -0.7] + [reward for reward, _ in outcomes]),
        advantages=torch.tensor([0.7, -0.7] + [0.0] * len(outcomes)).unsqueeze(1),
        expected_logp=random_logprobs()[:, 0],
        num_tokens=3 * num_sequences,
        num_sequences=num_sequences,
        num_sequences_all=num_sequences,
        num_micro_batches=torch.tensor(1.0),
    )
    for name in ("logp", "old_logp", "ref_logp", "rollout_logp", "entropy", "values", "old_values", "returns"):
        setattr(batch, name, random_logprobs())
    return batch, zero


def _gradients(equation: Equation, batch: Batch) -> list[torch.Tensor]:
    """Return the gradient of the loss in log-probs, entropies and values."""
    leaves = {name: getattr(batch, name).detach().requires_grad_() for name in _LEAVES}
    loss = objective(replace(batch, **leaves), equation)
    gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    return [
        torch.zeros_like(leaf) if gradient is None else gradient
        for leaf, gradient in zip(leaves.values(), gradients, strict=True)
    ]


MicroBatch = dict[str, Any]


def group_by_prompt(micro_batches: Sequence[MicroBatch], step_size: int) -> list[MicroBatch]:
    """Reorder the completions within each optimizer step by prompt; micro-batches keep their sizes."""
    grouped: list[MicroBatch] = []
    for first in range(0, len(micro_batches), step_size):
        step = micro_batches[first : first + step_size]
        chunks = {name: x.chunk(len(step)) for name, x in sorted_by_prompt(step).items()}
        for i, micro_batch in enumerate(step):
            grouped.append({**micro_batch, **{name: x[i] for name, x in chunks.items()}})
    return grouped


def sorted_by_prompt(step: Sequence[MicroBatch]) -> MicroBatch:
    """Return the completions of an optimizer step, sorted by prompt, those with zero advantage last."""
    names = [name for name, x in step[0].items() if has_batch_dim(x)]
    joined = {name: torch.cat(list(map(itemgetter(name), step))) for name in names}
    without_advantage = ~has_advantage(joined["advantages"])
    # The offset sorts completions without advantage behind all groups; stable keeps their order.
    order = torch.argsort(joined["group"] + without_advantage * (joined["group"].max() + 1), stable=True)
    return {name: x[order] for name, x in joined.items()}


def sums_over_step(equation: Equation) -> bool:
    """Return True if the loss is a sum over the optimizer step, not a mean over micro-batches of their means."""
    return not equation.requires("num_micro_batches")


def has_advantage(advantages: torch.Tensor) -> torch.Tensor:
    """Return (B,) True for completions with a nonzero advantage, from advantages (B, 1) or (B, T)."""
    return (advantages != 0).any(1)


KV_SHARE = 8
"""A completion copies the keys and values it attends to. Per token these are less than an eighth of the activations
of a transformer of common shape (`memory_estimate.py`)."""


@dataclass(frozen=True)
class TokenCounts:
    """Tokens of the completions of an optimizer step, sorted by prompt, those that are skipped last.

    Args:
        group: Group of each completion.
        active: False for a skipped completion, which has no tokens.
        completion: Tokens of the completion but the last, which needs no forward pass, and its copied keys and values.
        prompt: Tokens of its prompt.
        shared: Length of the common prefix of its prompt and the prompt of the previous completion.
    """

    group: list[int]
    active: list[bool]
    completion: list[float]
    prompt: list[int]
    shared: list[int]

    @classmethod
    def of_step(cls, step: MicroBatch, active: torch.Tensor, *, relative: bool) -> TokenCounts:
        """Count the tokens of `step`.

        Args:
            step: Completions with `group`, `prompt_ids`, `prompt_mask` and `completion_mask`, sorted by prompt.
            active: (B,) False for a skipped completion.
            relative: Prompts of unequal length may share a prefix.
        """
        prompt_len, tokens = step["prompt_mask"].sum(1), (step["completion_mask"].sum(1) - 1).clamp(min=0)
        return cls(
            group=step["group"].tolist(),
            active=active.tolist(),
            completion=((tokens + (prompt_len + 2 * tokens) / KV_SHARE) * active).tolist(),
            prompt=(prompt_len * active).tolist(),
            shared=(_shared_with_previous(step, prompt_len.tolist(), relative) * active).tolist(),
        )

    def added_by(self, members: Sequence[int], *, to_empty: bool) -> float:
        """Return the tokens that consecutive completions add to a portion: an empty one, or that of the ones before."""
        first = members[0]
        completions = sum(self.completion[member] for member in members)
        prompts = sum(self.prompt[member] - self.shared[member] for member in members)
        return completions + prompts + (self.shared[first] if to_empty else 0)


def _shared_with_previous(step: MicroBatch, prompt_len: Sequence[int], relative: bool) -> torch.Tensor:
    """Return (B,) the length of the common prefix of each prompt and the previous one; 0 for the first prompt."""
    group, width = step["group"].tolist(), step["prompt_mask"].shape[1]
    shared = torch.zeros_like(step["group"])
    for previous, row in pairwise(range(len(group))):
        if group[previous] == group[row]:
            shared[row] = prompt_len[row]
        elif relative or prompt_len[previous] == prompt_len[row]:
            prompts = [step["prompt_ids"][i, width - prompt_len[i] :].tolist() for i in (previous, row)]
            shared[row] = common_length(prompts)
    return shared


def full_length_tokens(num_sequences: int, prompt_len: int, completion_len: int) -> float:
    """Return the weight in tokens of sequences of full length, each with its own prompt."""
    tokens = completion_len - 1
    return num_sequences * (prompt_len + tokens + (prompt_len + 2 * tokens) / KV_SHARE)


PORTIONS = "portions"
"""Key of a micro-batch under which its portions are stored."""


SplitRule = Callable[[TokenCounts], list[int]]
"""Tokens of an optimizer step → number of completions of each portion."""


def split_rule(
    max_tokens: int | str | None,
    *,
    num_sequences: int,
    prompt_width: int,
    completion_width: int,
    num_parameters: int,
) -> SplitRule:
    """Return the rule by which the completions of an optimizer step are split into portions."""
    most = budget(max_tokens, full_length_tokens(num_sequences, prompt_width, completion_width), num_parameters)
    if max_tokens is None:
        return partial(merge_micro_batches, num_sequences=num_sequences, max_tokens=most)
    return partial(split_groups, max_tokens=most)


def budget(max_tokens: int | str | None, full_length: float, num_parameters: int) -> float:
    """Return the most tokens of a portion; `full_length` is that of the recipe's micro-batch."""
    if max_tokens is None:
        return linear_layers.merged_tokens(num_parameters, full_length)
    return full_length if max_tokens == "auto" else float(max_tokens)


def split_into_portions(
    micro_batches: Sequence[MicroBatch],
    step_size: int,
    rule: SplitRule,
    *,
    skip_zero_advantage: bool = False,
    relative: bool = False,
    max_over_ranks: Callable[[int], int] = int,
) -> list[MicroBatch]:
    """Split the completions of each optimizer step into portions, and give each micro-batch a list of them.

    The micro-batches have `PORTIONS` only: mostly one portion, sometimes none.
    """
    result: list[MicroBatch] = []
    for first in range(0, len(micro_batches), step_size):
        step = micro_batches[first : first + step_size]
        ordered = sorted_by_prompt(step)
        if skip_zero_advantage:
            active = has_advantage(ordered["advantages"])
        else:
            active = torch.ones_like(ordered["group"], dtype=torch.bool)
        counts = rule(TokenCounts.of_step(ordered, active, relative=relative))
        # Every process must run the same number of backward passes, or DDP would wait forever.
        counts = halve_until(counts, max_over_ranks(len(counts)))
        chunks = {name: x.split(counts) for name, x in ordered.items()}
        shared = {name: x for name, x in step[0].items() if not has_batch_dim(x)}
        portions: list[MicroBatch] = []
        for i in range(len(counts)):
            portions.append({**shared, **{name: x[i] for name, x in chunks.items()}})
        # The last micro-batch always gets a portion, since gradients are synchronized there.
        bounds = [len(portions) * i // step_size for i in range(step_size + 1)]
        result += [{PORTIONS: portions[low:high]} for low, high in pairwise(bounds)]
    return result


def split_groups(tokens: TokenCounts, max_tokens: float) -> list[int]:
    """Return the number of completions of each portion; groups are kept together if they fit."""
    keys = list(zip(tokens.group, tokens.active, strict=True))
    chunks: list[Sequence[int]] = []
    for _, indices in groupby(range(len(keys)), key=keys.__getitem__):
        members = list(indices)
        is_whole = tokens.added_by(members, to_empty=True) <= max_tokens
        chunks += [members] if is_whole else [[member] for member in members]
    return _fill(tokens, chunks, max_tokens)


def merge_micro_batches(tokens: TokenCounts, *, num_sequences: int, max_tokens: float) -> list[int]:
    """Return the number of completions of each portion; neighboring micro-batches are merged within the budget."""
    count = len(tokens.group)
    chunks = [range(first, min(first + num_sequences, count)) for first in range(0, count, num_sequences)]
    return _fill(tokens, chunks, max_tokens)


def _fill(tokens: TokenCounts, chunks: Sequence[Sequence[int]], max_tokens: float) -> list[int]:
    """Return the number of completions of each portion, filled with consecutive chunks that are kept together."""
    sizes, filled = [0], 0.0
    for members in chunks:
        added = tokens.added_by(members, to_empty=not sizes[-1])
        if sizes[-1] and filled + added > max_tokens:
            sizes, filled, added = [*sizes, 0], 0.0, tokens.added_by(members, to_empty=True)
        sizes[-1] += len(members)
        filled += added
    return sizes


def halve_until(sizes: Sequence[int], count: int) -> list[int]:
    """Halve the largest portion until there are `count` portions."""
    halved = list(sizes)
    while len(halved) < count:
        i = halved.index(max(halved))
        halved[i : i + 1] = [halved[i] - halved[i] // 2, halved[i] // 2]
    return halved
