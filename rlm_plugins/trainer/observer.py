"""Observers of a training step (hook ``rlm_observers``): what may watch, delay or extend a step without changing it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from rlm_plugins.batch import Batch
    from rlm_plugins.trainer.rollout import CompletionView


class StepObserver:
    """Observer of the training steps of one trainer. Every method does nothing by default.

    The methods stand in the order in which a step calls them, on every process. Those below `sampling` up to `scored`
    are called once per generation batch, the others once per micro-batch. A trainer with a loss of its own (SFT, a
    reward model) calls `attach`, `training`, `begin_micro_batch`, `micro_batch`, `end_micro_batch`, `gradient` and
    `fault` only. An observer with `state_dict` and `load_state_dict` is saved in checkpoints under its `name`. One that
    is a ``transformers.TrainerCallback`` too is added to the callbacks of the trainer.

    Attributes:
        name: Key of its state in checkpoints.
        in_snapshot: True if its state is restored when a step fails; False: only when a checkpoint is loaded.
        provides: Columns of TRL's dictionary that its `sampled` returns, and that TRL then need not compute.
        is_off_policy: True if completions come from another policy than the current one.
    """

    name: str = ""
    in_snapshot: bool = True
    provides: Sequence[str] = ()
    is_off_policy: bool = False

    def configure(self, arguments: dict[str, Any]) -> None:
        """Change the arguments of TRL's trainer, in place, before it is built."""

    def attach(self, trainer: Any) -> None:
        """Store the trainer: `trainer.components` are its collaborators, if its algorithm has an equation."""

    def training(self) -> AbstractContextManager[Any]:
        """Return a context that is open while the trainer trains."""
        return nullcontext()

    def requires(self, name: str) -> bool:
        """Return True if it needs data of the batch that no part may have named; asked for each generation batch."""
        return False

    def begin_micro_batch(self) -> None:
        """Handle the start of a micro-batch: of generation too, where one is due."""

    def skips_update(self) -> bool:
        """Return True to skip this micro-batch: neither a forward nor a backward pass."""
        return False

    # -- a generation batch

    def begin_generation(self) -> None:
        """Handle the start of a generation batch, over all its sampling rounds."""

    def sampling(self) -> AbstractContextManager[Any]:
        """Return a context that is open while the policy generates completions."""
        return nullcontext()

    def completions(self, inputs: Sequence[Mapping[str, Any]], view: CompletionView) -> None:
        """Handle the completions of this process as rewards get them, with the examples they belong to."""

    def sampled(self, out: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        """Return columns (B, …) to add to TRL's dictionary `out` of the completions of this process."""
        return {}

    def scoring(self, batch: Batch, *, is_shaped: bool) -> None:
        """Handle the completions of all processes before the advantages are computed."""

    def called(self, name: str, result: Any) -> None:
        """Handle the result of a function that a scoring part called: `logprobs_of`, `generate` or `rewards_of`."""

    def scored(self, batch: Batch, turn_ends: Sequence[Sequence[int]]) -> None:
        """Handle the completions of all processes with their advantages, and each turn's last token."""

    def micro_batches(self, micro_batches: Sequence[Mapping[str, Any]]) -> None:
        """Handle the micro-batches of a generation batch before they are grouped by prompt."""

    # -- a micro-batch

    def micro_batch(self, inputs: Mapping[str, Any]) -> None:
        """Handle the inputs of a micro-batch before its forward pass."""

    def portion(self, inputs: Mapping[str, Any], batch: Batch, *, has_old_logp: bool) -> None:
        """Handle what the loss parts get for some completions of a micro-batch, before their loss is computed.

        Args:
            inputs: TRL's dictionary.
            batch: What the loss parts get.
            has_old_logp: False if the old log-probs are those of this forward pass.
        """

    def portion_loss(self, loss: torch.Tensor, skipped: tuple[torch.Tensor, ...] | None) -> None:
        """Handle the loss of the last portion.

        Args:
            loss: Scalar, as the equation returns it.
            skipped: (B,) True for completions without a forward pass, and their log-probs and entropies; None unless
                `requires("skipped")`.
        """

    def end_micro_batch(self, loss: torch.Tensor) -> None:
        """Handle a micro-batch after its backward pass; `loss` is what the trainer logs."""

    def gradient(self, norm: Any) -> None:
        """Handle the norm of the gradient before the optimizer steps."""

    def fault(self, error: Exception) -> None:
        """Handle an error that ends the step."""
