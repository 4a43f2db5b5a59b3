"""x: the data sets of `presets.PRESETS` as worlds (hook ``rlm_environments``): question, instruction, checked tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field

from rlm_code.cases import BadTests, read
from rlm_code.presets import PRESETS, Preset
from rlm_code.trying import try_solutions
from rlm_plugins.data.loading import open_table
from rlm_plugins.data.presets import asked_with, check_path, divided
from rlm_plugins.errors import RecipeError
from rlm_plugins.specs import EnvironmentSpec

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]

INSTRUCTION = "Write the program in one ```python block."
_KNOBS = """Columns: ``prompt`` (question, empty line, `instruction`), ``question``, ``tests`` for `code_tests`, and
    what else the data set has.

    `path` may also be a local file or folder of the same shape. Tests are read when the data load: a row whose tests
    cannot be used is an error that names it; up to `skip` such rows are left out. Where the data set has
    solutions, the first `tried` of them must pass, in the sandbox. A question that occurs twice is taken once.

    Held out: `test_rows` rows of `test_split` (0: all of them), or, without one, `test_rows` rows of `split`, drawn
    with `seed`; what is asked there is not trained on. `max_rows`: use only the first rows of `split`."""


def world_of(name: str, preset: Preset) -> Callable[..., EnvironmentSpec]:
    """The environment part of one data set."""

    def environment_spec(
        *,
        path: str = preset.path,
        config: str | None = None,
        revision: str | None = None,
        split: str = preset.split,
        test_split: str | None = None,
        test_rows: Natural = 0,
        max_rows: Count | None = None,
        instruction: str = INSTRUCTION,
        system: str | None = None,
        chat: bool = True,
        tried: Natural = 16,
        skip: Natural = 0,
        seed: int = 0,
    ) -> EnvironmentSpec:
        check_path(path)
        if config is None and path == preset.path:
            config = preset.config
        ask = asked_with("question", instruction, system, chat)

        def rows(split: str, most: int | None) -> Any:
            table: Any = open_table(path, split, config=config, revision=revision)
            table = table.select(range(min(most, len(table)))) if most else table
            return ask(_read(preset, table, path, tried, skip))

        return divided(rows, split=split, test_split=test_split, test_rows=test_rows, max_rows=max_rows, seed=seed)

    environment_spec.__name__ = environment_spec.__qualname__ = name
    environment_spec.__doc__ = f"{preset.about}\n\n    {_KNOBS}\n    "
    return environment_spec


def _read(preset: Preset, table: Any, path: str, tried: int, skip: int) -> Any:
    """`table` with the columns `question` and `tests`, each question once.

    Raises:
        RecipeError: A row that cannot be used, or a column that is missing.
    """
    kept: dict[str, tuple[int, str, str | None]] = {}
    bad = []
    for number, row in enumerate(table):
        try:
            question, tests = preset.question(row), preset.tests(row)
            read(tests)
            text = tests if isinstance(tests, str) else json.dumps(tests)
            kept.setdefault(question, (number, text, preset.solution(row)))
        except KeyError as error:
            raise RecipeError(
                f"row {number} of '{path}' has no {error}, which this preset reads",
                where="environment.path",
                allowed=", ".join(table.column_names),
                hint="for other shapes: code_table",
            ) from None
        except (BadTests, ValueError, TypeError, LookupError) as error:
            bad.append(f"row {number}: {error}")
    if len(bad) > skip or not kept:
        raise RecipeError(
            f"{len(bad)} of {len(table)} rows of '{path}' have tests that cannot be used: {'; '.join(bad[:3])}",
            where="environment.path",
            allowed=f"at most {skip} (the knob `skip`)",
            hint="is it the right data set for this preset?",
        )
    try_solutions([entry for entry in kept.values() if entry[2]][:tried], path)
    table = table.select([number for number, _, _ in kept.values()])
    columns = {"question": list(kept), "tests": [text for _, text, _ in kept.values()]}
    table = table.remove_columns([name for name in (*columns, "private_test_cases") if name in table.column_names])
    for name, values in columns.items():
        table = table.add_column(name, values)
    return table


WORLDS = {name: world_of(name, preset) for name, preset in PRESETS.items()}
