"""The corpora of `corpora.toml` as environments (hook ``rlm_environments``)."""

from __future__ import annotations

from typing import Any

from rlm_corpora.corpus import CORPORA, Corpus, text_at
from rlm_plugins.data.presets import environment_from
from rlm_plugins.errors import RecipeError

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


ENVIRONMENTS = {
    name: environment_from(name, corpus, _read, column="question", instruction="", knobs=_knobs(corpus))
    for name, corpus in CORPORA.items()
}
