"""Step boundaries of a completion in tokens: lines, paragraphs, sentences, a pattern, a count, or a user's rule."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

from jaxtyping import Bool, Float, Int

from rlm_plugins.errors import PartError
from rlm_plugins.lazy import torch
from rlm_plugins.registry.loading import import_function
from rlm_process.knobs import PATTERNS, Every, Pattern, Steps
from rlm_process.token_texts import match_ends, token_texts

Rule = Callable[[Sequence[str]], Iterable[int]]
"""The text of each token → numbers of tokens after which a step ends. The end of the completion is implied."""

Cut = Callable[[Sequence[int]], list[int]]
"""Token ids → numbers of tokens after which each step ends: increasing, up to the number of tokens."""


def step_cutter(steps: Steps, tokenizer: Any, *, where: str) -> Cut:
    """Return the function that a knob describes.

    Where the text decides, no step is blank: white space or an end token alone belongs to the step before (at the
    very beginning to the one after). A step ends with the token that contains the end of its terminator.

    Args:
        steps: The knob.
        tokenizer: Decodes the tokens; not needed for a count.
        where: The knob's address, for the error.

    Raises:
        RecipeError: There is no function at the address.

    >>> from rlm_process.knobs import Every
    >>> step_cutter(Every(every=2), None, where="steps")([7, 7, 7])
    [2, 3]
    """
    if isinstance(steps, Every):
        return lambda ids: [*range(steps.every, len(ids), steps.every), len(ids)] if len(ids) else []
    rule = _rule(steps, where)

    def cut(ids: Sequence[int]) -> list[int]:
        texts = token_texts(ids, tokenizer)
        return (
            _without_blank_steps(sorted({*_validate_ends(rule(texts), len(ids), where), len(ids)}), texts)
            if texts
            else []
        )

    return cut


def _rule(steps: Pattern | str, where: str) -> Rule:
    if isinstance(steps, Pattern) or steps in PATTERNS:
        pattern = re.compile(steps.pattern if isinstance(steps, Pattern) else PATTERNS[steps])
        return lambda texts: match_ends(pattern, texts)
    return import_function(steps, where=where)


def _validate_ends(ends: Iterable[int], num_tokens: int, where: str) -> list[int]:
    checked = list(ends)
    wrong = [end for end in checked if not 0 <= end <= num_tokens]
    if wrong:
        problem = f"a step ends after {wrong[0]} tokens"
        raise PartError(problem, where=where, allowed=f"0 to {num_tokens} in this completion")
    return checked


def _without_blank_steps(ends: Sequence[int], texts: Sequence[str]) -> list[int]:
    """Return the ends that leave no step blank; the last end is kept."""
    kept: list[int] = []
    for end in ends:
        if "".join(texts[kept[-1] if kept else 0 : end]).strip():
            kept.append(end)
    return [*kept[:-1], ends[-1]]


Spans = list[tuple[int, int]]
"""(start, end) of each step of a completion; the end is exclusive."""


def step_spans(
    completions: Sequence[Sequence[int]], cut: Cut, mask: Bool[torch.Tensor, "B T"] | None = None
) -> list[Spans]:
    """Return the steps of every completion.

    Args:
        completions: Token ids.
        cut: Returns the ends of steps.
        mask: In a multi-turn environment, True for the policy's tokens: each of its turns is cut separately, and
            observations belong to no step.

    >>> own = torch.tensor([[True, True, True, False, True]])
    >>> step_spans([[1, 2, 3, 4, 5]], lambda ids: [*range(2, len(ids), 2), len(ids)], own)
    [[(0, 2), (2, 3), (4, 5)]]
    """
    turns = [[(0, len(ids))] for ids in completions] if mask is None else [_runs(row) for row in mask.tolist()]
    return [
        [(start + a, start + b) for start, end in runs for a, b in pairwise((0, *cut(ids[start:end])))]
        for ids, runs in zip(completions, turns, strict=True)
    ]


def _runs(mask_row: Sequence[bool]) -> Spans:
    starts = [
        position for position, (before, current) in enumerate(pairwise((False, *mask_row))) if current and not before
    ]
    ends = [
        position + 1
        for position, (current, match_ends) in enumerate(pairwise((*mask_row, False)))
        if current and not match_ends
    ]
    return list(zip(starts, ends, strict=True))


def zero_rewards(
    mask: Bool[torch.Tensor, "B T"], turn_rewards: Float[torch.Tensor, "B T"] | None
) -> Float[torch.Tensor, "B T"]:
    """Return zeros for every token, in the precision of the environment's rewards."""
    return torch.zeros(mask.shape, device=mask.device) if turn_rewards is None else torch.zeros_like(turn_rewards)


def step_numbers(spans: Sequence[Spans], like: Bool[torch.Tensor, "B T"]) -> Int[torch.Tensor, "B T"]:
    """Return the step of each token, from 0; −1 outside of steps."""
    step_of_token = torch.full(like.shape, -1, device=like.device)
    for row, steps in enumerate(spans):
        for number, (start, end) in enumerate(steps):
            step_of_token[row, start:end] = number
    return step_of_token
