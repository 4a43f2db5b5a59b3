"""Validation of the output of rollout sources, and of the prefixes that they pass to `generate`."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlm_plugins.dispatch import attribute_errors, location
from rlm_plugins.errors import PartError
from rlm_plugins.registry.part import Bound

PER_TOKEN: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "logprobs": ("finite numbers (None: unknown)", lambda x: x is None or math.isfinite(x)),
    "mask": ("True or False (1 or 0)", lambda x: x in (0, 1)),
}
"""Per-token outputs of a source: name → allowed values in words, and a check of one value."""


def call_source(source: Bound, data: Mapping[str, Any], vocab_size: int | None = None) -> dict[str, list[Any]]:
    """Return the validated output of a source: one entry per completion, per-token lists of its length.

    Args:
        source: The part.
        data: Names that it may require: :data:`rlm_plugins.hooks.ROLLOUT`.
        vocab_size: Of the model; None: unknown.

    Raises:
        PartError: It failed, or its output is invalid.
    """
    with attribute_errors(source):
        names = source.part.data
        result = source.call({name: data[name] for name in names}, data["step"])
    size = len(data["prompts"])
    columns = result if isinstance(result, Mapping) else {}
    sizes = {name: len(values) for name, values in columns.items() if hasattr(values, "__len__")}
    if "completion_ids" not in sizes or set(sizes.values()) != {size} or len(sizes) < len(columns):
        counts = ", ".join(f"{n} {name}" for name, n in sizes.items()) or type(result).__name__
        allowed = f"completion_ids (and further columns): a list of {size} entries each"
        raise PartError(f"returned {counts}", where=location(source), allowed=allowed)
    output = {("mask" if name == "env_mask" else name): list(values) for name, values in columns.items()}
    output["completion_ids"] = [_completion(source, ids, vocab_size) for ids in output["completion_ids"]]
    for name in (name for name in PER_TOKEN if name in output):
        pairs = zip(output["completion_ids"], output[name], strict=True)
        output[name] = [_per_token(source, name, number, *pair) for number, pair in enumerate(pairs)]
    return output


def checked_generate(
    source: Bound, generate: Callable[..., tuple[list[list[int]], Any]], vocab_size: int | None = None
) -> Callable[..., list[list[int]]]:
    """Return the data ``generate`` of one source: the policy's generation, with prefixes checked.

    Args:
        source: The part, for error messages.
        generate: The trainer's.
        vocab_size: Of the model; None: unknown.
    """

    def checked(prompts: Sequence[Any], prefixes: Any = None, **options: Any) -> list[list[int]]:
        if prefixes is not None:
            options["prefixes"] = _prefixes(source, list(prefixes), len(prompts), vocab_size)
        return generate(prompts, **options)[0]

    return checked


def _prefixes(source: Bound, prefixes: list[Any], count: int, vocab_size: int | None) -> list[list[int]]:
    if len(prefixes) != count:
        problem = f"called `generate` with {len(prefixes)} prefixes for {count} prompts"
        raise PartError(
            problem, where=location(source), allowed="one list of token ids per prompt (an empty one: none)"
        )
    return [
        _token_ids(source, ids, f"called `generate` with the prefix {n},", vocab_size) for n, ids in enumerate(prefixes)
    ]


def _completion(source: Bound, ids: Any, vocab_size: int | None) -> list[int] | None:
    """Return a completion as token ids; None leaves it to the policy."""
    return None if ids is None else _token_ids(source, ids, "returned the completion", vocab_size, "None, or ")


def _token_ids(source: Bound, tokens: Any, action: str, vocab_size: int | None, otherwise: str = "") -> list[int]:
    """Return token ids of the model's vocabulary, or raise an error that names the source's action."""
    allowed = f"{otherwise}a list of token ids" + (f" from 0 to {vocab_size - 1}" if vocab_size else "")
    try:
        ids = [operator.index(token) for token in tokens]
    except TypeError:
        raise PartError(f"{action} {tokens!r:.80}", where=location(source), allowed=allowed) from None
    for token in ids:
        if token < 0 or (vocab_size and token >= vocab_size):
            problem = f"{action} {ids!r:.80} with the token id {token}"
            raise PartError(problem, where=location(source), allowed=allowed)
    return ids


def _per_token(source: Bound, name: str, number: int, ids: list[int] | None, values: Any) -> list[Any] | None:
    """Return a source's values for the tokens of its completion `number`; None: not reported."""
    if not ids or values is None:
        return None
    values = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(values, Sequence) or len(values) != len(ids):
        actual = f"{len(values)} entries" if isinstance(values, Sequence) else f"type {type(values).__name__}"
        problem = f"returned a {name} of {actual} for a completion of {len(ids)} tokens"
        raise PartError(problem, where=location(source), allowed="one entry per token, or None for the completion")
    allowed, is_allowed = PER_TOKEN[name]
    for token, value in enumerate(values):
        if not _is_valid(is_allowed, value):
            problem = f"returned {value!r:.40} in its {name}: completion {number}, token {token}"
            raise PartError(problem, where=location(source), allowed=allowed)
    return list(values)


def _is_valid(check: Callable[[Any], bool], value: Any) -> bool:
    try:
        return check(value.item() if hasattr(value, "item") else value)
    except TypeError:
        return False
