"""Turns the columns of a data set into rows with a prompt, and keeps some of them for tests."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import TYPE_CHECKING, Any

from rlm_plugins.batch import SAMPLE
from rlm_plugins.errors import RecipeError, nearest

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

Example = Mapping[str, Any]


@dataclass(frozen=True)
class PromptBuilder:
    """How a row becomes a question.

    Args:
        columns: New name → column it copies.
        write: Example → what to ask: text, or chat messages where the column holds them.
        asks: The columns `write` reads.
        system: Instructions that precede each conversation.
        chat: Whether text becomes the message of a user.
        knob: The knob that named the columns, for errors.
    """

    columns: Mapping[str, str]
    write: Callable[[Example], Any]
    asks: Sequence[str]
    system: str | None
    chat: bool
    knob: str

    def __call__(self, rows: Dataset | IterableDataset) -> Dataset | IterableDataset:
        """`rows` with a ``prompt`` each; columns the machine has its own meaning for are left behind."""
        there = rows.column_names or list(next(iter(rows), {}))
        for new, old in self.columns.items():
            _require(old, there, where=f"environment.columns.{new}")
            if new in SAMPLE:
                raise RecipeError(
                    f"'{new}' means something else to a reward: {SAMPLE[new]}", where="environment.columns"
                )
        for column in self.asks:
            _require(column, [*there, *self.columns], where=f"environment.{self.knob}")
        return rows.map(self.row, with_indices=True, remove_columns=[name for name in there if name in SAMPLE])

    def row(self, row: Example, number: int) -> dict[str, Any]:
        """The columns that one row gains."""
        gained = {new: row[old] for new, old in self.columns.items()}
        prompt = self._prompt({**row, **gained}, f"environment.path, row {number} (counted from 0)")
        return {**gained, "prompt": prompt}

    def _prompt(self, row: Example, where: str) -> Any:
        for column in self.asks:
            if row[column] in (None, []) or not str(row[column]).strip():
                raise RecipeError(f"column '{column}' is empty ({row[column]!r})", where=where)
        prompt = self.write(row)
        if isinstance(prompt, list) and self.chat:
            return self._instructed(prompt)
        if not isinstance(prompt, str):
            raise RecipeError(
                f"the prompt is {type(prompt).__name__}, not text" + (" or messages" if self.chat else ""),
                where=where,
                hint="a conversation needs `chat: true`" if isinstance(prompt, list) else "write it with `template`",
            )
        return self._instructed([{"role": "user", "content": prompt}]) if self.chat else prompt

    def _instructed(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if self.system is None or messages[0]["role"] == "system":
            return messages
        return [{"role": "system", "content": self.system}, *messages]


def prompt_builder(
    columns: Mapping[str, str], prompt: str | None, template: str | None, system: str | None, chat: bool
) -> PromptBuilder:
    """Reads the knobs of a data set.

    Raises:
        RecipeError: Knobs that contradict each other, or a template that cannot be read.
    """
    if template is not None and prompt is not None:
        raise RecipeError("`prompt` and `template` both say what to ask", where="environment", hint="keep one of them")
    if system is not None and not chat:
        raise RecipeError("`system` needs a conversation", where="environment.system", hint="put it into `template`")
    if template is None:
        column = prompt or "prompt"
        return PromptBuilder(columns, lambda row: row[column], [column], system, chat, "prompt")
    pieces = parse(template)
    names = [name for _, name in pieces if name]

    def write(row: Example) -> str:
        return "".join(text + (str(row[name]) if name else "") for text, name in pieces)

    return PromptBuilder(columns, write, names, system, chat, "template")


def parse(template: str) -> list[tuple[str, str]]:
    """A template as pairs of text and the column that follows it ('' at the end).

    Raises:
        RecipeError: A brace that opens nothing, or anything but a column between braces.

    >>> parse("Question: {question} Box it: {{}}")
    [('Question: ', 'question'), (' Box it: {', ''), ('}', '')]
    """
    where, hint = "environment.template", "name a column in braces; a brace itself is written twice: \\boxed{{}}"
    try:
        pieces = list(Formatter().parse(template))
    except ValueError as error:
        raise RecipeError(f"it cannot be read: {error}", where=where, hint=hint) from None
    if any(name == "" or spec or conversion for _, name, spec, conversion in pieces):
        raise RecipeError("braces hold something else than a column", where=where, hint=hint)
    return [(text, name or "") for text, name, _, _ in pieces]


def hold_out(rows: Dataset, count: int, seed: int) -> tuple[Dataset, Dataset]:
    """(train, test): `count` rows drawn with `seed`; rows that ask the same as one of them leave the training set.

    Raises:
        RecipeError: Nothing is left to train on.
    """
    chosen = random.Random(seed).sample(range(len(rows)), min(count, len(rows)))
    test = rows.select(sorted(chosen))
    train = without(rows, test)
    if len(train) == 0:
        raise RecipeError(
            f"{count} of {len(rows)} rows are held out, which leaves none to train on", where="environment.test_rows"
        )
    return train, test


def without(rows: Any, test: Any) -> Any:
    """The `rows` that ask nothing that `test` asks."""
    asked = dict.fromkeys(repr(row["prompt"]) for row in test)  # no set: its order would change the cached file's name
    return rows.filter(lambda prompt: repr(prompt) not in asked, input_columns="prompt")


def _require(column: str, there: Sequence[str], *, where: str) -> None:
    if column not in there:
        raise RecipeError(
            f"there is no column '{column}'", where=where, allowed=", ".join(there), hint=nearest(column, there)
        )
