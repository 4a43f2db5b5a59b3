"""Former names; removed once the trainer uses the interface."""

from rlm_plugins.packing.prompt_groups import group_by_prompt as regroup
from rlm_plugins.packing.prompt_groups import has_advantage as teaches
from rlm_plugins.packing.prompt_groups import is_per_sequence as counts_by_row

__all__ = ["counts_by_row", "regroup", "teaches"]
