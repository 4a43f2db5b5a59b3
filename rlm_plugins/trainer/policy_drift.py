"""Policy drift: how far the policy has moved since each prompt was last sampled."""

from __future__ import annotations

from typing import Any

import torch
from accelerate.utils import gather_object

from rlm_plugins.rollout.completion_cache import (
    CompletionCache,
    mean_abs_difference,
    split_completions,
    stack_completions,
)
from rlm_plugins.trainer.context import TrainerContext
from rlm_plugins.trainer.passes import ForwardPasses, loss_mask


class PolicyDrift:
    """Keeps the last completion of each prompt and recomputes its log-probs when the prompt is sampled again.

    Attributes:
        cache: Last completions; part of a checkpoint. None: no part names `policy_drift`.
    """

    def __init__(self, context: TrainerContext, passes: ForwardPasses) -> None:
        self.context, self.passes = context, passes
        self.cache = CompletionCache() if context.needs.for_scoring("policy_drift") else None

    def measure(self, out: dict[str, Any], index: torch.Tensor | None) -> torch.Tensor | None:
        """Return (B,) mean |Δ log π| of all processes, and keep the new completions.

        A new prompt is compared with its own completion, at distance 0, so that every process runs the same number
        of forward passes.

        Args:
            out: TRL's dictionary for the completions of this process.
            index: (B,) row number of each prompt in the data set, of all processes.
        """
        if self.cache is None or index is None:
            return None
        context, cache = self.context, self.cache
        prompts = index[context.local_rows(len(out["prompt_ids"]))].tolist()
        current = split_completions(out, loss_mask(out))
        last = [cache.last(prompt, completion) for prompt, completion in zip(prompts, current, strict=True)]
        inputs = stack_completions(last, context.tokenizer.pad_token_id, context.accelerator.device)
        with torch.no_grad():
            logp = self.passes.of(context.model, inputs, context.args.per_device_train_batch_size)[0]
        is_cached = torch.tensor([cache.contains(prompt) for prompt in prompts], device=logp.device)
        drift = mean_abs_difference(logp, inputs["logp"], inputs["mask"]).where(is_cached, 0.0)
        cache.remember(gather_object(prompts), gather_object(current))
        gathered: torch.Tensor = context.gather_rows(drift)
        return gathered
