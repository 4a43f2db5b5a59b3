"""Text of values and errors that a reward produced; their methods `__repr__` and `__str__` may raise."""

from __future__ import annotations

import reprlib

_REPR = reprlib.Repr()
_REPR.maxlist = _REPR.maxtuple = _REPR.maxdict = 20
_REPR.maxlevel = 4


def brief(value: object, length: int = 80) -> str:
    """Return the repr of a value, cut for messages.

    >>> brief([1.0, 2.0]), brief("a" * 100, 5)
    ('[1.0, 2.0]', "'aaaa…")
    """
    _REPR.maxstring = _REPR.maxother = _REPR.maxlong = 2 * length + 40  # reprlib keeps both ends
    try:
        text = _REPR.repr(value)
    except BaseException as error:
        return f"something whose repr raises {type(error).__name__}"
    return text if len(text) <= length else f"{text[:length]}…"


def safe_text(error: BaseException, length: int = 2000) -> str:
    """Return class and message of an error.

    >>> safe_text(ValueError("no"))
    'ValueError: no'
    """
    try:
        text = str(error)
    except BaseException as failure:
        text = f"(its message raises {type(failure).__name__})"
    return f"{type(error).__name__}: {text[:length]}"
