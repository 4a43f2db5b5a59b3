"""Former names; removed once the trainer uses the interface."""

from functools import partial
from typing import Any

from rlm_plugins.packing.token_budget import PORTIONS, merge_micro_batches, split_groups, split_into_portions
from rlm_plugins.packing.token_budget import SplitRule as Sizes
from rlm_plugins.packing.token_budget import full_length_tokens as full

__all__ = ["PORTIONS", "Sizes", "cut", "full", "joined", "portioned"]


def cut(*columns: Any, budget: float) -> list[int]:
    """Call `split_groups`."""
    return partial(split_groups, max_tokens=budget)(*columns)


def joined(*columns: Any, rows: int, budget: float) -> list[int]:
    """Call `merge_micro_batches`."""
    return partial(merge_micro_batches, num_sequences=rows, max_tokens=budget)(*columns)


def portioned(micro_batches: Any, window: int, sizes: Any, *, skips: bool, most: Any) -> Any:
    """Call `split_into_portions`."""
    return split_into_portions(micro_batches, window, sizes, skip_zero_advantage=skips, max_over_ranks=most)
