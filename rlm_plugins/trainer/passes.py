"""Forward passes of the policy: per-token log-probs and entropies, and the log-probs of the old policy.

A section of a recipe (hook ``rlm_sections``) with a member `passes` builds a :class:`ForwardPasses` for each trainer.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from operator import itemgetter
from types import MethodType
from typing import Any

import torch
from jaxtyping import Float, Int
from trl import GRPOTrainer
from trl.trainer.utils import add_fused_lm_head

from rlm_plugins.equation.rng_state import temporary_rng_state
from rlm_plugins.errors import PartError
from rlm_plugins.models.adapters import causal_model
from rlm_plugins.models.critic import Critic
from rlm_plugins.trainer.context import TrainerContext
from rlm_plugins.trainer.generation import PolicyGeneration

VOCAB_STATISTICS = ("self_certainty", "top2_margin", "sum_pi_squared")
"""Statistics that scoring parts may name, and that the fused head does not compute."""
NAMES = ("old_logp", "entropy", *VOCAB_STATISTICS)
"""Names of everything that :func:`token_statistics` returns."""


def token_statistics(
    logits: Float[torch.Tensor, "B T V"], tokens: Int[torch.Tensor, "B T"]
) -> dict[str, Float[torch.Tensor, "B T"]]:
    """log π(y), H(π), KL(U ‖ π) = −log V − mean_v log π(v), p₁ − p₂ of the two likeliest tokens, and Σ_v π(v)².

    A probability of 0 counts as e⁻¹⁰⁰⁰, so that a token that is ruled out does not make a statistic infinite.

    >>> token_statistics(torch.zeros(1, 1, 4), torch.zeros(1, 1, dtype=torch.long))["self_certainty"].item()
    0.0
    """
    z = torch.log_softmax(logits, -1).clamp(min=-1000.0)
    likeliest, probabilities = z.topk(2, -1).values.exp(), z.exp()
    return {
        "old_logp": z.gather(-1, tokens.unsqueeze(-1)).squeeze(-1),
        "entropy": -(probabilities * z).sum(-1),
        "self_certainty": -z.mean(-1) - math.log(z.shape[-1]),
        "top2_margin": likeliest[..., 0] - likeliest[..., 1],
        "sum_pi_squared": probabilities.square().sum(-1),
    }


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
        skips_sequences: Completions without gradient have no forward pass.
        keeps_micro_batches: Micro-batches are those of TRL.
    """

    reuses_old_logprobs: bool = False
    skips_sequences: bool = False
    keeps_micro_batches: bool = True

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
        """Return the result of :meth:`compute` for the completions in TRL's dictionary `inputs`; arguments as there."""
        accepted = inspect.signature(GRPOTrainer._get_per_token_logps_and_entropies).parameters
        images = {name: inputs[name] for name in accepted if name in inputs}
        ids, mask, width = prompt_completion(inputs)
        return self.compute(model, ids, mask, width, batch_size=batch_size, **images, **options)

    def padded(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, logits_to_keep: int) -> torch.Tensor:
        """Return log-probs (B, T) of the policy by TRL's padded pass."""
        policy = self.context.accelerator.unwrap_model(self.context.model)
        return self._trl_forward(policy, input_ids, attention_mask, logits_to_keep)[0]

    def vocab_statistics(self, rows: Rows, batch_size: int) -> dict[str, torch.Tensor]:
        """Return name → (B, T) of :func:`token_statistics`, without gradient.

        It uses the logits themselves, so scaling and soft caps of a model apply. `batch_size` · T · `vocab_size` of
        them are in memory at a time.
        """
        (input_ids, attention_mask, width), results = rows, []
        with torch.no_grad():
            for ids, mask in zip(input_ids.split(batch_size), attention_mask.split(batch_size), strict=True):
                options = {"logits_to_keep": width + 1, "use_cache": False}
                logits = self.context.model(input_ids=ids, attention_mask=mask, **options).logits
                logits = logits[:, -width - 1 : -1].float() / self.context.temperature
                statistics, is_token = token_statistics(logits, ids[:, -width:]), mask[:, -width:].bool()
                results.append({name: x.where(is_token, 0.0) for name, x in statistics.items()})
        return {name: torch.cat(list(map(itemgetter(name), results))) for name in NAMES}

    # -- the critic

    def values(self, critic: Critic, rows: Rows, part: slice = slice(None)) -> torch.Tensor:
        """Return the critic's values (B, T) of some of the sequences, by a forward pass of its trunk."""
        ids, mask, width = rows
        return critic.values(ids[part], mask[part], width)

    def of_hidden(
        self, function: Callable[[torch.Tensor], torch.Tensor], hidden: torch.Tensor, rows: Rows
    ) -> torch.Tensor:
        """Return `function` (B, T, …) of the hidden states before each token, left by a pass of :meth:`compute`."""
        return function(hidden[:, -rows[2] - 1 : -1])

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

    def with_gradient(self, inputs: dict[str, Any], steps: range) -> torch.Tensor | None:
        """Return (B,) True for the completions that have a gradient, over which metrics are means; None: all of them.

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


class FusedHead:
    """TRL's fused LM head of a model, whose temperature can change during training.

    TRL fixes the temperature when it adds the head. A new head is added on top of TRL's, which then only calls the
    forward pass of the model. Wrappers that accelerate adds later stay in place.
    """

    def __init__(self, model: Any, accelerator: Any, cast_to_fp32: bool) -> None:
        self._model = base = causal_model(accelerator.unwrap_model(model))
        self._trl, self._cast_to_fp32 = base.forward, cast_to_fp32
        self._current = base.forward.__func__
        autocast = accelerator.autocast if hasattr(base, "_original_forward") else nullcontext

        @functools.wraps(type(base).forward)
        def forward(module: Any, *args: Any, **kwargs: Any) -> Any:
            with autocast():
                return self._current(module, *args, **kwargs)

        base.forward = MethodType(forward, base)

    def set_temperature(self, temperature: float) -> None:
        """Divide the logits by `temperature` from now on."""
        wrapped, self._model.forward = self._model.forward, self._trl
        outputs = ("log_probs", "entropy")
        add_fused_lm_head(self._model, temperature, cast_lm_head_to_fp32=self._cast_to_fp32, outputs=outputs)
        self._current, self._model.forward = self._model.forward.__func__, wrapped


PassesFactory = Callable[[TrainerContext, Callable[..., LogpsAndEntropies]], ForwardPasses]
"""Builds the passes of a trainer."""


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
        is_possible = is_possible and not context.args.use_vllm  # an engine's log-probs are not the policy's to the bit
        return is_possible and is_used and not context.is_off_policy and self._decoding_matches_forward()

    def of_samples(self, inputs: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return log-probs and entropies (B, T) of completions, recorded while decoding.

        None: they were not recorded, or an optimizer step has changed the policy since.
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
