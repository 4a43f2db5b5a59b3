"""How far the policy has moved since it last met each problem, where a part asks."""

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
from rlm_plugins.trainer.logprobs import loss_mask
from rlm_plugins.trainer.old_logprobs import Recalling


class Moving(Recalling):
    """The same, that keeps the last answer to each problem and reads it again, where a part names `moved`."""

    def __init__(self, **rest: Any) -> None:
        super().__init__(**rest)
        self._past = CompletionCache() if self._scoring_names("policy_drift") else None

    def _moved(self, out: dict[str, Any]) -> torch.Tensor:
        """How far the policy has moved since it last met each problem, (B,) of all rows; then the answers are kept.

        A problem never met stands for itself, at distance 0: so every process reads as much as the others.
        """
        assert self._past is not None
        assert self._problem is not None
        problems = self._problem[self._mine(len(out["prompt_ids"]))].tolist()
        now = split_completions(out, loss_mask(out))
        last = [self._past.last(problem, answer) for problem, answer in zip(problems, now, strict=True)]
        rows = stack_completions(last, self._tokenizer.pad_token_id, self.accelerator.device)
        with torch.no_grad():
            logp = self._read(self.model, rows, self.args.per_device_train_batch_size)[0]
        met = torch.tensor([self._past.contains(problem) for problem in problems], device=logp.device)
        moved = mean_abs_difference(logp, rows["logp"], rows["mask"]).where(met, 0.0)
        self._past.remember(gather_object(problems), gather_object(now))
        return self._gather_rows(moved)  # type: ignore[no-any-return]
