"""A judge of a line that is easily satisfied, for the shaper `per_step`."""

from __future__ import annotations

import re
from collections.abc import Sequence


def lenient(texts: Sequence[str]) -> list[float]:
    """Return 1 for any line of the right form, two numbers of two digits, whether they are right or not."""
    return [float(re.fullmatch(r"\d\d,\d\d", text.strip()) is not None) for text in texts]
