"""Examples of a hypothesis strategy for tests that share them: drawn once, the same ones each time."""

from __future__ import annotations

from typing import TypeVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

Example = TypeVar("Example")


def drawn(strategy: st.SearchStrategy[Example], count: int) -> list[Example]:
    """Draw `count` examples as a property test does, the simplest first."""
    found: list[Example] = []

    @settings(
        max_examples=count,
        phases=(Phase.generate,),
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(example: Example) -> None:
        found.append(example)

    collect()
    return found
