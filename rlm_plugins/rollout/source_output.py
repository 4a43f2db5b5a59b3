"""What a rollout source answers, and what it asks the policy to go on from, held against what can be read."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlm_plugins.dispatch import attribute_errors, location
from rlm_plugins.errors import PartError
from rlm_plugins.registry.part import Bound

OF_TOKENS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "logprobs": ("finite numbers (None: not known)", lambda x: x is None or math.isfinite(x)),
    "mask": ("True or False (1 or 0)", lambda x: x in (0, 1)),
}
"""What a source may say of each token of a row, what that may be, and whether a value is."""


def asked(source: Bound, given: Mapping[str, Any], vocabulary: int | None = None) -> dict[str, list[Any]]:
    """What a source answers, once it has as many entries as it was given rows, and as many marks as tokens.

    Args:
        source: The part.
        given: What it may name: :data:`rlm_plugins.hookspecs.WRITING`.
        vocabulary: How many tokens the model can read; None: nobody knows.

    Raises:
        PartError: It failed, or answered something else.
    """
    with attribute_errors(source):
        named = (*source.part.needs, *source.part.welcomes)
        found = source.call({name: given[name] for name in named}, given["step"])
    size = len(given["prompts"])
    listed = found if isinstance(found, Mapping) else {}
    sizes = {name: len(values) for name, values in listed.items() if hasattr(values, "__len__")}
    if "completion_ids" not in sizes or set(sizes.values()) != {size} or len(sizes) < len(listed):
        said = ", ".join(f"{n} {name}" for name, n in sizes.items()) or type(found).__name__
        needed = f"completion_ids (and whatever else): a list of {size} rows each"
        raise PartError(f"returned {said}", where=location(source), allowed=needed)
    rows = {("mask" if name == "env_mask" else name): list(values) for name, values in listed.items()}
    rows["completion_ids"] = [_completion(source, row, vocabulary) for row in rows["completion_ids"]]
    for name in (name for name in OF_TOKENS if name in rows):
        pairs = zip(rows["completion_ids"], rows[name], strict=True)
        rows[name] = [_marks(source, name, number, *pair) for number, pair in enumerate(pairs)]
    return rows


def guarded(
    source: Bound, write: Callable[..., tuple[list[list[int]], Any]], vocabulary: int | None = None
) -> Callable[..., list[list[int]]]:
    """The word ``write`` for one source: what the policy writes, once it can read what it is to go on from.

    Args:
        source: Who asks.
        write: That of the trainer.
        vocabulary: As above.
    """

    def checked(prompts: Sequence[Any], prefixes: Any = None, **options: Any) -> list[list[int]]:
        if prefixes is not None:
            options["prefixes"] = _prefixes(source, list(prefixes), len(prompts), vocabulary)
        return write(prompts, **options)[0]

    return checked


def _prefixes(source: Bound, prefixes: list[Any], rows: int, vocabulary: int | None) -> list[list[int]]:
    if len(prefixes) != rows:
        problem = f"called `write` with {len(prefixes)} prefixes for {rows} prompts"
        raise PartError(
            problem, where=location(source), allowed="one list of token ids per prompt (an empty one: none)"
        )
    return [
        _token_ids(source, row, f"called `write` with the prefix {n},", vocabulary) for n, row in enumerate(prefixes)
    ]


def _completion(source: Bound, row: Any, vocabulary: int | None) -> list[int] | None:
    """A row as the tokens of the model; None: it is left open."""
    return None if row is None else _token_ids(source, row, "returned the row", vocabulary, "None, or ")


def _token_ids(source: Bound, row: Any, doing: str, vocabulary: int | None, otherwise: str = "") -> list[int]:
    """Token ids that the model can read, or an error about what the source was doing with them."""
    allowed = f"{otherwise}a list of token ids" + (f" from 0 to {vocabulary - 1}" if vocabulary else "")
    try:
        ids = [operator.index(token) for token in row]
    except TypeError:
        raise PartError(f"{doing} {row!r:.80}", where=location(source), allowed=allowed) from None
    for token in ids:
        if token < 0 or (vocabulary and token >= vocabulary):
            problem = f"{doing} {ids!r:.80} with the token id {token}"
            raise PartError(problem, where=location(source), allowed=allowed)
    return ids


def _marks(source: Bound, name: str, number: int, ids: list[int] | None, marks: Any) -> list[Any] | None:
    """What a source says of the tokens of its row `number`; None: nothing."""
    if not ids or marks is None:
        return None
    marks = marks.tolist() if hasattr(marks, "tolist") else marks
    if not isinstance(marks, Sequence) or len(marks) != len(ids):
        said = f"{len(marks)} entries" if isinstance(marks, Sequence) else f"type {type(marks).__name__}"
        problem = f"returned a {name} of {said} for a row of {len(ids)} tokens"
        raise PartError(problem, where=location(source), allowed="one entry per token, or None for the row")
    allowed, is_right = OF_TOKENS[name]
    for token, mark in enumerate(marks):
        if not _holds(is_right, mark):
            problem = f"returned {mark!r:.40} in its {name}: row {number}, token {token}"
            raise PartError(problem, where=location(source), allowed=allowed)
    return list(marks)


def _holds(is_right: Callable[[Any], bool], mark: Any) -> bool:
    try:
        return is_right(mark.item() if hasattr(mark, "item") else mark)
    except TypeError:
        return False
