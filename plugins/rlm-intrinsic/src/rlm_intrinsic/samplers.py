"""Which problem next (hook ``rlm_samplers``): all wordings of a question in one batch."""

from __future__ import annotations

import random
from typing import Annotated

from pydantic import Field


def side_by_side(size: int, epoch: int, seed: int, *, wordings: Annotated[int, Field(ge=2)] = 2) -> list[int]:
    """Every row once, in a new random order each epoch, but `wordings` neighbours of the data set stay neighbours.

    For `cross_view`: sort the data set so that the wordings of a question stand one after the other, and let
    the prompts of a process at a time be a multiple of `wordings`. What is left over at the end is left out.

    >>> side_by_side(7, epoch=0, seed=0)
    [0, 1, 4, 5, 2, 3]
    """
    blocks = list(range(size // wordings))
    random.Random(f"{seed} {epoch}").shuffle(blocks)
    return [block * wordings + place for block in blocks for place in range(wordings)]
