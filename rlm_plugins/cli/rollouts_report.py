"""Lines of ``rlm check`` on rollouts: the rollout source of each completion, and the cost of dynamic sampling."""

from __future__ import annotations

from collections.abc import Sequence

from rlm_plugins.registry.part import Bound
from rlm_plugins.rollout.group_layout import POLICY, assign_sources, label


def sources(rollouts: Sequence[Bound], num_generations: int) -> list[str]:
    """Return a line with the completions that each source contributes to a group; empty without sources."""
    if not rollouts:
        return []
    owned = assign_sources(rollouts, num_generations)
    names = [POLICY, *map(label, rollouts)]
    completions: dict[str, int] = {}
    for number, name in enumerate(names):
        completions[name] = completions.get(name, 0) + owned.count(number)
    shares = " + ".join(f"{count} by {_source_name(name)}" for name, count in completions.items() if count)
    fallback = "; the policy generates what a source lacks" if set(completions) != {POLICY} else ""
    return [f"{num_generations} completions per prompt = {shares}{fallback}"]


def _source_name(name: str) -> str:
    return "the policy" if name == POLICY else name


def dynamic_sampling(filters: Sequence[Bound], completions: int) -> list[str]:
    """Return a line with the cost of dynamic sampling; empty if no filter has `refill`.

    Args:
        filters: Filters of the algorithm.
        completions: Completions of one generation batch.
    """
    refilling = [bound for bound in filters if bound.options.get("refill")]
    if not refilling:
        return []
    rounds = min(bound.options["refill"] for bound in refilling)
    names = " and ".join(bound.part.name for bound in refilling)
    cost = f"up to {rounds} sampling rounds, {completions} to {rounds * completions} completions"
    return [f"dynamic sampling: {cost}, until the batch is full of groups that {names} keeps"]
