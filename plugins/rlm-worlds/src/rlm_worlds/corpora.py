"""x: corpora of the survey, the entries of `corpora.toml`: a data set, and the fields of question and answer."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from rlm_plugins.data.presets import environment_from
from rlm_plugins.errors import RecipeError


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
    for name, entry in tomllib.loads((files("rlm_worlds") / "corpora.toml").read_text(encoding="utf-8")).items()
}
"""Name of the environment → its corpus."""

_KNOBS = """License of the data: {license}. Columns: ``prompt`` (the question, an empty line, `instruction`),
    ``question``, {columns}. `path` may also be a local file or folder of the same shape.

    Rows without a question or {required} are left out, and so are repeated questions. Held out: `test_rows` examples of
    `test_split` (0: all of them), or, without one, of `split`, drawn with `seed`. `max_rows`: use only the first
    examples of `split`. {source}"""


def _read(corpus: Corpus, table: Any, path: str) -> Any:
    """Return a table of questions, answers and demonstrations.

    Raises:
        RecipeError: A column is missing, a text is no JSON, or no row is left.
    """
    import datasets

    names = [name for name in ("question", "answer", "demonstration") if getattr(corpus, name)]
    required, questions, examples = names[1], set[str](), list[dict[str, str]]()
    for number, example in enumerate(table):
        try:
            values = {name: text_at(example, getattr(corpus, name)) for name in names}
        except (KeyError, ValueError, TypeError) as error:
            paths = ", ".join(f"{name}: {getattr(corpus, name)}" for name in names)
            problem = (
                f"row {number} of '{path}' does not have the shape of this corpus: {type(error).__name__}: {error}"
            )
            hint = "for other shapes: the environment `dataset` with `columns`"
            raise RecipeError(problem, where="environment.path", allowed=paths, hint=hint) from None
        question = (values["question"] or "").strip()
        if question and values[required] and question not in questions:
            questions.add(question)
            examples.append({**{name: value or "" for name, value in values.items()}, "question": question})
    if not examples:
        raise RecipeError(f"no row of '{path}' has a question and its {required}", where="environment.path")
    return datasets.Dataset.from_list(examples)


def _knobs(corpus: Corpus) -> str:
    columns = [f"``{name}``" for name in ("answer", "demonstration") if getattr(corpus, name)]
    required = "an answer" if corpus.answer else "a demonstration"
    confirmed = ", ".join(corpus.confirmed)
    source = f"Public code shows: {confirmed}. The rest is from memory." if confirmed else "From memory; not re-read."
    return _KNOBS.format(license=corpus.license, columns=" and ".join(columns), required=required, source=source)


CORPUS_ENVIRONMENTS = {
    name: environment_from(name, corpus, _read, column="question", instruction="", knobs=_knobs(corpus))
    for name, corpus in CORPORA.items()
}
