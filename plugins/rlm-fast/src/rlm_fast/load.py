"""Load of a stage: the sizes that its memory depends on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Load:
    """Sizes of the batches of a stage, per process.

    Args:
        generated: Completions decoded at once; 0: none in this process.
        prompt_len: Longest prompt, in tokens.
        completion_len: Longest completion or demonstration, in tokens.
        micro_batch_size: Sequences of one backward pass.
        checkpointing: Gradient checkpointing is on.
        half: Autocast computes products in two bytes.
        optimizer_state: Bytes of optimizer state per byte of trained weights: AdamW keeps two moments.
        reference: A second, frozen copy of the weights is in memory.
        triton: TRL's Triton kernel computes log-probs (a GPU).
        copied_weights: Bytes of merged and packed weights during decoding.
        part_models: Bytes of the models that parts keep besides the policy.
        packed_prompts: Prompts of a packed micro-batch, each once for its completions; 0: micro-batches are padded.
        decoded_prompts: Prompts decoded at once, whose KV cache their completions share; 0: each has its own.
        common_len: Tokens that all prompts start with, computed once where prompts are shared.
        process: Resident bytes of the process without models.
        fused_mlp: Gated MLPs keep two of four wide tensors for the backward pass (`fused_mlp.py`).
    """

    generated: int
    prompt_len: int
    completion_len: int
    micro_batch_size: int
    checkpointing: bool = False
    half: bool = False
    optimizer_state: float = 2.0
    reference: bool = False
    triton: bool = False
    copied_weights: int = 0
    part_models: int = 0
    packed_prompts: int = 0
    decoded_prompts: int = 0
    common_len: int = 0
    process: int = 0
    fused_mlp: bool = False

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch at full length; packed, the last token of a completion is left out."""
        if self.packed_prompts:
            return self._distinct_tokens(self.packed_prompts) + self.micro_batch_size * (self.completion_len - 1)
        return self.micro_batch_size * (self.prompt_len + self.completion_len)

    @property
    def prefilled_tokens(self) -> int:
        """Tokens of the prompts that are decoded at once."""
        if self.decoded_prompts:
            return self._distinct_tokens(self.decoded_prompts)
        return self.generated * self.prompt_len

    @property
    def cached_tokens(self) -> int:
        """Tokens of the KV cache at full length."""
        return self.prefilled_tokens + self.generated * self.completion_len

    def _distinct_tokens(self, prompts: int) -> int:
        """Return the tokens of distinct prompts, those that all start with once."""
        return prompts * (self.prompt_len - self.common_len) + self.common_len
