"""Forward passes over kept sets (section `kept_set`), and what forgets the sets of a generation batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from peft.tuners.tuners_utils import BaseTunerLayer
from transformers.generation.logits_process import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from rlm_plugins.errors import PartError
from rlm_plugins.trainer.observer import StepObserver
from rlm_plugins.trainer.passes import ForwardPasses, LogpsAndEntropies, Rows

Statistics = tuple[torch.Tensor, torch.Tensor]
"""Log-probs and entropies (B, T)."""
Kept = dict[tuple[int, ...], torch.Tensor]
"""Token ids of a prompt and its completion → (n, 2) positions and ids of the tokens that sampling kept."""


def kept_tokens(
    logits: Float[torch.Tensor, "T V"],
    tokens: Int[torch.Tensor, " T"],
    *,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float | None = None,
) -> Bool[torch.Tensor, "T V"]:
    """Return True for the tokens that sampling keeps, in the order in which transformers applies the three rules.

    The sampled tokens are kept, which rounding at the edge of a set could exclude.

    Args:
        logits: Logits of the sampling policy, divided by the temperature.
        tokens: Sampled tokens.
        top_k: Number of likeliest tokens; 0: all.
        top_p: Least probability of the kept set.
        min_p: Least probability of a token relative to the likeliest; None: no limit.

    >>> kept_tokens(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([0]), top_k=2).tolist()
    [[True, True, False]]
    """
    scores = logits
    if top_k > 0:
        scores = TopKLogitsWarper(top_k)(None, scores)
    if top_p < 1:
        scores = TopPLogitsWarper(top_p)(None, scores)
    if min_p:
        scores = MinPLogitsWarper(min_p)(None, scores)
    return scores.isfinite().scatter(-1, tokens.unsqueeze(-1), True)


class KeptSetPasses(ForwardPasses):
    """Padded passes whose log-probs and entropies of the policy are over the kept sets; of a reference over all tokens.

    Args:
        kept: Kept sets of the generation batch, filled by the first pass of the policy over a completion.
        context: State of the trainer.
        trl_forward: TRL's forward pass.
    """

    def __init__(self, kept: Kept, context: Any, trl_forward: Any) -> None:
        super().__init__(context, trl_forward)
        self._kept = kept
        self._adapters = self._active_adapters()
        args = context.args
        self._rules = {"top_k": args.top_k, "top_p": args.top_p, "min_p": args.min_p}

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
        """Return log-probs and entropies (B, T) over the kept sets."""
        rows = input_ids, attention_mask, logits_to_keep
        if self._is_reference(model):
            return self._trl_forward(model, *rows, batch_size, compute_entropy, compute_aux_loss, **images)
        if compute_aux_loss or any(x is not None for x in images.values()):
            raise PartError("requires completions without images, and no load-balancing loss", where="kept_set")
        size, found = batch_size or len(input_ids), list[Statistics]()
        with self.context.accelerator.autocast():
            for ids, mask in zip(input_ids.split(size), attention_mask.split(size), strict=True):
                found.append(self._over_kept(model, ids, mask, logits_to_keep))
        logps, entropies = zip(*found, strict=True)
        return torch.cat(logps), torch.cat(entropies) if compute_entropy else None, None

    def vocab_statistics(self, rows: Rows, batch_size: int) -> dict[str, torch.Tensor]:
        """Return name → (B, T): log-probs and entropies over the kept sets, other statistics over the vocabulary."""
        statistics = super().vocab_statistics(rows, batch_size)
        with torch.no_grad():
            logp, entropy, _ = self.compute(self.context.model, *rows, batch_size, compute_entropy=True)
        assert entropy is not None
        return {**statistics, "old_logp": logp, "entropy": entropy}

    def _over_kept(self, model: Any, ids: torch.Tensor, mask: torch.Tensor, width: int) -> Statistics:
        logits = model(input_ids=ids, attention_mask=mask, logits_to_keep=width + 1, use_cache=False).logits
        logits = logits[:, -width - 1 : -1].to(torch.promote_types(logits.dtype, torch.float32))
        logits, tokens = logits / self.context.temperature, ids[:, -width:]
        kept = torch.stack([self._kept_of(*row, width) for row in zip(logits.detach(), ids, mask, strict=True)])
        z = logits.masked_fill(~kept, -torch.inf).log_softmax(-1)
        entropy = -(z.exp() * z.masked_fill(~kept, 0.0)).sum(-1)
        return z.gather(-1, tokens.unsqueeze(-1)).squeeze(-1), entropy

    def _kept_of(self, logits: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor, width: int) -> torch.Tensor:
        """Return the stored kept set (T, V) of a completion; at the first pass over it that of `logits`."""
        is_token = mask[-width:].bool()
        key = (int(mask[:-width].sum()), *ids[mask.bool()].tolist())
        kept = torch.ones_like(logits, dtype=torch.bool)
        if key not in self._kept:
            found = kept_tokens(logits[is_token], ids[-width:][is_token], **self._rules)
            self._kept[key] = found.nonzero().int()
        positions, tokens = self._kept[key].long().unbind(1)
        kept[is_token] = torch.zeros_like(kept[is_token]).index_put((positions, tokens), torch.tensor(True))
        return kept

    def _is_reference(self, model: Any) -> bool:
        """Return True for another model, and while the adapter of the policy is off or replaced."""
        unwrap = self.context.accelerator.unwrap_model
        return unwrap(model) is not unwrap(self.context.model) or self._active_adapters() != self._adapters

    def _active_adapters(self) -> list[str]:
        policy = self.context.accelerator.unwrap_model(self.context.model)
        layer = next((each for each in policy.modules() if isinstance(each, BaseTunerLayer)), None)
        return [] if layer is None or layer.disable_adapters else list(layer.active_adapters)


class NewGeneration(StepObserver):
    """Forgets the kept sets of the last generation batch."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept

    def begin_generation(self) -> None:
        """Forget the kept sets."""
        self._kept.clear()
