"""Check of all examples against tokenizer and model before weights are loaded: lengths, characters without a token."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlm_plugins.data.tokenizer_check import check_tokenizer
from rlm_plugins.errors import RecipeError

_LOG = logging.getLogger(__name__)
COLUMNS = ("demonstration", "answer", "chosen", "rejected", "completion")
"""Columns that the policy must be able to write."""
PIECE = 16
"""Characters per position beyond which a prefix decides that a text is too long."""


def check_texts(
    tokenizer: Any, rows: Any, positions: int | None, completion: int | None, where: str, *, explicit: bool
) -> None:
    """Check every example.

    Args:
        tokenizer: Of the policy.
        rows: Training examples; of a stream, only the first is checked.
        positions: Positions of the model; None: unknown.
        completion: Longest completion in tokens; None: prompts alone count.
        where: Address of the environment, for errors.
        explicit: True if the recipe sets the longest completion, so that exceeding the positions is an error.

    Raises:
        RecipeError: It names the first example, counted from 0.
    """
    examples = list(_examples(rows))
    for example in _of_every_character(examples):
        check_tokenizer(tokenizer, example)
    if positions is None:
        return
    longest = _longest(tokenizer, examples, positions)
    if longest is None:
        return
    number, tokens = longest
    if tokens > positions:
        hint = "remove such examples, or choose a model with more positions"
        problem = f"the prompt of training example {number} has {_count(tokens, positions)}, more than the {positions} "
        raise RecipeError(f"{problem}positions of the model", where=where, hint=hint)
    if completion is not None and tokens + completion > positions:
        problem = (
            f"the prompt of training example {number} has {tokens} tokens, and with a completion of {completion} more "
            f"than the {positions} positions of the model"
        )
        hint = f"`trainer.max_completion_length: {max(1, positions - tokens)}`, or shorter prompts"
        if explicit:
            raise RecipeError(problem, where=where, hint=hint)
        _LOG.warning("%s: %s\n  hint: %s", where, problem, hint)


def _examples(rows: Any) -> Iterator[Mapping[str, Any]]:
    if not hasattr(rows, "__len__"):
        yield from (row for row, _ in zip(rows, range(1), strict=False))
        return
    yield from rows


def _of_every_character(examples: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the examples that contain a character for the first time: a few dozen stand for all."""
    seen: set[str] = set()
    for example in examples:
        text = str(example.get("prompt")) + "".join(str(example.get(name) or "") for name in COLUMNS)
        if not seen.issuperset(text):
            new = set(text) - seen
            seen |= new
            yield {**example, "prompt": _shortened(example["prompt"], new)}


def _shortened(prompt: Any, characters: set[str], limit: int = 20_000) -> Any:
    """Return a prompt; of a very long text, the characters that count."""
    if isinstance(prompt, str) and len(prompt) > limit:
        return "".join(sorted(characters.intersection(prompt)))
    return prompt


def _longest(tokenizer: Any, examples: Sequence[Mapping[str, Any]], positions: int) -> tuple[int, int] | None:
    """Return number and tokens of the longest prompt, among those with the most characters."""
    sizes = sorted(((_size(example["prompt"]), i) for i, example in enumerate(examples)), reverse=True)
    found: tuple[int, int] | None = None
    for size, number in sizes[:32]:  # tokens per character differ by text, but not that much within a data set
        tokens = _tokens(tokenizer, examples[number]["prompt"], positions)
        if found is None or tokens > found[1]:
            found = number, tokens
        if found[1] > positions or size < found[1]:  # a token has at least one character
            break
    return found


def _size(prompt: Any) -> int:
    return len(prompt) if isinstance(prompt, str) else sum(len(str(m.get("content") or "")) for m in prompt)


def _tokens(tokenizer: Any, prompt: Any, positions: int) -> int:
    text = prompt if isinstance(prompt, str) else tokenizer.apply_chat_template(prompt, tokenize=False)
    if len(text) > PIECE * positions:
        prefix = len(tokenizer(text[: PIECE * positions], add_special_tokens=False)["input_ids"])
        if prefix > positions:
            return prefix
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])


def _count(tokens: int, positions: int) -> str:
    return f"{tokens} tokens" if tokens < 4 * positions else f"more than {4 * positions} tokens"
