"""A reward from a third-party package: one function, and the hook that offers it by name."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from rlm_plugins import hookimpl


def brevity(completions: Sequence[str], *, characters: Annotated[int, Field(ge=1)] = 200) -> list[float]:
    """Return 1 for an empty completion, falling linearly to 0 at `characters`.

    r = max(0, 1 − length / characters)

    Data stand before the star: ``completions`` is available to every reward. Knobs stand after it and are set in a
    recipe. A value that the annotation does not allow is an error before any model is loaded.

    Args:
        completions: Text of each completion (B).
        characters: Length from which the reward is 0.

    Returns:
        One reward in [0, 1] per completion.

    >>> brevity(["", "four", "much too long"], characters=8)
    [1.0, 0.5, 0.0]
    """
    return [max(0.0, 1 - len(text) / characters) for text in completions]


@hookimpl
def rlm_rewards() -> dict[str, object]:
    """Return the rewards of this package by name."""
    return {"brevity": brevity}
