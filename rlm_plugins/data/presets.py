"""Data sets as environments: prompts from columns, held-out examples, and presets of well-known data sets."""

from __future__ import annotations

import inspect
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any, Protocol, get_type_hints

from rlm_plugins.data.images import identity, image_columns, undecoded, without_images
from rlm_plugins.data.tables import column_hint, open_split, row_address
from rlm_plugins.equation.batch import SAMPLE
from rlm_plugins.equation.knobs import Count, Natural
from rlm_plugins.errors import RecipeError
from rlm_plugins.specs import EnvironmentSpec

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset


Example = Mapping[str, Any]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class PromptBuilder:
    """A conversion of examples to prompts: `render` reads the `required` columns, which the knob `knob` named."""

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
    """Return examples with copies of columns."""
    if not columns:
        return rows
    existing = rows.column_names or list(next(iter(rows), {}))
    for new, old in columns.items():
        _require(old, existing, where=f"environment.columns.{new}")
        if new in SAMPLE:
            raise RecipeError(f"'{new}' is a reserved name of rewards: {SAMPLE[new]}", where="environment.columns")
    return rows.map(lambda row: {new: row[old] for new, old in columns.items()})


def prompt_builder(prompt: str | None, template: str | None, system: str | None, chat: bool) -> PromptBuilder:
    """Build the prompt builder of the knobs of a data set."""
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
        hint = column_hint(column, existing)
        raise RecipeError(f"unknown column '{column}'", where=where, allowed=", ".join(existing), hint=hint)


def hold_out(rows: Dataset, count: int, seed: int) -> tuple[Dataset, Dataset]:
    """Return (train, test): `count` test examples drawn with `seed`, and the examples with other prompts.

    Of an unpaired preference (with a ``label``), all examples of a drawn prompt are held out.
    """
    indices = random.Random(seed).sample(range(len(rows)), min(count, len(rows)))
    test = rows.select(sorted(indices))
    if "label" in rows.column_names:  # an unpaired preference: completions of a prompt stay together
        prompts = list(map(repr, test["prompt"]))
        test = rows.filter(lambda prompt: repr(prompt) in prompts, input_columns="prompt")
    return without(rows, test, drawn=True), test


def without(rows: Any, test: Any, *, drawn: bool = False) -> Any:
    """Return `rows` without examples whose prompt, with its images, is in `test`; a warning says how many they are.

    The warning does not count those that were `drawn` from `rows`.
    """
    left = _without(rows, test)
    if not hasattr(rows, "__len__"):
        return left
    removed, total = len(rows) - len(left) - drawn * len(test), len(rows)
    problem = f"{removed} of {total} training examples have the prompt of a held-out example"
    if len(left) == 0:
        if not removed:
            problem = f"{len(test)} of {total} examples are held out"
        where = "environment.test_rows" if drawn else "environment"
        raise RecipeError(f"{problem}, which leaves none to train on", where=where, hint="hold out fewer or others")
    if removed:
        _LOG.warning("environment: %s and are not trained on", problem)
    return left


def _without(rows: Any, test: Any) -> Any:
    if image_columns(getattr(rows, "column_names", None) or ()):
        held_out_ids = {identity(row) for row in undecoded(test)}
        if not hasattr(rows, "__len__"):
            return rows.filter(lambda row: identity(row) not in held_out_ids)
        return rows.select([i for i, row in enumerate(undecoded(rows)) if identity(row) not in held_out_ids])
    # not a set: its order would change the name of the cached file
    held_out = dict.fromkeys(repr(row["prompt"]) for row in without_images(test))
    return rows.filter(lambda prompt: repr(prompt) not in held_out, input_columns="prompt")


class Preset(Protocol):
    """A data set: what it is, its name on the hub, and which of several configs under that name."""

    @property
    def about(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def config(self) -> str | None: ...


def environment_from(
    name: str, preset: Preset, read: Callable[..., Any], *, column: str, instruction: str, knobs: str
) -> Callable[..., EnvironmentSpec]:
    """Return the environment part of one data set.

    Args:
        name: Of the part.
        preset: The data set; its attribute `split`, if any, is the default training split, and `paid_by` the rewards
            that its references require.
        read: ``read(preset, table, path, **knobs)`` → the examples that can be used, with the column `column`.
            Its keyword-only parameters become knobs of the part.
        column: Holds the question.
        instruction: Default of the knob `instruction`, appended to the question after an empty line.
        knobs: The paragraphs of the part's docstring that follow `preset.about`.
    """

    def environment(
        *,
        path: str = preset.path,
        config: str | None = None,
        revision: str | None = None,
        split: str = getattr(preset, "split", "train"),
        test_split: str | None = None,
        test_rows: Natural = 0,
        max_rows: Count | None = None,
        instruction: str = instruction,
        system: str | None = None,
        chat: bool = True,
        seed: int = 0,
        **reader_knobs: Any,
    ) -> EnvironmentSpec:
        if not path:
            hint = "a file, a folder, or a name on the hub"
            raise RecipeError("expected a data set, got an empty `path`", where="environment.path", hint=hint)
        if config is None and path == preset.path:
            config = preset.config
        if split == getattr(preset, "split", "train") and Path(path).expanduser().is_file():
            split = "train"  # the name of all rows of a single file, also for a benchmark, whose rows are "test"
        builder = prompt_builder_for(column, instruction, system, chat)

        def load(split: str, limit: int | None) -> Any:
            table: Any = open_split(path, split, config=config, revision=revision)
            table = table.select(range(min(limit, len(table)))) if limit else table
            return builder(read(preset, table, path, **reader_knobs))

        train, test = load(split, max_rows), ()
        if test_split is not None:
            test = load(test_split, None)
            test = test.select(range(min(test_rows or len(test), len(test))))
            train = without(train, test)
        elif test_rows:
            train, test = hold_out(train, test_rows, seed)
        return EnvironmentSpec(train=train, test=test, paid_by=getattr(preset, "paid_by", ()))

    environment.__name__ = environment.__qualname__ = name
    environment.__doc__ = f"{preset.about}\n\n    {knobs}\n    "
    environment.__signature__ = _joined_signature(environment, read)  # type: ignore[attr-defined]
    environment.__wrapped__ = read  # type: ignore[attr-defined]  # so that `rlm explain` shows the file of the plugin
    return environment


def _joined_signature(environment: Callable[..., Any], read: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a part in which the knobs of `read` replace ``**reader_knobs``, with resolved types."""
    shared, hints = inspect.signature(environment), get_type_hints(environment, include_extras=True)
    reader, reader_hints = inspect.signature(read), get_type_hints(read, include_extras=True)
    *first, seed, _ = (p.replace(annotation=hints[p.name]) for p in shared.parameters.values())
    knobs = [p for p in reader.parameters.values() if p.kind is p.KEYWORD_ONLY]
    return shared.replace(parameters=[*first, *(p.replace(annotation=reader_hints[p.name]) for p in knobs), seed])


def prompt_builder_for(column: str, instruction: str, system: str | None, chat: bool) -> PromptBuilder:
    r"""Return a builder of prompts: a column and, after an empty line, the instruction verbatim (if not empty).

    >>> prompt_builder_for("problem", "Use {}.", None, chat=False).row({"problem": "1+1?"}, 0)
    {'prompt': '1+1?\n\nUse {}.'}
    """
    closing = f"\n\n{instruction}" if instruction else ""
    template = f"{{{column}}}" + closing.replace("{", "{{").replace("}", "}}")
    return prompt_builder(None, template, system, chat)
