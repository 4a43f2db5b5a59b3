"""Forward passes of the policy and its critic, and their micro-batches: those of TRL, which a package may replace.

A section of a recipe (hook ``rlm_sections``) with a member `passes` builds a :class:`ForwardPasses` for each trainer.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from trl import GRPOTrainer

from rlm_plugins.models.critic import Critic
from rlm_plugins.models.vocab_statistics import padded_statistics
from rlm_plugins.trainer.context import TrainerContext

LogpsAndEntropies = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]
"""Per-token log-probs and entropies (B, T), and the load-balancing loss of a mixture of experts."""
Rows = tuple[torch.Tensor, torch.Tensor, int]
"""`input_ids` (B, W): prompts, padded on the left, and completions, padded on the right; `attention_mask` (B, W); T."""


class ForwardPasses:
    """Padded passes of TRL on the micro-batches of TRL: the reference implementation.

    A subclass overrides what it computes in less time; results may differ by rounding only.

    Args:
        context: State of the trainer.
        trl_forward: TRL's forward pass, called with the arguments of :meth:`compute`.

    Attributes:
        reuses_old_logprobs: Old log-probs may come from the first pass over a generation, or from decoding.
        skips_sequences: :meth:`needs_forward` may exclude completions.
    """

    reuses_old_logprobs: bool = False
    skips_sequences: bool = False

    def __init__(self, context: TrainerContext, trl_forward: Callable[..., LogpsAndEntropies]) -> None:
        self.context, self._trl_forward = context, trl_forward

    # -- the policy

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
        """Return log-probs, entropies and the load-balancing loss.

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
        return self._trl_forward(model, *rows, batch_size, compute_entropy, compute_aux_loss, **images)

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

    def vocab_statistics(self, rows: Rows, batch_size: int) -> dict[str, torch.Tensor]:
        """Return name → (B, T) of the statistics of `models/vocab_statistics.py`, without gradient."""
        model, temperature = self.context.model, self.context.temperature
        return padded_statistics(model, *rows, temperature=temperature, batch_size=batch_size)

    # -- the critic

    def values(self, critic: Critic, rows: Rows, part: slice = slice(None)) -> torch.Tensor:
        """Return the critic's values (B, T) of some of the sequences, by a forward pass of its trunk."""
        ids, mask, width = rows
        return critic.values(ids[part], mask[part], width)

    def values_of_hidden(self, critic: Critic, hidden: torch.Tensor, rows: Rows) -> torch.Tensor:
        """Return the values (B, T) of the hidden states that a pass of :meth:`compute` over `rows` has left."""
        return critic.values_of(hidden[:, -rows[2] - 1 : -1])

    # -- micro-batches

    def regroup(self, micro_batches: list[dict[str, Any]], steps: range) -> list[dict[str, Any]]:
        """Return the micro-batches of a generation batch, in another order or with other sizes.

        Args:
            micro_batches: As TRL split them.
            steps: Optimizer steps that train on them next.
        """
        return micro_batches

    def portions(self, inputs: dict[str, Any]) -> list[dict[str, Any]] | None:
        """Return the parts of a micro-batch that have a backward pass each; None: it is not split."""
        return None

    def needs_forward(self, inputs: dict[str, Any], steps: range) -> torch.Tensor | None:
        """Return (B,) True for the completions that need a forward pass; None: all of them.

        Args:
            inputs: A micro-batch, or a portion of one.
            steps: Optimizer steps that use the result.
        """
        return None

    # -- a copy of the policy

    def preparation(self) -> Callable[[Any], None] | None:
        """Return a function, which can be pickled, that prepares a copy of the policy in another process, or None."""
        return None


def prompt_completion(inputs: dict[str, Any]) -> Rows:
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


PassesFactory = Callable[[TrainerContext, Callable[..., LogpsAndEntropies]], ForwardPasses]
"""Builds the passes of a trainer."""
