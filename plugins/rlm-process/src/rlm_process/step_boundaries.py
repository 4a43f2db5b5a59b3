"""Knobs that define a step, or hold the address of a user's function."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Annotated, Any, Literal

import pydantic
from jaxtyping import Bool, Float, Int
from pydantic import AfterValidator, Field, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError

from rlm_plugins.errors import PartError, RecipeError
from rlm_plugins.lazy import torch
from rlm_plugins.registry.loading import ALLOWED, import_function

PATTERNS = {"lines": r"\n+", "paragraphs": r"\n[^\S\n]*\n\s*", "sentences": r"[.!?]+(?=\s|$)|\n+"}
"""Name → pattern of a step's end, which belongs to the step."""


def _validate_pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise PydanticCustomError("pattern", "a regular expression: {why}", {"why": str(error)}) from None
    return pattern


def _validate_address(address: str) -> str:
    try:
        import_function(address, where="")
    except RecipeError as error:
        details = {"allowed": ALLOWED, "why": error.problem}
        raise PydanticCustomError("address", "a function by its address, {allowed} ({why})", details) from None
    return address


def _validate_steps(steps: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """Report one error for a string, instead of one per branch of the union."""
    if not isinstance(steps, str) or steps in PATTERNS:
        return handler(steps)
    try:
        return _validate_address(steps)
    except PydanticCustomError as error:
        names = ", ".join(f"'{name}'" for name in PATTERNS)
        details = {"names": f"{names}, {{pattern: …}}, {{every: …}}", "why": error.message()}
        raise PydanticCustomError("steps", "Input should be {names} or {why}", details) from None


Address = Annotated[str, AfterValidator(_validate_address)]
"""A knob that holds ``module:function`` or ``file.py:function``; a missing function is an error of the recipe."""


class Pattern(pydantic.BaseModel):
    """Steps that end with a match of a regular expression."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)
    pattern: Annotated[str, AfterValidator(_validate_pattern)]


class Every(pydantic.BaseModel):
    """Steps of a fixed number of tokens."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)
    every: Annotated[int, Field(ge=1)]


Steps = Annotated[Literal["lines", "paragraphs", "sentences"] | Pattern | Every | str, WrapValidator(_validate_steps)]
"""A knob that defines a step: a name, ``{pattern: ";"}``, ``{every: 32}``, or the address of a rule."""


def token_texts(ids: Sequence[int], tokenizer: Any) -> list[str]:
    """Return the text of each token; their concatenation is the text of all.

    A character of several tokens belongs to the last of them; special tokens are empty. Each token is decoded
    together with the one before, since some tokenizers drop a leading space.
    """
    texts: list[str] = []
    start = decoded_until = 0  # tokens from `start` on are decoded together; up to `read` their text is known
    for token in range(len(ids)):
        previous_text = _text(ids[start:decoded_until], tokenizer)
        text = _text(ids[start : token + 1], tokenizer)
        is_complete = not text.endswith("\ufffd") or token + 1 == len(ids)
        texts.append(text[len(previous_text) :] if is_complete else "")
        if is_complete:
            start, decoded_until = decoded_until, token + 1
    return texts


def _text(ids: Sequence[int], tokenizer: Any) -> str:
    text: str = tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text


def match_ends(pattern: re.Pattern[str], texts: Sequence[str]) -> list[int]:
    """Return the tokens that contain the last character of a match, counted from 1.

    >>> match_ends(re.compile(";"), ["1", "+1;", "2", ";3"])
    [2, 4]
    """
    text_ends = list(accumulate(map(len, texts)))
    return [bisect_left(text_ends, match.end()) + 1 for match in pattern.finditer("".join(texts)) if match.end()]


Rule = Callable[[Sequence[str]], Iterable[int]]
"""The text of each token → numbers of tokens after which a step ends. The end of the completion is implied."""

Cut = Callable[[Sequence[int]], list[int]]
"""Token ids → numbers of tokens after which each step ends: increasing, up to the number of tokens."""


def step_cutter(steps: Steps, tokenizer: Any, *, where: str) -> Cut:
    """Return the function that a knob describes.

    Where the text decides, no step is blank: white space or an end token alone belongs to the step before (at the
    very beginning to the one after). A step ends with the token that contains the end of its terminator.

    Raises:
        RecipeError: There is no function at the address.

    >>> from rlm_process.step_boundaries import Every
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
