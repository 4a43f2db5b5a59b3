"""Check of all examples against tokenizer and model before weights are loaded: lengths, characters without a token."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from rlm_plugins.data.images import without_images
from rlm_plugins.data.tokenizer_check import check_tokenizer, rendered
from rlm_plugins.errors import RecipeError

_LOG = logging.getLogger(__name__)
COLUMNS = ("demonstration", "answer", "chosen", "rejected", "completion")
"""Columns that the policy must be able to write."""
PIECE = 16
"""Characters per position beyond which a prefix decides that a text is too long."""
STREAMED = 1000
"""Examples of a stream that are checked."""
MEASURED = 20_000
"""Prompts that are tokenized at most: the longest in bytes."""
SAMPLED = 32
"""Prompts after which the number of tokens that the template adds is taken as known."""


def check_texts(
    tokenizer: Any,
    rows: Any,
    positions: int | None,
    completion: int | None,
    where: str,
    *,
    explicit: bool = False,
    template: Mapping[str, Any] | None = None,
    kind: str = "training",
) -> None:
    """Check that a tokenizer can encode every example, and that its prompt fits the model, with one position left.

    A prompt is tokenized only if its bytes may exceed the limit, because a token has at least one byte.

    Args:
        tokenizer: Of the policy.
        rows: Examples with a ``prompt``; of a stream, the first are checked.
        positions: Positions of the model; None: unknown.
        completion: Longest completion in tokens; None: prompts alone count.
        where: Address of the environment, for errors.
        explicit: True if the recipe sets the longest completion, so that exceeding the positions is an error.
        template: ``chat_template_kwargs`` of the recipe.
        kind: ``training`` or ``held-out``, for errors.

    Raises:
        RecipeError: It names the first example, counted from 0.
    """
    rows = without_images(rows)
    examples = list(rows if hasattr(rows, "__len__") else islice(rows, STREAMED))
    for number, example in _of_every_character(examples):
        try:
            check_tokenizer(tokenizer, example, **(template or {}))
        except RecipeError as error:
            problem = f"{kind} example {number}: {error.problem}"
            raise RecipeError(problem, where=error.where, hint=error.hint) from None
    longest = _longest(tokenizer, examples, positions, completion or 0, template or {}) if positions else None
    if longest is None or positions is None:
        return
    number, tokens = longest
    subject = f"the prompt of {kind} example {number} has"
    if tokens >= positions:
        raise RecipeError(
            f"{subject} {_count(tokens, positions)}, and the model has {positions} positions",
            where=where,
            hint="remove or shorten such prompts, or choose a model with more positions",
        )
    if completion is not None and tokens + completion > positions:
        problem = f"{subject} {tokens} tokens, and with a completion of {completion} more than the {positions} "
        problem += "positions of the model"
        hint = f"`trainer.max_completion_length: {max(1, positions - tokens)}`, or shorter prompts"
        if explicit:
            raise RecipeError(problem, where=where, hint=hint)
        _LOG.warning("%s: %s\n  hint: %s", where, problem, hint)


def _of_every_character(examples: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield number and example of those with a new character or form of conversation: a few dozen stand for all."""
    seen: set[str] = set()
    forms: set[Any] = set()
    for number, example in enumerate(examples):
        form = _form(example["prompt"])
        text = str(example.get("prompt")) + "".join(str(example.get(name) or "") for name in COLUMNS)
        if form not in forms or not seen.issuperset(text):
            new = set(text) - seen
            seen |= new
            forms.add(form)
            yield number, {**example, "prompt": _shortened(example["prompt"], new)}


def _form(prompt: Any) -> Any:
    """Return what a chat template may object to: roles, types of contents, and further keys."""
    if isinstance(prompt, str):
        return ""
    forms = []
    for message in prompt:
        keys = sorted(key for key, value in message.items() if value is not None)
        forms.append((message.get("role"), type(message.get("content")).__name__, *keys))
    return tuple(forms)


def _shortened(prompt: Any, characters: set[str], limit: int = 20_000) -> Any:
    """Return a prompt; of a very long text, the characters that count."""
    if isinstance(prompt, str) and len(prompt) > limit:
        return "".join(sorted(characters.intersection(prompt)))
    return prompt


def _longest(
    tokenizer: Any, examples: Sequence[Mapping[str, Any]], positions: int, completion: int, template: Mapping[str, Any]
) -> tuple[int, int] | None:
    """Return number and tokens of the longest prompt that is measured; None: there is no example.

    The template adds tokens of its own: as many as to the prompts before, doubled while these are few.
    """
    sizes = sorted(((_bytes(example["prompt"]), -i) for i, example in enumerate(examples)), reverse=True)
    longest, added = None, 0
    for measured, (size, number) in enumerate(sizes[:MEASURED]):
        most = size + (2 * added if measured < SAMPLED else added)
        if longest is not None and most <= max(longest[1], positions - max(1, completion)):
            break
        prompt = examples[-number]["prompt"]
        tokens = _tokens(tokenizer, rendered(tokenizer, prompt, **template), positions)
        added = max(added, tokens - sum(_tokens(tokenizer, text, positions) for text in _texts(prompt)))
        if longest is None or tokens > longest[1]:
            longest = -number, tokens
        if tokens >= positions:
            break
    return longest


def _texts(prompt: Any) -> list[str]:
    return [prompt] if isinstance(prompt, str) else [str(message.get("content") or "") for message in prompt]


def _bytes(prompt: Any) -> int:
    return sum(len(text.encode(errors="replace")) for text in _texts(prompt))


def _tokens(tokenizer: Any, text: str, positions: int) -> int:
    if len(text) > PIECE * positions:
        prefix = len(tokenizer(text[: PIECE * positions], add_special_tokens=False)["input_ids"])
        if prefix > positions:
            return prefix
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])


def _count(tokens: int, positions: int) -> str:
    return f"{tokens} tokens" if tokens < 4 * positions else f"more than {4 * positions} tokens"
