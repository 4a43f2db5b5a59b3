"""An entry of `corpora.toml`: a data set, and the fields of question, answer and demonstration."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class Corpus:
    """A data set and the paths of its fields.

    Args:
        about: Description.
        path: Its name on the hub; empty if it is not on the hub, and the recipe must name a file.
        question: Path in an example, for `at`, or several paths whose texts are joined by empty lines.
        answer, demonstration: Path of each in an example; empty if there is none.
        license: License named by its card.
        config: Name of the configuration, if there are several.
        split: The training split.
        confirmed: Fields verified in public code that reads the data set; the other fields are from memory.
    """

    about: str
    path: str
    question: str | Sequence[str]
    license: str
    answer: str = ""
    demonstration: str = ""
    config: str | None = None
    split: str = "train"
    confirmed: Sequence[str] = ()


def at(example: Any, path: str) -> str | None:
    """Return the value at a path as text; None if an entry of a list is missing, or the value is null.

    Raises:
        KeyError: There is no such key.

    >>> at({"prompt": [{"content": "2+2?"}], "info": '{"truth": 4}'}, "prompt.-1.content")
    '2+2?'
    >>> at({"info": '{"truth": 4}'}, "info.json.truth")
    '4'
    """
    value = example
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


def text_at(example: Any, paths: str | Sequence[str]) -> str | None:
    r"""Return the value at a path, or those at several paths, joined by empty lines; None if all are missing.

    >>> text_at({"a": "X:1", "b": "Which key?"}, ["a", "b"])
    'X:1\n\nWhich key?'
    """
    texts = [at(example, path) for path in ([paths] if isinstance(paths, str) else paths)]
    return "\n\n".join(text for text in texts if text) or None


CORPORA = {
    name: Corpus(**entry)
    for name, entry in tomllib.loads((files("rlm_corpora") / "corpora.toml").read_text(encoding="utf-8")).items()
}
"""Name of the environment → its corpus."""
