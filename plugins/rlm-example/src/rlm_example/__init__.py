"""A plugin is a module: a function, and a hook that offers it under a name."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from rlm_plugins import hookimpl


def brevity(completions: Sequence[str], *, characters: Annotated[int, Field(ge=1)] = 200) -> list[float]:
    """1 for an empty completion, falling to 0 at `characters`.

    r = max(0, 1 − length / characters)

    Data stand before the star: ``completions`` is a word every reward may ask for. Knobs stand after it; a recipe
    may turn them, and what their annotation does not allow is refused before anything is loaded.

    >>> brevity(["", "four", "much too long"], characters=8)
    [1.0, 0.5, 0.0]
    """
    return [max(0.0, 1 - len(text) / characters) for text in completions]


@hookimpl
def rlm_rewards() -> dict[str, object]:
    return {"brevity": brevity}
