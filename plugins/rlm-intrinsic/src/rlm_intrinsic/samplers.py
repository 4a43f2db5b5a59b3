"""Prompt order (hook ``rlm_samplers``): all wordings of a question in one batch."""

from __future__ import annotations

import random
from typing import Annotated

from pydantic import Field


def side_by_side(size: int, epoch: int, seed: int, *, wordings: Annotated[int, Field(ge=2)] = 2) -> list[int]:
    """Return every index once, in a random order per epoch, with `wordings` neighbors of the data set kept together.

    For `cross_view`: sort the data set so that the wordings of a question are adjacent. The number of prompts per
    process and batch must be a multiple of `wordings`. An incomplete block at the end is dropped.

    >>> side_by_side(7, epoch=0, seed=0)
    [0, 1, 4, 5, 2, 3]
    """
    blocks = list(range(size // wordings))
    random.Random(f"{seed} {epoch}").shuffle(blocks)
    return [block * wordings + offset for block in blocks for offset in range(wordings)]
