"""Whether an answer is the expected one. Both are exact built-in values here: nobody's `__eq__` is asked."""

from __future__ import annotations

from typing import Any


def same(found: Any, expected: Any, tolerance: float = 1e-9) -> bool:
    """Equal as the tests of data sets mean it: a tuple may be a list, a float is near, True is not 1.

    Args:
        found: What `wire.decode` made.
        expected: Of the same types.
        tolerance: Of floats, absolute and relative.

    >>> same([1, 2.0], (1, 2)), same(0.1 + 0.2, 0.3), same(True, 1), same({"a": [1]}, {"a": [1.0]}), same("1", 1)
    (True, True, False, True, False)
    """
    if type(found) is bool or type(expected) is bool:
        return type(found) is type(expected) and found == expected
    if type(found) in (int, float) and type(expected) in (int, float):
        return _near(found, expected, tolerance)
    if type(found) in (list, tuple) and type(expected) in (list, tuple):
        return len(found) == len(expected) and all(
            same(one, other, tolerance) for one, other in zip(found, expected, strict=True)
        )
    if type(found) is dict and type(expected) is dict:
        return found.keys() == expected.keys() and all(same(found[key], expected[key], tolerance) for key in expected)
    return type(found) is type(expected) and bool(found == expected)


def _near(found: float, expected: float, tolerance: float) -> bool:
    if found == expected or (found != found and expected != expected):
        return True
    if type(found) is int and type(expected) is int:
        return False
    try:
        return abs(found - expected) <= tolerance * max(1.0, abs(expected)) < float("inf")
    except OverflowError:  # an integer no float can hold
        return False


def same_text(found: str, expected: str) -> bool:
    """Equal as judges of programming contests mean it: white space at the end of lines and of the text is free.

    >>> same_text("1 \\n2\\n\\n", "1\\n2"), same_text("1 2", "1\\n2")
    (True, False)
    """
    return _lines(found) == _lines(expected)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]
