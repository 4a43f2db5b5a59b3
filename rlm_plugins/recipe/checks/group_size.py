"""Checks of the group size against advantages and filters, and of the bounds of dynamic sampling."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from rlm_plugins.equation.batch import Batch
from rlm_plugins.errors import RecipeError
from rlm_plugins.lazy import torch
from rlm_plugins.recipe.checks.part_needs import iter_parts
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound, Part
from rlm_plugins.rollout.group_layout import POLICY, assign_sources, label, labels

TOO_SMALL = {
    "advantage": "`{0}` compares the completions of a group: in groups of {1} it is 0 whatever the rewards are",
    "filters": "`{0}` keeps no completion of a group of {1}, whatever the rewards are",
}
"""Slot → the problem of a part that gives no signal for such small groups."""


def check_groups(slots: Mapping[str, Any], size: int, rewards: Sequence[str], where: str, registry: Registry) -> None:
    """Check that advantages and filters give a signal for groups of `size`; the error suggests other parts."""
    for slot, bound, address in iter_parts(slots, where):
        is_checked = slot in TOO_SMALL and (slot != "advantage" or _reads_advantages(slots["policy_loss"]))
        if is_checked and (minimum := min_group_size(bound, size, rewards, slots["rollouts"])):
            alternatives = _alternatives(size, rewards, slots["rollouts"], registry) if slot == "advantage" else ""
            raise RecipeError(
                f"{TOO_SMALL[slot].format(bound.part.name, size)}, so nothing would be trained",
                where=address,
                allowed=f"`trainer.num_generations` of {minimum} or more",
                hint=f"an advantage for groups of {size}: {alternatives}" if alternatives else "",
            )


def _reads_advantages(loss: Bound) -> bool:
    return "advantages" in loss.part.data


def _alternatives(size: int, rewards: Sequence[str], sources: Sequence[Bound], registry: Registry) -> str:
    """Return the advantages that give a signal for groups of `size`, with their default knobs."""
    parts = [part for part in registry.parts_of("rlm_advantages") if not _has_required_knob(part)]
    return ", ".join(part.name for part in parts if has_signal(part.bind({}), size, rewards, sources))


def _has_required_knob(part: Part) -> bool:
    return any(field.is_required() for field in part.knobs.model_fields.values())


def check_refills(filters: Sequence[Bound], where: str) -> None:
    """Check that filters that refill agree on the number of sampling rounds."""
    bounds = [(part.part.name, part.options["refill"]) for part in filters if part.options.get("refill")]
    if len({bound for _, bound in bounds}) > 1:
        refills = " and ".join(f"`{name}` has `refill: {bound}`" for name, bound in bounds)
        hint = "set the same `refill` in each: sampling ends when all of them keep something, or at the bound"
        raise RecipeError(f"expected one bound for the whole batch, but {refills}", where=where, hint=hint)


LARGE = 64
"""Group size in which every part gives a signal, if any does."""


def min_group_size(part: Bound, size: int, rewards: Sequence[str], sources: Sequence[Bound] = ()) -> int:
    """Return the smallest group size for which a part gives a signal, if `size` gives none; otherwise 0.

    The signal of an advantage is a value other than 0, that of a filter a kept completion.
    """
    if size >= LARGE or has_signal(part, size, rewards, sources) or not has_signal(part, LARGE, rewards, sources):
        return 0
    return next(larger for larger in range(size + 1, LARGE + 1) if has_signal(part, larger, rewards, sources))


def has_signal(part: Bound, size: int, rewards: Sequence[str], sources: Sequence[Bound] = ()) -> bool:
    """Return True if a part returns a nonzero value (or True) for groups of `size`; a part that fails does not."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for batch in _batches(size, rewards, sources):
            with suppress(Exception):
                stateless = replace(part, target=copy.deepcopy(part.target))  # the state of the part must not change
                output: Any = stateless(batch)
                output = output[0] if isinstance(output, tuple) else output
                if bool((output.nan_to_num() != 0).any()):
                    return True
    return False


def _batches(size: int, rewards: Sequence[str], sources: Sequence[Bound]) -> Iterator[Batch]:
    """Yield groups with every number of correct completions, with rewards 0 and 1, and with distinct rewards."""
    correct = (torch.arange(size) < torch.arange(size + 1).unsqueeze(1)).flatten().float()
    for scores in (correct, correct + torch.rand(len(correct), generator=torch.Generator().manual_seed(0))):
        yield _rows(scores, size, rewards, sources)


def _is_equal(source_labels: Sequence[str], name: str) -> torch.Tensor:
    return torch.tensor([label == name for label in source_labels])


def _rows(scores: torch.Tensor, size: int, rewards: Sequence[str], sources: Sequence[Bound]) -> Batch:
    """Return a batch of one to three tokens per completion, with all data of the scoring phase."""
    from rlm_plugins.equation.dispatch import on_last_token

    count = len(scores)
    group = torch.arange(count) // size
    mask = torch.arange(3) <= (torch.arange(count) % 3).unsqueeze(1)
    numbers = torch.rand(count, 3, generator=torch.Generator().manual_seed(1)).where(mask, 0.0)
    names = [POLICY, *map(label, sources)]
    source_labels = [names[number] for number in assign_sources(sources, size)] * (count // size)
    return Batch(
        group=group,
        mask=mask,
        truncated=torch.zeros(count, dtype=torch.bool),
        prompt_index=group.clone(),
        sources={name: _is_equal(source_labels, name) for name in labels(sources)},
        max_completion_length=4,
        step=0,
        completion_ids=[[row] * (1 + row % 3) for row in range(count)],
        rewards=scores,
        named_rewards={name: scores.clone() for name in rewards},
        token_rewards=on_last_token(scores, mask),
        dense_rewards=torch.zeros(count, 3),
        old_logp=-numbers,
        ref_logp=-numbers / 2,
        rollout_logp=-numbers,
        policy_drift=torch.zeros(count),
        entropy=numbers,
        self_certainty=numbers,
        top2_margin=numbers,
        sum_pi_squared=numbers,
        values=numbers,
    )
