"""How likely the rows are: every forward pass that is not a generation goes through here."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from typing import Any

import torch

from rlm_plugins.kernels.fused_lora import fuse
from rlm_plugins.packing import fallback_reasons as reasons
from rlm_plugins.packing.reader import PackedReader
from rlm_plugins.stage import NO_SPEED, Reward, Speed
from rlm_plugins.step import Equation
from rlm_plugins.trainer.episodes import Playing

logger = logging.getLogger(__name__)


class Reading(Playing):
    """The same, that reads log-probabilities and entropies where a part names them.

    Args:
        equation: The parts. `args.beta` only switches TRL's reference pass on; coefficients live in the parts.
        rewards: The entries of ``rewards:`` in the order of `reward_funcs`.
        speed: Which short cuts are taken.
    """

    def __init__(self, *, equation: Equation, rewards: Sequence[Reward], speed: Speed = NO_SPEED, **rest: Any) -> None:
        self.equation, self._rewards, self._speed = equation, rewards, speed
        self._packed: PackedReader | None = None
        super().__init__(**rest)
        fuse(self.model, on=reasons.apart(speed, self.args, sharded=self._is_sharded()) is None)

    def _read(self, model: Any, inputs: dict[str, Any], batch_size: int | None = None, **options: Any) -> Any:
        """Log-probabilities (and entropies) of the completions under `model`, by TRL's own pass."""
        ids, there, width = padded_rows(inputs)
        known = inspect.signature(Playing._get_per_token_logps_and_entropies).parameters
        return self._get_per_token_logps_and_entropies(
            model,
            ids,
            there,
            width,
            batch_size=batch_size,
            **{name: inputs[name] for name in known if name in inputs},
            **options,
        )

    def _get_per_token_logps_and_entropies(
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
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """TRL's pass, without padding and with each prompt once where that reads the same.

        Args:
            live: Whether a row is asked for at all; None: all are.
        """
        rows = input_ids, attention_mask, logits_to_keep
        if not self._reads_packed(*rows) or any(x is not None for x in images.values()):
            return super()._get_per_token_logps_and_entropies(
                model, *rows, batch_size, compute_entropy, compute_aux_loss, **images
            )
        budget = None if batch_size is None else batch_size * input_ids.shape[1]
        with self.accelerator.autocast():
            logp, entropy = self._reader()(
                model, *rows, temperature=self.temperature, with_entropy=compute_entropy, live=live, budget=budget
            )
        return logp, entropy if compute_entropy else None, None

    def _reader(self) -> PackedReader:
        """Who reads packed rows; made at the first pass, when the model stands where it trains."""
        if self._packed is None:
            learning = [self.equation.policy_loss, *self.equation.penalties]
            with self.accelerator.autocast():
                self._packed = PackedReader(
                    self.accelerator.unwrap_model(self.model),
                    self._read_padded,
                    temperature=self.temperature,
                    entropy_gradient=any("entropy" in (*p.part.needs, *p.part.welcomes) for p in learning),
                )
            if self._packed.reason is not None:
                logger.warning("rows are read padded: %s", self._packed.reason)
        return self._packed

    def _reads_packed(self, ids: torch.Tensor, there: torch.Tensor, width: int) -> bool:
        """Whether rows of text are read without padding: weights are whole on each device, the head is the model's."""
        if reasons.padded(self._speed, self.args, sharded=self._is_sharded(), balanced=self.aux_loss_enabled):
            return False
        return self._reader().takes(ids, there, width)

    def _is_sharded(self) -> bool:
        return bool(self.is_fsdp_enabled or self.is_deepspeed_enabled)

    def _read_padded(self, ids: torch.Tensor, there: torch.Tensor, width: int) -> torch.Tensor:
        model = self.accelerator.unwrap_model(self.model)
        logp: torch.Tensor = super()._get_per_token_logps_and_entropies(model, ids, there, width)[0]
        return logp


def padded_rows(inputs: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor, int]:
    """The rows of TRL's dictionary: token ids (B, W), 1 where there is a token, and the width of the completions."""
    ids, there = (torch.cat([inputs[f"prompt_{x}"], inputs[f"completion_{x}"]], 1) for x in ("ids", "mask"))
    return ids, there, inputs["completion_ids"].shape[1]


def loss_mask(out: dict[str, Any]) -> torch.Tensor:
    """1 where a token is trained on: the model's own, not a tool's, not what a source only shows."""
    mask: torch.Tensor = out["completion_mask"]
    for name in ("tool_mask", "trained"):
        mask = mask * out[name] if name in out else mask
    return mask
