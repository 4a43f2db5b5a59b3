"""Last completion of each prompt, for measuring policy drift with a forward pass of the current policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float

from rlm_plugins.errors import RecipeError
from rlm_plugins.rollout.dynamic_sampling import pad_to_width


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
        """Restore the cache of a checkpoint."""
        self._completions = {index: CachedCompletion(*tensors) for index, tensors in state.items()}


def split_completions(out: dict[str, Any], mask: torch.Tensor) -> list[CachedCompletion]:
    """Return the completions in TRL's dictionary, one by one.

    Args:
        out: With ``old_per_token_logps``.
        mask: (B, T) tokens that are trained on.

    Raises:
        RecipeError: The prompts have images, which are not cached.
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
    tensors["mask"] = _stack([c.mask for c in completions])
    tensors["logp"] = _stack([c.logp for c in completions])
    return {name: x.to(device) for name, x in tensors.items()}


def pad_sequences(
    prompts: Sequence[torch.Tensor], completions: Sequence[torch.Tensor], pad_token: int
) -> dict[str, torch.Tensor]:
    """Return token ids as TRL's dictionary has them: prompts padded on the left, completions on the right."""
    return {
        "prompt_ids": _stack(prompts, True, pad_token),
        "prompt_mask": _stack([torch.ones_like(x) for x in prompts], True),
        "completion_ids": _stack(completions, False, pad_token),
        "completion_mask": _stack([torch.ones_like(x) for x in completions]),
    }


def _stack(sequences: Sequence[torch.Tensor], left: bool = False, value: int = 0) -> torch.Tensor:
    width = max(1, *(len(x) for x in sequences))
    return torch.cat([pad_to_width(x.unsqueeze(0), width, left, value) for x in sequences])


def mean_abs_difference(
    logp: Float[torch.Tensor, "B T"], cached_logp: Float[torch.Tensor, "B T"], mask: torch.Tensor
) -> Float[torch.Tensor, "B"]:
    """Return the mean |Δ log π| over the tokens of each completion; 0 for one without tokens.

    >>> cached, current = torch.tensor([[-1.0, -2.0, 0.0]]), torch.tensor([[-1.5, -1.0, 9.0]])
    >>> mean_abs_difference(current, cached, torch.tensor([[True, True, False]])).tolist()
    [0.75]
    """
    return ((logp - cached_logp).abs() * mask).sum(1) / mask.sum(1).clamp(min=1)
