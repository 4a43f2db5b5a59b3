"""Form in which a reward receives the completions of a chat: as text, or as lists of messages.

Text is the default, since a function that reads messages as if they were text does not fail: ``"42" in completion`` is
False for a list of messages. A function that reads text as if it were messages raises.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from rlm_plugins.registry.contract import code_of
from rlm_plugins.stage import Reward

_NAMES = ("completions", "completion")
_MESSAGES = re.compile("dict|mapping|message", re.IGNORECASE)


def reads_messages(reward: Reward) -> bool:
    """Return True if a reward receives messages: the key `messages` says so, or else the annotation of its function."""
    return declares_messages(reward.part.target) if reward.messages is None else reward.messages


def declares_messages(function: Any) -> bool:
    """Return True if no alternative in the annotation of `completions` (or `completion`) is text.

    >>> def of_messages(completions: list[list[dict[str, str]]], **columns): ...
    >>> def of_text(completions: list[str], **columns): ...
    >>> declares_messages(of_messages), declares_messages(of_text), declares_messages(lambda completions: 0)
    (True, False, False)
    """
    name = next((name for name in _NAMES if name in inspect.signature(function).parameters), None)
    if name is None:
        return False
    try:
        hints = get_type_hints(code_of(function))
    except Exception:  # names imported for a type checker alone
        return bool(_MESSAGES.search(str(inspect.signature(function).parameters[name].annotation)))
    if name not in hints:
        return False
    kinds = [*_alternatives(hints[name])]
    if name == "completions":
        kinds = [kind for many in kinds for kind in _alternatives(*(get_args(many)[:1] or [Any]))]
    return not {*kinds} & {str, object, Any, types.NoneType}


def _alternatives(kind: Any) -> Iterator[Any]:
    """Yield the members of a union, or the kind itself."""
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    yield from get_args(kind) if get_origin(kind) in (Union, types.UnionType) else [kind]


def as_messages(texts: Sequence[str]) -> list[list[dict[str, str]]]:
    """Return texts as the completions of a chat."""
    return [[{"role": "assistant", "content": text}] for text in texts]


def written(value: Any) -> str:
    """Return a reference answer as text: of a list of accepted ones the first; empty if it is none.

    >>> written(["Rome", "Roma"]), written(4.0), written({"a": 1})
    ('Rome', '4', '')
    """
    if isinstance(value, list | tuple):
        return written(value[0]) if value else ""
    if isinstance(value, float):
        return "" if value != value else str(int(value) if value.is_integer() else value)
    return str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
