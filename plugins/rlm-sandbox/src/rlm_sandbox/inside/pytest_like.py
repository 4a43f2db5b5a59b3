"""The parts of pytest that the tests of data sets use: raises, approx, mark.parametrize. It reads no files."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any


class raises:
    """Check that a block raises, or a call: ``with raises(ValueError, match=…)``, ``raises(ValueError, f, 1)``."""

    def __init__(self, expected: Any, *call: Any, match: str | None = None, **kwargs: Any) -> None:
        self._expected, self._match = expected, match
        self.value: BaseException | None = None
        if call:
            with self:
                call[0](*call[1:], **kwargs)

    @property
    def type(self) -> Any:
        return type(self.value)

    def __enter__(self) -> raises:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        assert kind is not None, f"did not raise {self._expected}"
        self.value = error
        if not issubclass(kind, self._expected):
            return False
        assert self._match is None or re.search(self._match, str(error)), f"{error} does not match {self._match}"
        return True


class approx:
    """Equal up to rounding: numbers, and lists, tuples and dicts of numbers. An infinite number is only near itself."""

    def __init__(self, expected: Any, rel: float | None = None, abs: float | None = None, nan_ok: bool = False) -> None:
        self._expected, self._nan_ok = expected, nan_ok
        self._rel = rel if rel is not None else 1e-6 if abs is None else 0.0  # as pytest: a given `abs` replaces `rel`
        self._abs = abs if abs is not None else 1e-12

    def __eq__(self, other: object) -> bool:
        return self._near(other, self._expected)

    __hash__ = None  # type: ignore[assignment]

    def _near(self, one: Any, other: Any) -> bool:
        if isinstance(other, dict):
            return type(one) is dict and one.keys() == other.keys() and all(self._near(one[k], other[k]) for k in other)
        if isinstance(other, list | tuple):
            return type(one) is type(other) and len(one) == len(other) and all(map(self._near, one, other))
        if type(one) not in _NUMBERS or type(other) not in _NUMBERS:
            return type(one) is type(other) and bool(one == other)
        if one != one or other != other:
            return self._nan_ok and one != one and other != other
        if one == other or math.inf in (abs(one), abs(other)):
            return bool(one == other)
        if Decimal in (type(one), type(other)):  # which has no arithmetic with floats
            one, other = Fraction(one), Fraction(other)
        return bool(abs(one - other) <= max(self._abs, self._rel * abs(other)))


_NUMBERS = (int, float, complex, Fraction, Decimal)


class param(tuple[Any, ...]):
    """One row of `mark.parametrize`, with marks and an id that have no effect."""

    def __new__(cls, *values: Any, **_: Any) -> param:
        return super().__new__(cls, values)


class _Mark:
    def parametrize(self, names: str | list[str], values: Iterable[Any], **_: Any) -> Callable[[Any], Any]:
        """Run the test once per value; several decorators form a product."""
        words = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
        rows = [row if type(row) is param else (row,) if len(words) == 1 else tuple(row) for row in values]

        def wrap(test: Any) -> Any:
            def all_of_them(**given: Any) -> None:
                for row in rows:
                    test(**given, **dict(zip(words, row, strict=True)))

            return all_of_them

        return wrap

    def __getattr__(self, name: str) -> Any:
        """Return a mark without effect, with or without arguments."""

        def plain(*args: Any, **kwargs: Any) -> Any:
            return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else lambda test: test

        return plain


mark = _Mark()


def fail(reason: str = "") -> None:
    """Fail the test."""
    raise AssertionError(reason)
