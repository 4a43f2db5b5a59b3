"""Who writes the rows of a group, and how many generations a batch may cost, in words."""

from __future__ import annotations

from collections.abc import Sequence

from rlm_plugins.registry.part import Bound
from rlm_plugins.rollout.group_layout import POLICY, label, owners


def writers(sources: Sequence[Bound], generations: int) -> list[str]:
    """Who writes how many of the `generations` rows of a group; nothing where the policy writes all."""
    if not sources:
        return []
    owned = owners(sources, generations)
    names = [POLICY, *map(label, sources)]
    rows: dict[str, int] = {}
    for number, name in enumerate(names):
        rows[name] = rows.get(name, 0) + owned.count(number)
    shares = " + ".join(f"{count} by {_who(name)}" for name, count in rows.items() if count)
    open_rows = "; the policy writes what a source leaves open" if set(rows) != {POLICY} else ""
    return [f"{generations} answers to a problem = {shares}{open_rows}"]


def _who(name: str) -> str:
    return "the policy" if name == POLICY else name


def refills(filters: Sequence[Bound], completions: int) -> list[str]:
    """What refilling may cost; nothing where no filter refills.

    Args:
        filters: Of the algorithm.
        completions: Of one generation.
    """
    refilling = [sieve for sieve in filters if sieve.beside.get("refill")]
    if not refilling:
        return []
    most = min(sieve.beside["refill"] for sieve in refilling)
    names = " and ".join(sieve.part.name for sieve in refilling)
    cost = f"up to {most} generations, {completions} to {most * completions} completions"
    return [f"{cost}, for one batch: drawn until it is full of groups that {names} keeps"]
