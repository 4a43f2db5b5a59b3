"""How far the policy has moved since it last met a problem: its last answer is kept and read again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float

from rlm_plugins.errors import RecipeError
from rlm_plugins.rollout.dynamic_sampling import padded


@dataclass
class Answer:
    """A prompt and what was written to it, without padding, on the CPU.

    Args:
        prompt, completion: (T,) token ids.
        mask: (T,) whether a token of the completion is trained on.
        logp: (T,) its log-probability under the policy that wrote it.
    """

    prompt: torch.Tensor
    completion: torch.Tensor
    mask: torch.Tensor
    logp: torch.Tensor


class CompletionCache:
    """The last answer to every problem. (As many tokens as the problems met so far have answers: also on disk.)"""

    def __init__(self) -> None:
        self._answers: dict[int, Answer] = {}

    def last(self, problem: int, otherwise: Answer) -> Answer:
        """The last answer to a problem, or another where it was never met."""
        return self._answers.get(problem, otherwise)

    def knows(self, problem: int) -> bool:
        """Whether it was met before."""
        return problem in self._answers

    def remember(self, problems: Sequence[int], answers: Sequence[Answer]) -> None:
        """Keeps the first answer to each problem of a generation."""
        self._answers |= dict(reversed(list(zip(problems, answers, strict=True))))

    def state_dict(self) -> dict[int, tuple[torch.Tensor, ...]]:
        return {problem: (a.prompt, a.completion, a.mask, a.logp) for problem, a in self._answers.items()}

    def load_state_dict(self, state: dict[int, tuple[torch.Tensor, ...]]) -> None:
        self._answers = {problem: Answer(*tensors) for problem, tensors in state.items()}


def answers_in(out: dict[str, Any], mask: torch.Tensor) -> list[Answer]:
    """The rows of TRL's dictionary, one by one.

    Args:
        out: With ``old_per_token_logps``.
        mask: (B, T) tokens that are trained on.

    Raises:
        RecipeError: The rows have images, which are not kept.
    """
    if "num_images" in out:
        problem = "answers about images cannot be read again later: their pixels are not kept"
        raise RecipeError(problem, where="algorithm", hint="choose parts that do not ask for `moved`")
    found = []
    for row in range(len(mask)):
        prompt, there = out["prompt_mask"][row].bool(), out["completion_mask"][row].bool()
        pieces = out["prompt_ids"][row][prompt], out["completion_ids"][row][there]
        said = mask[row][there], out["old_per_token_logps"][row][there]
        found.append(Answer(*(x.detach().cpu().clone() for x in (*pieces, *said))))
    return found


def stacked(answers: Sequence[Answer], pad_token: int, device: Any) -> dict[str, torch.Tensor]:
    """Answers as TRL's dictionary has rows, and what is known of their tokens."""
    rows = rows_of([a.prompt for a in answers], [a.completion for a in answers], pad_token)
    rows |= {"mask": _stack([a.mask for a in answers]), "logp": _stack([a.logp for a in answers])}
    return {name: x.to(device) for name, x in rows.items()}


def rows_of(
    prompts: Sequence[torch.Tensor], completions: Sequence[torch.Tensor], pad_token: int
) -> dict[str, torch.Tensor]:
    """Token ids as TRL's dictionary has rows: prompts padded on the left, completions on the right."""
    return {
        "prompt_ids": _stack(prompts, True, pad_token),
        "prompt_mask": _stack([torch.ones_like(x) for x in prompts], True),
        "completion_ids": _stack(completions, False, pad_token),
        "completion_mask": _stack([torch.ones_like(x) for x in completions]),
    }


def _stack(rows: Sequence[torch.Tensor], left: bool = False, filling: int = 0) -> torch.Tensor:
    width = max(1, *(len(row) for row in rows))
    return torch.cat([padded(row.unsqueeze(0), width, left, filling) for row in rows])


def distance(
    logp: Float[torch.Tensor, "B T"], then: Float[torch.Tensor, "B T"], mask: torch.Tensor
) -> Float[torch.Tensor, "B"]:
    """Mean |Δ log π| over the tokens of each row; 0 for a row without tokens.

    >>> then, now = torch.tensor([[-1.0, -2.0, 0.0]]), torch.tensor([[-1.5, -1.0, 9.0]])
    >>> distance(now, then, torch.tensor([[True, True, False]])).tolist()
    [0.75]
    """
    return ((logp - then).abs() * mask).sum(1) / mask.sum(1).clamp(min=1)
