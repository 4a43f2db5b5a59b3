"""The fixture `cases`: many cases of a fault in one test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

Case = Callable[[str], AbstractContextManager[None]]


@pytest.fixture
def cases(record_property: Callable[[str, object], None]) -> Iterator[Case]:
    """Context manager per case, ``with cases("write 3 fails"):``; a failed case does not stop the others."""
    total, failures = 0, []

    @contextmanager
    def case(name: str) -> Iterator[None]:
        nonlocal total
        total += 1
        try:
            yield
        except Exception as error:
            failures.append(f"{name}: {type(error).__name__}: {error}")

    yield case
    record_property("cases", (total - len(failures), total))
    assert total, "no case was tried"
    assert not failures, "\n".join([f"{len(failures)} of {total} cases failed:", *failures])
