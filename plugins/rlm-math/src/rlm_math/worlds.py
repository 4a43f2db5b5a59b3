"""x: the data sets of `presets.PRESETS` as worlds (hook ``rlm_environments``): problem, instruction, checked answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field

from rlm_math.checking import readable
from rlm_math.presets import BULKY, PRESETS, Preset
from rlm_plugins.data.loading import open_table
from rlm_plugins.data.presets import asked_with, check_path, divided
from rlm_plugins.errors import RecipeError
from rlm_plugins.specs import EnvironmentSpec

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]

INSTRUCTION = "Reason step by step, and put your final answer within \\boxed{}."
_KNOBS = """Columns: ``prompt`` (the problem, an empty line, `instruction`), ``problem``, ``answer``, and what else
    the data set has.

    `path` may also be a local file or folder of the same shape. A problem that occurs twice is taken once; rows
    without an answer are left out, and so are those whose answer cannot be read as mathematics: they are named in a
    warning, and more than the share `unreadable` of them is an error. `check: false` trusts the answers.

    Held out: `test_rows` rows of `test_split` (0: all of them), or, without one, `test_rows` rows of `split`, drawn
    with `seed`; what is asked there is not trained on. `max_rows`: use only the first rows of `split`."""


def world_of(name: str, preset: Preset) -> Callable[..., EnvironmentSpec]:
    """The environment part of one data set."""

    def environment_spec(
        *,
        path: str = preset.path,
        config: str | None = None,
        revision: str | None = None,
        split: str = "train",
        test_split: str | None = None,
        test_rows: Natural = 0,
        max_rows: Count | None = None,
        instruction: str = INSTRUCTION,
        system: str | None = None,
        chat: bool = True,
        check: bool = True,
        unreadable: Share = 0.05,
        seed: int = 0,
    ) -> EnvironmentSpec:
        check_path(path)
        if config is None and path == preset.path:
            config = preset.config
        ask = asked_with("problem", instruction, system, chat)

        def rows(split: str, most: int | None) -> Any:
            table: Any = open_table(path, split, config=config, revision=revision)
            table = _read(preset, table.select(range(min(most, len(table)))) if most else table, path)
            if check:
                table = table.select(readable(table["answer"][:], where=f"'{path}'", most=unreadable))
            return ask(table)

        return divided(rows, split=split, test_split=test_split, test_rows=test_rows, max_rows=max_rows, seed=seed)

    environment_spec.__name__ = environment_spec.__qualname__ = name
    environment_spec.__doc__ = f"{preset.about}\n\n    {_KNOBS}\n    "
    return environment_spec


def _read(preset: Preset, table: Any, path: str) -> Any:
    """`table` with the columns `problem` and `answer`, each problem once.

    Raises:
        RecipeError: A column is missing, or no row has an answer.
    """
    if len(table) == 0:
        raise RecipeError(f"'{path}' has no rows", where="environment.path")
    table = table.remove_columns([name for name in BULKY if name in table.column_names])
    read: list[tuple[str, str | None]] = []
    for row in table:
        try:
            read.append((preset.problem(row), preset.answer(row)))
        except KeyError as error:
            raise RecipeError(
                f"'{path}' has no column {error}, which this preset reads",
                where="environment.path",
                allowed=", ".join(table.column_names),
                hint="for other shapes: math_table, or dataset with `columns`",
            ) from None
    first = {problem: row for row, (problem, _) in reversed(list(enumerate(read)))}
    kept = [row for row, (problem, answer) in enumerate(read) if answer and problem.strip() and first[problem] == row]
    if not kept:
        raise RecipeError(f"no row of '{path}' has an answer", where="environment.path")
    table = table.select(kept)
    for place, name in enumerate(("problem", "answer")):
        values = [str(read[row][place]) for row in kept]
        table = table.add_column(f"_{name}", values)
        table = table.remove_columns([name] if name in table.column_names else []).rename_column(f"_{name}", name)
    return table


WORLDS = {name: world_of(name, preset) for name, preset in PRESETS.items()}
