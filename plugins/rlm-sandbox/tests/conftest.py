"""Fixture: one sandbox per module."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def sandbox() -> Iterator[object]:
    """Return a sandbox with two workers, which the tests of a module share."""
    from rlm_sandbox import Local

    runner = Local(2)
    yield runner
    runner.close()
