"""Prompts from the columns of a data set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from string import Formatter
from typing import TYPE_CHECKING, Any

from rlm_plugins.batch import SAMPLE
from rlm_plugins.data.tables import row_address
from rlm_plugins.errors import RecipeError, nearest

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

Example = Mapping[str, Any]


@dataclass(frozen=True)
class PromptBuilder:
    """A conversion of examples to prompts.

    Args:
        render: Example → prompt: text, or chat messages if the column holds them.
        required: The columns that `render` reads.
        system: System message of each conversation.
        chat: True if text becomes a user message.
        knob: The knob that named the columns, for errors.
    """

    render: Callable[[Example], Any]
    required: Sequence[str]
    system: str | None
    chat: bool
    knob: str

    def __call__(self, rows: Dataset | IterableDataset, path: str = "") -> Dataset | IterableDataset:
        """Add a ``prompt`` to each example of a file; columns whose names are reserved for rewards are removed."""
        existing = rows.column_names or list(next(iter(rows), {}))
        for column in self.required:
            _require(column, existing, where=f"environment.{self.knob}")
        row = partial(self.row, path=path)
        return rows.map(row, with_indices=True, remove_columns=[name for name in existing if name in SAMPLE])

    def row(self, row: Example, number: int, path: str = "") -> dict[str, Any]:
        """Return the prompt of one example as its new column."""
        try:
            return {"prompt": self._prompt(row)}
        except RecipeError as error:
            where = row_address(path, number)
            raise RecipeError(error.problem, where=where, hint=error.hint) from None

    def _prompt(self, row: Example) -> Any:
        for column in self.required:
            if row[column] in (None, []) or not str(row[column]).strip():
                raise RecipeError(f"column '{column}' is empty ({row[column]!r})")
        prompt = self.render(row)
        if isinstance(prompt, list) and self.chat:
            return self._with_system(prompt)
        if not isinstance(prompt, str):
            raise RecipeError(
                f"expected a prompt of text{' or messages' if self.chat else ''}, got {type(prompt).__name__}",
                hint="a conversation needs `chat: true`" if isinstance(prompt, list) else "convert it with `template`",
            )
        return self._with_system([{"role": "user", "content": prompt}]) if self.chat else prompt

    def _with_system(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if self.system is None or messages[0]["role"] == "system":
            return messages
        return [{"role": "system", "content": self.system}, *messages]


def with_columns(rows: Dataset | IterableDataset, columns: Mapping[str, str]) -> Dataset | IterableDataset:
    """Return examples with copies of columns.

    Args:
        rows: The examples.
        columns: New name → column that is copied.

    Raises:
        RecipeError: There is no such column, or the new name is reserved for rewards.
    """
    if not columns:
        return rows
    existing = rows.column_names or list(next(iter(rows), {}))
    for new, old in columns.items():
        _require(old, existing, where=f"environment.columns.{new}")
        if new in SAMPLE:
            raise RecipeError(f"'{new}' is a reserved name of rewards: {SAMPLE[new]}", where="environment.columns")
    return rows.map(lambda row: {new: row[old] for new, old in columns.items()})


def prompt_builder(prompt: str | None, template: str | None, system: str | None, chat: bool) -> PromptBuilder:
    """Build the prompt builder of the knobs of a data set.

    Raises:
        RecipeError: Knobs that contradict each other, or an invalid template.
    """
    if template is not None and prompt is not None:
        raise RecipeError("`prompt` and `template` exclude each other", where="environment", hint="keep one of them")
    if system is not None and not chat:
        raise RecipeError("`system` requires `chat: true`", where="environment.system", hint="put it into `template`")
    if template is None:
        column = prompt or "prompt"
        return PromptBuilder(lambda row: row[column], [column], system, chat, "prompt")
    segments = parse(template)
    names = [name for _, name in segments if name]

    def render(row: Example) -> str:
        return "".join(text + (str(row[name]) if name else "") for text, name in segments)

    return PromptBuilder(render, names, system, chat, "template")


def parse(template: str) -> list[tuple[str, str]]:
    """Parse a template into pairs of text and the column that follows it ('' at the end).

    Raises:
        RecipeError: A brace without its partner, or anything but a column between braces.

    >>> parse("Question: {question} Box it: {{}}")
    [('Question: ', 'question'), (' Box it: {', ''), ('}', '')]
    """
    where, hint = "environment.template", "name a column in braces; a brace itself is written twice: \\boxed{{}}"
    try:
        segments = list(Formatter().parse(template))
    except ValueError as error:
        raise RecipeError(f"invalid template: {error}", where=where, hint=hint) from None
    if any(name == "" or spec or conversion for _, name, spec, conversion in segments):
        raise RecipeError("expected a column name between braces", where=where, hint=hint)
    return [(text, name or "") for text, name, _, _ in segments]


def _require(column: str, existing: Sequence[str], *, where: str) -> None:
    if column not in existing:
        raise RecipeError(
            f"unknown column '{column}'", where=where, allowed=", ".join(existing), hint=nearest(column, existing)
        )
