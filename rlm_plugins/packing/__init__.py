"""Padding-free, prefix-shared passes, the micro-batches they are applied to, and the list of fast paths.

Code outside this package imports these names and none of its modules.

The pass (`padding_free`):

- `PackedForward`: Compute log-probs and entropies, padded in and padded out.
- `Layout`, `layouts`: One packed sequence of tokens; the layouts of a padded batch.
- `forward_with_head`, `model_inputs`, `install_attention`: A packed pass with another head, or of another model.
- `packed_statistics`, `padded_statistics`, `VOCAB_STATISTICS`: Self-certainty and top-2 margin of each token.
- `max_packed_length`: Longest sequence that a model supports packed.

Micro-batches (`group_micro_batches`, `merge_micro_batches`, `max_tokens_per_micro_batch`, `skip_zero_advantage`):

- `group_by_prompt`, `split_into_portions`, `split_rule`, `full_length_tokens`, `MicroBatch`, `SplitRule`, `PORTIONS`.
- `has_advantage`, `zero_advantage_has_no_gradient`, `is_per_sequence`.

Fast paths: `Feature`, `Features`; `why_unsupported` and the reasons `PADDED`, `SHARDED`.
"""

from rlm_plugins.packing.attention import install_attention
from rlm_plugins.packing.features import PADDED, SHARDED, Feature, Features
from rlm_plugins.packing.forward import forward_with_head, model_inputs
from rlm_plugins.packing.layout import Layout
from rlm_plugins.packing.pack import layouts
from rlm_plugins.packing.packed_forward import PackedForward
from rlm_plugins.packing.prompt_groups import MicroBatch, group_by_prompt, has_advantage, is_per_sequence
from rlm_plugins.packing.support import max_packed_length, why_unsupported
from rlm_plugins.packing.token_budget import PORTIONS, SplitRule, split_into_portions, split_rule
from rlm_plugins.packing.token_counts import full_length_tokens
from rlm_plugins.packing.vocab_statistics import VOCAB_STATISTICS, packed_statistics, padded_statistics
from rlm_plugins.packing.zero_advantage import zero_advantage_has_no_gradient

__all__ = [
    "PADDED",
    "PORTIONS",
    "SHARDED",
    "VOCAB_STATISTICS",
    "Feature",
    "Features",
    "Layout",
    "MicroBatch",
    "PackedForward",
    "SplitRule",
    "forward_with_head",
    "full_length_tokens",
    "group_by_prompt",
    "has_advantage",
    "install_attention",
    "is_per_sequence",
    "layouts",
    "max_packed_length",
    "model_inputs",
    "packed_statistics",
    "padded_statistics",
    "split_into_portions",
    "split_rule",
    "why_unsupported",
    "zero_advantage_has_no_gradient",
]
