"""One row of the table `corpora.toml`: a data set, and where a row has question, answer and demonstration."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class Corpus:
    """A data set and the places of its values.

    Args:
        about: Description.
        path: Its name on the hub.
        question, answer, demonstration: Path of each in a row, for `at`; empty: there is none.
        license: As its card names it.
        config: Configuration among several under one name.
        split: The training split.
    """

    about: str
    path: str
    question: str
    license: str
    answer: str = ""
    demonstration: str = ""
    config: str | None = None
    split: str = "train"


def at(row: Any, path: str) -> str | None:
    """Return the value at a path as text; None if an entry of a list is missing, or the value is null.

    Raises:
        KeyError: There is no such key.

    >>> at({"prompt": [{"content": "2+2?"}], "info": '{"truth": 4}'}, "prompt.-1.content")
    '2+2?'
    >>> at({"info": '{"truth": 4}'}, "info.json.truth")
    '4'
    """
    value = row
    for step in path.split("."):
        if value is None:
            return None
        if step == "json":
            value = json.loads(value)
        elif isinstance(value, Mapping):
            value = value[step]
        else:
            number = int(step)
            value = value[number] if -len(value) <= number < len(value) else None
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


CORPORA = {
    name: Corpus(**entry)
    for name, entry in tomllib.loads((files("rlm_corpora") / "corpora.toml").read_text(encoding="utf-8")).items()
}
"""Name of the environment → its corpus."""
