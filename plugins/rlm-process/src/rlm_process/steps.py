"""Where the steps of an answer end, in tokens: lines, paragraphs, sentences, a pattern, a count, or a rule of yours."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Annotated, Any, Literal

import pydantic
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from rlm_plugins.errors import PartError, RecipeError
from rlm_plugins.ingredients.borrowed import borrow_function
from rlm_plugins.lazy import torch

Rule = Callable[[Sequence[str]], Iterable[int]]
"""The text of each token → after how many tokens a step ends. The end of the answer need not be named."""

PATTERNS = {"lines": r"\n+", "paragraphs": r"\n[^\S\n]*\n\s*", "sentences": r"[.!?]+(?=\s|$)|\n+"}
"""Name → what ends a step and still belongs to it."""


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise PydanticCustomError("pattern", "a regular expression: {why}", {"why": str(error)}) from None
    return pattern


class Pattern(pydantic.BaseModel):
    """A step ends with what a regular expression matches."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)
    pattern: Annotated[str, AfterValidator(_compiles)]


class Every(pydantic.BaseModel):
    """A step is so many tokens."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)
    every: Annotated[int, Field(ge=1)]


Steps = Literal["lines", "paragraphs", "sentences"] | Pattern | Every | str
"""A knob that says what a step is: a name, ``{pattern: ";"}``, ``{every: 32}``, or the address of a :data:`Rule`."""


def rule(steps: Steps, *, where: str) -> Rule:
    """What a knob says, as a function.

    Raises:
        RecipeError: It is no name and no address.

    >>> rule(Pattern(pattern=";"), where="steps")(["1", "+1;", "2", ";3"])
    [2, 4]
    >>> rule(Every(every=2), where="steps")(["1", "2", "3"])
    [2]
    """
    if isinstance(steps, Every):
        return lambda pieces: [*range(steps.every, len(pieces), steps.every)]
    if isinstance(steps, Pattern) or steps in PATTERNS:
        pattern = re.compile(steps.pattern if isinstance(steps, Pattern) else PATTERNS[steps])
        return lambda pieces: _after(pattern, pieces)
    if ":" not in steps:
        allowed = f"{', '.join(PATTERNS)}, {{pattern: …}}, {{every: …}}, or `module:function`"
        raise RecipeError(f"there is no rule '{steps}'", where=where, allowed=allowed)
    return borrow_function(steps, where=where)


def _after(pattern: re.Pattern[str], pieces: Sequence[str]) -> list[int]:
    """The tokens that hold the last character of a match, counted from 1."""
    reached = list(accumulate(map(len, pieces)))
    return [bisect_left(reached, match.end()) + 1 for match in pattern.finditer("".join(pieces)) if match.end()]


def pieces(ids: Sequence[int], tokenizer: Any) -> list[str]:
    """The text of each token; joined, the text of all of them.

    A character that is spelt by several tokens stands with the last of them; special tokens are silent. Each is read
    together with the one before, since some tokenizers drop the space in front of a text.
    """
    found: list[str] = []
    start = read = 0  # tokens from `start` on are decoded together; up to `read` their text is known
    for token in range(len(ids)):
        known = _text(ids[start:read], tokenizer)
        text = _text(ids[start : token + 1], tokenizer)
        whole = not text.endswith("\ufffd") or token + 1 == len(ids)
        found.append(text[len(known) :] if whole else "")
        if whole:
            start, read = read, token + 1
    return found


def _text(ids: Sequence[int], tokenizer: Any) -> str:
    text: str = tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text


def ends(ids: Sequence[int], tokenizer: Any, rule: Rule) -> list[int]:
    """After how many tokens each step of an answer ends: rising, the last being the number of tokens.

    A step has something to read in it: what is blank, or an end token alone, belongs to the step before (at the very
    beginning to the one after).

    Raises:
        PartError: The rule named a place outside of the answer.
    """
    said = pieces(ids, tokenizer)
    found = sorted({*rule(said), len(ids)})
    if found[0] < 0 or found[-1] > len(ids):
        wrong = found[0] if found[0] < 0 else found[-1]
        raise PartError(f"a step ends after {wrong} tokens", where="steps", allowed=f"0 to {len(ids)} for this answer")
    kept: list[int] = []
    start = 0
    for end in found:
        if "".join(said[start:end]).strip():
            kept.append(end)
            start = end
    return [*kept[:-1], len(ids)] if len(ids) else []


def numbers(completions: Sequence[Sequence[int]], tokenizer: Any, rule: Rule, width: int) -> torch.Tensor:
    """(B, T): to which step of its row each token belongs, from 0; −1 beyond the end of the row."""
    table = torch.full((len(completions), width), -1)
    for row, ids in enumerate(completions):
        start = 0
        for number, end in enumerate(ends(ids, tokenizer, rule)):
            table[row, start:end] = number
            start = end
    return table
