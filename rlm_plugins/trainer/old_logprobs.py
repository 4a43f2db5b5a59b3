"""Old-policy log-probs: recomputed, taken from the first pass of the update, or recorded during decoding."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from rlm_plugins.errors import PartError
from rlm_plugins.functional.rng_state import temporary_rng_state
from rlm_plugins.models.vocab_statistics import VOCAB_STATISTICS
from rlm_plugins.trainer.context import TrainerContext
from rlm_plugins.trainer.generation import PolicyGeneration
from rlm_plugins.trainer.passes import ForwardPasses, LogpsAndEntropies, prompt_completion


@dataclass
class OldLogProbs:
    """Decides where old-policy log-probs and entropies come from."""

    context: TrainerContext
    passes: ForwardPasses
    generation: PolicyGeneration
    policy_only: bool
    _expects_trl_pass: bool = field(default=False, init=False)
    _generated_at: int = field(default=-1, init=False)
    _is_shift_invariant: bool | None = field(default=None, init=False)
    _uses_rng: bool | None = field(default=None, init=False)

    # -- TRL's pass

    def start_batch(self) -> None:
        """Mark TRL's next forward pass without gradient as that of the old policy, if TRL has one."""
        self._expects_trl_pass = self._has_trl_pass()
        if self.context.is_training:
            self._generated_at = self.context.step

    def compute(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        *args: Any,
        **options: Any,
    ) -> LogpsAndEntropies:
        """Skip TRL's pass for old log-probs if they are recorded or come from the update; else run it."""
        if self._expects_trl_pass and not torch.is_grad_enabled():
            self._expects_trl_pass = False
            if self.come_from_update() or self.context.is_provided("old_per_token_logps"):
                return None, None, None  # type: ignore[return-value]
            recorded = self.generation.recorded_logps(input_ids, logits_to_keep)
            if recorded is not None:
                return recorded[0], None, None
        return self.passes.compute(model, input_ids, attention_mask, logits_to_keep, *args, **options)

    def _has_trl_pass(self) -> bool:
        """Return True if TRL computes old log-probs, in the first of its passes over a generation batch."""
        return self.context.is_training and self.context.needs.old_by_trl and not self.context.args.use_vllm

    # -- sources of old log-probs

    def are_recorded(self) -> bool:
        """Return True if the generator records log-probs, which replace a forward pass with the same result.

        They are in float32 and cover whole completions. Those of a stale policy are not the current one's.
        """
        context = self.context
        dtype = next(context.model.parameters()).dtype
        is_exact = context.accelerator.mixed_precision == "no" and dtype == torch.float32
        is_used = (self._has_trl_pass() and not self.come_from_update()) or self.context.needs.old_for_scoring
        is_used = is_used or context.needs.for_scoring("entropy") or context.is_observed("logp")
        is_possible = self.passes.reuses_old_logprobs and context.is_training and is_exact and self.policy_only
        return is_possible and is_used and not context.is_off_policy and self._decoding_matches_forward()

    def of_samples(self, inputs: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return log-probs and entropies (B, T) of completions, recorded while decoding.

        None: they were not recorded, or an optimizer step has changed the policy since.

        Args:
            inputs: TRL's dictionary for some completions of this process.
        """
        if self._generated_at != self.context.step:
            return None
        ids, _, width = prompt_completion(inputs)
        first = self.context.local_rows(len(self.generation.recorded)).start
        return self.generation.recorded_logps(ids, width, (inputs["global_index"] - first).tolist())

    def come_from_update(self) -> bool:
        """Return True if the first forward pass of the update yields them, and no scoring part names them."""
        is_first = self.passes.reuses_old_logprobs and self.context.needs.first_pass_is_old
        is_first = is_first and self.context.is_training and not self.context.is_provided("old_per_token_logps")
        return is_first and not self.context.needs.old_for_scoring and not self._forward_uses_rng()

    def _decoding_matches_forward(self) -> bool:
        """Return True if decoding has the temperature of the forward pass, and padding does not change log-probs.

        Positions count from the first token of the prompt during decoding, and from the left edge, padding included,
        in TRL's pass. Only relative positions (rotary ones, say) give the same log-probs.
        """
        if not self.generation.samples_at(self.context.temperature):  # `generation_kwargs` may override it
            return False
        if self._is_shift_invariant is None:
            ids, mask = self._probe()
            mask[:, :3] = 0
            with torch.no_grad(), temporary_rng_state():
                shifted = self.passes.padded(ids, mask, 4)
                unpadded = self.passes.padded(ids[:, 3:], mask[:, 3:], 4)
            self._is_shift_invariant = torch.allclose(shifted, unpadded, rtol=0, atol=1e-4)
        return self._is_shift_invariant

    def _forward_uses_rng(self) -> bool:
        """Return True if a forward pass draws random numbers (dropout, say), so that two passes differ."""
        if self._uses_rng is None:
            ids, mask = self._probe()
            with torch.no_grad(), temporary_rng_state() as drawn:
                self.passes.compute(self.context.model, ids, mask, 4)
                self._uses_rng = bool(drawn())
        return self._uses_rng

    def _probe(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return one synthetic sequence: `input_ids` and `attention_mask` (1, 8)."""
        vocab_size = self.context.model.config.get_text_config().vocab_size
        ids = (torch.arange(1, 9, device=self.context.accelerator.device) * 7 % vocab_size).unsqueeze(0)
        return ids, torch.ones_like(ids)

    # -- what the scoring phase needs

    def for_scoring(self, out: dict[str, Any]) -> dict[str, torch.Tensor]:
        """Return name → (B, T) of log-prob statistics that scoring parts name, from one forward pass before the update.

        Old log-probs are added to `out` if scoring parts name them and TRL did not compute them.

        Args:
            out: TRL's dictionary for the completions of this process.

        Raises:
            PartError: Statistics of the whole vocabulary are needed for completions with images.
        """
        lacks_old = self.context.needs.old_for_scoring and "old_per_token_logps" not in out
        names = [name for name in ("entropy", *VOCAB_STATISTICS) if self.context.needs.for_scoring(name)]
        if not (lacks_old or names):
            return {}
        size = self.context.args.per_device_train_batch_size
        rows = prompt_completion(out)
        recorded = self.generation.recorded_logps(rows[0], rows[2])
        if set(names) & set(VOCAB_STATISTICS):
            computed = self._vocab_statistics(out, size)
        elif recorded is not None:
            computed = dict(zip(("old_logp", "entropy"), recorded, strict=True))
        else:
            with torch.no_grad():
                logp, entropy, _ = self.passes.of(self.context.model, out, size, compute_entropy=bool(names))
            computed = {"old_logp": logp, "entropy": entropy}
        if lacks_old:
            out["old_per_token_logps"] = computed["old_logp"]
        return {name: computed[name] for name in names}

    def _vocab_statistics(self, out: dict[str, Any], batch_size: int) -> dict[str, torch.Tensor]:
        if "pixel_values" in out:
            names = " and ".join(f"`{name}`" for name in VOCAB_STATISTICS)
            raise PartError(f"{names} require completions without images", hint="use parts that do not name them")
        with self.context.accelerator.autocast():
            return self.passes.vocab_statistics(prompt_completion(out), batch_size)
