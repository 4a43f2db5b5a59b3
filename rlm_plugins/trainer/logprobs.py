"""Forward passes of the policy: per-token log-probs and entropies."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from rlm_fast.fused_lora import fuse_lora
from rlm_fast.fused_mlp import fuse_mlps
from rlm_fast.layout import Layout
from rlm_fast.pack import layouts
from rlm_fast.packed_forward import PackedForward
from trl import GRPOTrainer

from rlm_plugins.trainer.context import TrainerContext

logger = logging.getLogger(__name__)
LogpsAndEntropies = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]
"""Per-token log-probs and entropies (B, T), and the load-balancing loss of a mixture of experts."""


class LogProbs:
    """Log-probs and entropies, without padding and with shared prompts where that is exact."""

    def __init__(self, context: TrainerContext, trl_forward: Callable[..., LogpsAndEntropies]) -> None:
        self.context, self._trl_forward = context, trl_forward
        self._packed: PackedForward | None = None
        fuse_lora(context.model, enabled=context.features.fused_lora.on)
        fuse_mlps(context.model, enabled=context.features.fused_lora.on)

    def compute(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        compute_aux_loss: bool = False,
        live: Sequence[bool] | None = None,
        **images: Any,
    ) -> LogpsAndEntropies:
        """Run TRL's pass, or the padding-free one.

        Args:
            model: Policy or reference.
            input_ids: (B, W) prompts, padded on the left, and completions, padded on the right.
            attention_mask: (B, W) 1 where a token is no padding.
            logits_to_keep: Length T of the completions.
            batch_size: Sequences per forward pass; None: all.
            compute_entropy: Return entropies too.
            compute_aux_loss: Return the load-balancing loss too.
            live: Per sequence, False if its log-probs are not used; None: all are.
            **images: Inputs of the vision tower.
        """
        rows = input_ids, attention_mask, logits_to_keep
        if not self.is_padding_free(*rows) or any(x is not None for x in images.values()):
            return self._trl_forward(model, *rows, batch_size, compute_entropy, compute_aux_loss, **images)
        budget = None if batch_size is None else batch_size * input_ids.shape[1]
        temperature = self.context.temperature
        with self.context.accelerator.autocast():
            logp, entropy = self._packed_forward()(
                model, *rows, temperature=temperature, with_entropy=compute_entropy, live=live, budget=budget
            )
        return logp, entropy if compute_entropy else None, None

    def of(self, model: Any, inputs: dict[str, Any], batch_size: int | None = None, **options: Any) -> Any:
        """Return log-probs, entropies and load-balancing loss of the completions in TRL's dictionary.

        Args:
            model: Policy or reference.
            inputs: TRL's dictionary.
            batch_size: Sequences per forward pass; None: all.
            **options: Of :meth:`compute`.
        """
        accepted = inspect.signature(GRPOTrainer._get_per_token_logps_and_entropies).parameters
        images = {name: inputs[name] for name in accepted if name in inputs}
        ids, mask, width = prompt_completion(inputs)
        return self.compute(model, ids, mask, width, batch_size=batch_size, **images, **options)

    def padded(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, logits_to_keep: int) -> torch.Tensor:
        """Return log-probs (B, T) of the policy by TRL's padded pass."""
        policy = self.context.accelerator.unwrap_model(self.context.model)
        return self._trl_forward(policy, input_ids, attention_mask, logits_to_keep)[0]

    def is_padding_free(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, logits_to_keep: int) -> bool:
        """Return True if these sequences are packed, which requires unsharded weights and a supported model."""
        is_on = self.context.features.padding_free.on
        return is_on and self._packed_forward().supports(input_ids, attention_mask, logits_to_keep)

    def is_relative(self) -> bool:
        """Return True if positions are relative, so that prompts of unequal length can share a prefix."""
        return self._packed_forward().relative

    def layouts(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, logits_to_keep: int, budget: int | None = None
    ) -> Iterator[Layout]:
        """Return the layouts of sequences for which `is_padding_free` holds, as the policy's own passes have them.

        Args:
            input_ids: (B, W) prompts and completions.
            attention_mask: (B, W) 1 where a token is no padding.
            logits_to_keep: Length T of the completions.
            budget: Most tokens of a layout; None: one layout.
        """
        rows = input_ids, attention_mask, logits_to_keep
        return layouts(*rows, budget=budget, relative=self.is_relative())

    def _packed_forward(self) -> PackedForward:
        """Return the padding-free pass; built at its first use, after the model was moved to its device."""
        if self._packed is None:
            loss_parts = [self.context.equation.policy_loss, *self.context.equation.penalties]
            with self.context.accelerator.autocast():
                self._packed = PackedForward(
                    self.context.accelerator.unwrap_model(self.context.model),
                    self.padded,
                    temperature=self.context.temperature,
                    entropy_gradient=any("entropy" in p.part.data for p in loss_parts),
                )
            if self._packed.reason is not None:
                logger.warning("padded forward passes: %s", self._packed.reason)
        return self._packed


def prompt_completion(inputs: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Return `input_ids` (B, W), `attention_mask` (B, W) and the length of the completions in TRL's dictionary."""
    ids, mask = (torch.cat([inputs[f"prompt_{x}"], inputs[f"completion_{x}"]], 1) for x in ("ids", "mask"))
    return ids, mask, inputs["completion_ids"].shape[1]


def loss_mask(out: dict[str, Any]) -> torch.Tensor:
    """Return (B, T) 1 where a token is trained on: no tool output, no token that a source excludes."""
    mask: torch.Tensor = out["completion_mask"]
    for name in ("tool_mask", "trained"):
        mask = mask * out[name] if name in out else mask
    return mask


def temperature_cell(model: Any) -> Any:
    """Return the closure cell in which TRL's forward pass of `model` keeps the temperature of the logits."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    forward = getattr(base, "_original_forward", base.forward).__func__  # accelerate may have wrapped it
    return forward.__closure__[forward.__code__.co_freevars.index("temperature")]
