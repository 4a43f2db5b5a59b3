"""Policy drift: the last completion of each prompt, measured again with a forward pass of the current policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import gather_object
from jaxtyping import Float

from rlm_plugins.errors import RecipeError
from rlm_plugins.rollout.dynamic_sampling import pad_sequences, stack
from rlm_plugins.trainer.observer import StepObserver
from rlm_plugins.trainer.passes import loss_mask

if TYPE_CHECKING:
    from rlm_plugins.equation.batch import Batch


@dataclass
class CachedCompletion:
    """A prompt and one completion, without padding, on the CPU.

    Args:
        prompt, completion: (T,) token ids.
        mask: (T,) True where a token of the completion is trained on.
        logp: (T,) log-probs under the policy that generated it.
    """

    prompt: torch.Tensor
    completion: torch.Tensor
    mask: torch.Tensor
    logp: torch.Tensor


class CompletionCache:
    """Cache of the last completion of every prompt; it is part of each checkpoint."""

    def __init__(self) -> None:
        self._completions: dict[int, CachedCompletion] = {}

    def last(self, prompt_index: int, default: CachedCompletion) -> CachedCompletion:
        """Return the last completion of a prompt, or `default`."""
        return self._completions.get(prompt_index, default)

    def contains(self, prompt_index: int) -> bool:
        """Return True if there is a completion of this prompt."""
        return prompt_index in self._completions

    def remember(self, prompt_indices: Sequence[int], completions: Sequence[CachedCompletion]) -> None:
        """Store the first completion of each prompt of a generation batch."""
        self._completions |= dict(reversed(list(zip(prompt_indices, completions, strict=True))))

    def state_dict(self) -> dict[int, tuple[torch.Tensor, ...]]:
        """Return the cache as plain tensors."""
        return {index: (c.prompt, c.completion, c.mask, c.logp) for index, c in self._completions.items()}

    def load_state_dict(self, state: dict[int, tuple[torch.Tensor, ...]]) -> None:
        self._completions = {index: CachedCompletion(*tensors) for index, tensors in state.items()}


def split_completions(out: Mapping[str, Any], mask: torch.Tensor) -> list[CachedCompletion]:
    """Return the completions in TRL's dictionary, one by one.

    Args:
        out: With ``old_per_token_logps``.
        mask: (B, T) tokens that are trained on.
    """
    if "num_images" in out:
        problem = "`policy_drift` does not support prompts with images: their pixels are not cached"
        raise RecipeError(problem, where="algorithm", hint="choose parts that do not require `policy_drift`")
    completions = []
    for i in range(len(mask)):
        prompt_mask, completion_mask = out["prompt_mask"][i].bool(), out["completion_mask"][i].bool()
        ids = out["prompt_ids"][i][prompt_mask], out["completion_ids"][i][completion_mask]
        per_token = mask[i][completion_mask], out["old_per_token_logps"][i][completion_mask]
        completions.append(CachedCompletion(*(x.detach().cpu().clone() for x in (*ids, *per_token))))
    return completions


def stack_completions(completions: Sequence[CachedCompletion], pad_token: int, device: Any) -> dict[str, torch.Tensor]:
    """Return completions as padded tensors: those of TRL's dictionary, `mask` and `logp`."""
    tensors = pad_sequences([c.prompt for c in completions], [c.completion for c in completions], pad_token)
    tensors["mask"] = stack([c.mask for c in completions])
    tensors["logp"] = stack([c.logp for c in completions])
    return {name: x.to(device) for name, x in tensors.items()}


def mean_abs_difference(
    logp: Float[torch.Tensor, "B T"], cached_logp: Float[torch.Tensor, "B T"], mask: torch.Tensor
) -> Float[torch.Tensor, "B"]:
    """Return the mean |Δ log π| over the tokens of each completion; 0 for one without tokens.

    >>> cached, current = torch.tensor([[-1.0, -2.0, 0.0]]), torch.tensor([[-1.5, -1.0, 9.0]])
    >>> mean_abs_difference(current, cached, torch.tensor([[True, True, False]])).tolist()
    [0.75]
    """
    return ((logp - cached_logp).abs() * mask).sum(1) / mask.sum(1).clamp(min=1)


class PolicyDrift(StepObserver):
    """Sets `policy_drift` of each scored batch. Its state, the completions, is part of each checkpoint."""

    name = "past"

    def __init__(self) -> None:
        self.cache = CompletionCache()
        self._out: Mapping[str, Any] = {}

    def state_dict(self) -> dict[int, tuple[torch.Tensor, ...]]:
        return self.cache.state_dict()

    def load_state_dict(self, state: dict[int, tuple[torch.Tensor, ...]]) -> None:
        self.cache.load_state_dict(state)

    def attach(self, trainer: Any) -> None:
        self._components = trainer.components

    def sampled(self, out: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """Store TRL's dictionary, which has the old log-probs before the batch is scored."""
        self._out = out
        return {}

    def scoring(self, batch: Batch, *, is_shaped: bool) -> None:
        """Set the drift of each completion, once per sampling round."""
        index = self._components.prompts.index
        if index is not None and not is_shaped:
            batch.policy_drift = self.measure(self._out, index)

    def measure(self, out: Mapping[str, Any], index: torch.Tensor) -> torch.Tensor:
        """Return (B,) mean |Δ log π| of all processes, and keep the new completions.

        A new prompt is compared with its own completion, at distance 0, so that every process runs the same number
        of forward passes.

        Args:
            out: TRL's dictionary for the completions of this process.
            index: (B,) row number of each prompt in the data set, of all processes.
        """
        context, cache = self._components.context, self.cache
        prompts = index[context.local_rows(len(out["prompt_ids"]))].tolist()
        current = split_completions(out, loss_mask(dict(out)))
        last = [cache.last(prompt, completion) for prompt, completion in zip(prompts, current, strict=True)]
        inputs = stack_completions(last, context.tokenizer.pad_token_id, context.accelerator.device)
        with torch.no_grad():
            logp = self._components.passes.of(context.model, inputs, context.args.per_device_train_batch_size)[0]
        is_cached = torch.tensor([cache.contains(prompt) for prompt in prompts], device=logp.device)
        drift = mean_abs_difference(logp, inputs["logp"], inputs["mask"]).where(is_cached, 0.0)
        cache.remember(gather_object(prompts), gather_object(current))
        gathered: torch.Tensor = context.gather_rows(drift)
        return gathered
