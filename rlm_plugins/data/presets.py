"""Environments of well-known data sets: a preset, the knobs that all of them share, and held-out examples."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Protocol, get_type_hints

from pydantic import Field

from rlm_plugins.data.prompt_columns import PromptBuilder, prompt_builder
from rlm_plugins.data.splits import hold_out, without
from rlm_plugins.data.tables import open_split
from rlm_plugins.errors import RecipeError
from rlm_plugins.specs import EnvironmentSpec

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]


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
        preset: The data set; its attribute `split`, if any, is the default training split.
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
        check_path(path)
        if config is None and path == preset.path:
            config = preset.config
        if split == getattr(preset, "split", "train") and Path(path).expanduser().is_file():
            split = "train"  # the name of all rows of a single file, also for a benchmark, whose rows are "test"
        builder = prompt_builder_for(column, instruction, system, chat)

        def load(split: str, limit: int | None) -> Any:
            table: Any = open_split(path, split, config=config, revision=revision)
            table = table.select(range(min(limit, len(table)))) if limit else table
            return builder(read(preset, table, path, **reader_knobs))

        return split_environment(
            load, split=split, test_split=test_split, test_rows=test_rows, max_rows=max_rows, seed=seed
        )

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


def check_path(path: str) -> None:
    """Raise an error if no data set is named.

    Raises:
        RecipeError: The path is empty.
    """
    if not path:
        raise RecipeError(
            "expected a data set, got an empty `path`",
            where="environment.path",
            hint="a file, a folder, or a name on the hub",
        )


def prompt_builder_for(column: str, instruction: str, system: str | None, chat: bool) -> PromptBuilder:
    r"""Return a builder of prompts: a column and, after an empty line, the instruction verbatim (if not empty).

    >>> prompt_builder_for("problem", "Use {}.", None, chat=False).row({"problem": "1+1?"}, 0)
    {'prompt': '1+1?\n\nUse {}.'}
    """
    closing = f"\n\n{instruction}" if instruction else ""
    template = f"{{{column}}}" + closing.replace("{", "{{").replace("}", "}}")
    return prompt_builder(None, template, system, chat)


def split_environment(
    load: Callable[[str, int | None], Any],
    *,
    split: str,
    test_split: str | None,
    test_rows: int,
    max_rows: int | None,
    seed: int,
) -> EnvironmentSpec:
    """Return an environment with held-out examples, whose prompts are removed from the training examples.

    Args:
        load: (split, number of first examples to read; None: all) → examples with a prompt.
        split: The training split.
        test_split: The evaluation split; None: examples of `split` are held out.
        test_rows: Examples of `test_split` (0: all), or examples of `split` drawn with `seed` (0: none).
        max_rows: Examples of `split` at most; None: all.
        seed: Of the draw.
    """
    train = load(split, max_rows)
    if test_split is None:
        return EnvironmentSpec(*hold_out(train, test_rows, seed)) if test_rows else EnvironmentSpec(train=train)
    test = load(test_split, None)
    test = test.select(range(min(test_rows or len(test), len(test))))
    return EnvironmentSpec(train=without(train, test), test=test)
