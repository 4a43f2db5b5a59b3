"""The metrics: formula, meaning and healthy range of each, for ``rlm explain NAME``.

A mean without a subscript is over the trained tokens (Â, w, entropy) or the completions (rewards, lengths) of all
processes. It is averaged over the steps since the last log. The names are those of ``metrics.jsonl``; the entries
are in `metrics.toml`.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True)
class Metric:
    """One metric of the log.

    Args:
        name: Name in the log; ``<label>`` stands for any name, ``<a|b>`` for one of these.
        formula: Its computation.
        meaning: Its meaning.
        healthy: Expected values in a run that learns, and remedies for other values.
    """

    name: str
    formula: str
    meaning: str
    healthy: str

    def matches(self, name: str) -> bool:
        """Return True if `name` matches the name of this entry.

        >>> Metric("rewards/<label>/<mean|std>", "", "", "").matches("rewards/accuracy/std")
        True
        >>> Metric("rewards/<label>/<mean|std>", "", "", "").matches("rewards/accuracy/max")
        False
        """
        segments = re.split(r"(<[^>]+>)", self.name)
        return re.fullmatch("".join(map(_pattern, segments)), name) is not None


def _pattern(segment: str) -> str:
    """Return a regular expression for a segment of a name: a placeholder, alternatives, or literal text."""
    if not segment.startswith("<"):
        return re.escape(segment)
    return f"({segment[1:-1]})" if "|" in segment else ".+"


def find(name: str) -> Metric | None:
    """Return the most specific entry that matches a logged name, or None.

    >>> find("rewards/accuracy/mean").name
    'rewards/<label>/<mean|std>'
    >>> find("penalties/kl").name
    'penalties/<name>'
    >>> find("nonsense") is None
    True
    """
    train_name = name.removeprefix("eval_")
    return next((metric for metric in METRICS if metric.matches(train_name)), None)


_TABLE = tomllib.loads(files("rlm_lab").joinpath("metrics.toml").read_text(encoding="utf-8"))
METRICS = tuple(Metric(name, **entry) for name, entry in _TABLE.items())
"""In reading order of a log; the first entry that matches a name counts."""
