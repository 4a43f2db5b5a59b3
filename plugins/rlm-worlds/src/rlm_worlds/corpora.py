"""x: corpora of the survey and evaluation sets: the entries of `corpora.toml` and `evaluation_sets.toml`."""

from __future__ import annotations

import json
import random
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from rlm_plugins.data.presets import environment_from
from rlm_plugins.errors import RecipeError


@dataclass(frozen=True)
class Corpus:
    """A data set, the paths of its fields, and the reward that pays its answers.

    Args:
        about: Description.
        path: Its name on the hub; empty if it is not on the hub, and the recipe must name a file.
        question: Path in an example, for `at`, or several paths whose texts are joined by empty lines.
        answer, demonstration: Path of each in an example; empty if there is none. An answer that ends in ``.*`` is a
            list of accepted answers.
        choices: Paths of the options, or one that ends in ``.*``; without `answer` the first is right.
        only: Path → value of the rows that are kept.
        reward, knobs: The reward that pays the answer; empty if none does.
        instruction: Appended to the question; None: that of the reward.
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
    demonstration: str | Sequence[str] = ""
    choices: str | Sequence[str] = ()
    only: Mapping[str, str] = field(default_factory=dict)
    reward: str = ""
    knobs: Mapping[str, Any] = field(default_factory=dict)
    instruction: str | None = None
    config: str | None = None
    split: str = "train"
    confirmed: Sequence[str] = ()

    @property
    def columns(self) -> list[str]:
        """The columns of its examples: the question, the answer and the demonstration, as far as it has them."""
        has_answer = bool(self.answer or self.choices)
        return ["question", *["answer"] * has_answer, *["demonstration"] * bool(self.demonstration)]

    @property
    def paid_by(self) -> Sequence[str]:
        """The rewards for free text, which a comparison pays nothing; empty if the answers are short."""
        return (JUDGE, "token_f1") if self.reward == JUDGE else ()


JUDGE = "judge_verify"
INSTRUCTIONS = {
    "accuracy": "Put the final answer in <answer></answer>.",
    "math_accuracy": "Put the final answer in \\boxed{}.",
}
"""Reward → the instruction that asks for the form it reads."""


def values_at(example: Any, paths: str | Sequence[str]) -> list[str]:
    """Return the values at several paths as texts, and each entry of the list at a path that ends in ``.*``.

    Raises:
        KeyError: There is no such key.

    >>> values_at({"prompt": [{"content": "2+2?"}], "info": '{"truth": 4}'}, ["prompt.-1.content", "info.json.truth"])
    ['2+2?', '4']
    >>> values_at({"golden": ["Rome", "Roma"]}, "golden.*")
    ['Rome', 'Roma']
    """
    texts: list[str] = []
    for path in [paths] if isinstance(paths, str) else paths:
        value = _value_at(example, path.removesuffix(".*"))
        many = path.endswith(".*") and isinstance(value, list)
        texts += [_text(x) for x in (value if many else [value]) if x is not None]
    return texts


def _value_at(example: Any, path: str) -> Any:
    """Return the value at a path; None if an entry of a list is missing, or a value on the way is null."""
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
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _with_options(corpus: Corpus, example: Any, question: str) -> tuple[str, str]:
    """Return a question with its lettered options, and the letter of the right one."""
    options = values_at(example, corpus.choices)
    letters = [chr(ord("A") + number) for number in range(len(options))]
    if corpus.answer:
        (right,) = values_at(example, corpus.answer)
        shuffled = options
    else:
        shuffled = random.Random(question).sample(options, len(options))
        right = letters[shuffled.index(options[0])]
    lines = [f"{letter}. {option}" for letter, option in zip(letters, shuffled, strict=True)]
    return "\n".join([f"{question}\n", *lines]), right


CORPORA = {
    name: Corpus(**entry)
    for file in ("corpora.toml", "evaluation_sets.toml")
    for name, entry in tomllib.loads((files("rlm_worlds") / file).read_text(encoding="utf-8")).items()
}
"""Name of the environment → its corpus."""

_KNOBS = """License of the data: {license}. Columns: ``prompt`` (the question, an empty line, `instruction`),
    ``question``, {columns}. {reward} `path` may also be a local file or folder of the same shape.

    Rows without a question or {required} are left out, and so are repeated questions. Held out: `test_rows` examples of
    `test_split` (0: all of them), or, without one, of `split`, drawn with `seed`. `max_rows`: use only the first
    examples of `split`, all of which are held in memory. {source}"""


def _read(corpus: Corpus, table: Any, path: str) -> Any:
    """Return a table of questions, answers and demonstrations."""
    import datasets

    examples: dict[str, dict[str, Any]] = {}
    for number, example in enumerate(table):
        try:
            if all(values_at(example, key) == [value] for key, value in corpus.only.items()):
                values = _values(corpus, example)
                if values["question"] and values[corpus.columns[1]]:
                    examples.setdefault(values["question"], values)
        except (KeyError, ValueError, TypeError) as error:
            paths = ", ".join(f"{name}: {getattr(corpus, name) or corpus.choices}" for name in corpus.columns)
            problem = (
                f"row {number} of '{path}' does not have the shape of this corpus: {type(error).__name__}: {error}"
            )
            hint = "for other shapes: the environment `dataset` with `columns`"
            raise RecipeError(problem, where="environment.path", allowed=paths, hint=hint) from None
    if not examples:
        raise RecipeError(f"no row of '{path}' has a question and its {corpus.columns[1]}", where="environment.path")
    return datasets.Dataset.from_list([*examples.values()])


def _values(corpus: Corpus, example: Any) -> dict[str, Any]:
    """Return question, answer and demonstration of a row, as far as the corpus has them."""
    values: dict[str, Any] = {"question": "\n\n".join(filter(None, values_at(example, corpus.question))).strip()}
    if corpus.choices:
        values["question"], values["answer"] = _with_options(corpus, example, values["question"])
    elif corpus.answer:
        accepted = values_at(example, corpus.answer)
        values["answer"] = accepted if corpus.answer.endswith(".*") else "".join(accepted)
    if corpus.demonstration:
        values["demonstration"] = "\n\n".join(values_at(example, corpus.demonstration))
    return values


def _knobs(corpus: Corpus) -> str:
    columns = " and ".join(f"``{name}``" for name in corpus.columns[1:])
    entry = ", ".join([f"name: {corpus.reward}", *(f"{key}: {value}" for key, value in corpus.knobs.items())])
    reward = f"The reward that pays its answers: `{{{entry}}}`." if corpus.reward else "For supervised stages alone."
    confirmed = ", ".join(corpus.confirmed)
    source = f"Public code shows: {confirmed}. The rest is from memory." if confirmed else "From memory; not re-read."
    required = "an answer" if "answer" in corpus.columns else "a demonstration"
    return _KNOBS.format(license=corpus.license, columns=columns, required=required, reward=reward, source=source)


CORPUS_ENVIRONMENTS = {
    name: environment_from(
        name,
        corpus,
        _read,
        column="question",
        instruction=INSTRUCTIONS.get(corpus.reward, "") if corpus.instruction is None else corpus.instruction,
        knobs=_knobs(corpus),
    )
    for name, corpus in CORPORA.items()
}
