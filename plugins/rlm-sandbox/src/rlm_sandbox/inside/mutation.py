"""Changes that the program made to mutable arguments, applied to the tests' own containers."""

from __future__ import annotations

from collections import deque
from typing import Any


def overwrite(old: Any, new: Any) -> None:
    """Give a mutable container the contents of another one of its type; nested ones are kept where they fit.

    >>> inner = [1]; outer = [inner, 2]; overwrite(outer, [[3], 4]); inner, outer
    ([3], [[3], 4])
    """
    if type(old) is not type(new):
        return
    if type(old) is list:
        fits = len(old) == len(new)
        old[:] = [_merged(one, other) for one, other in zip(old, new, strict=True)] if fits else new
    elif type(old) is dict:
        merged = {key: _merged(old.get(key), value) for key, value in new.items()}
        old.clear()
        old.update(merged)
    elif type(old) in (set, bytearray, deque):
        old.clear()
        (old.update if type(old) is set else old.extend)(new)


def _merged(old: Any, new: Any) -> Any:
    if type(old) is type(new) and type(old) in (list, dict, set, bytearray, deque):
        overwrite(old, new)
        return old
    return new
