"""x: the data sets of `presets.PRESETS` as worlds (hook ``rlm_environments``): question, instruction, checked tests."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import Field

from rlm_code.cases import BadTests, read
from rlm_code.presets import PRESETS, Preset
from rlm_code.trying import try_solutions
from rlm_plugins.data.presets import environment_from
from rlm_plugins.errors import RecipeError

Natural = Annotated[int, Field(ge=0)]

INSTRUCTION = "Write the program in one ```python block."
_KNOBS = """Columns: ``prompt`` (question, empty line, `instruction`), ``question``, ``tests`` for `code_tests`, and
    what else the data set has.

    `path` may also be a local file or folder of the same shape. Tests are read when the data load: a row whose tests
    cannot be used is an error that names it; up to `skip` such rows are left out. Where the data set has
    solutions, the first `tried` of them must pass, in the sandbox. A question that occurs twice is taken once.

    Held out: `test_rows` rows of `test_split` (0: all of them), or, without one, `test_rows` rows of `split`, drawn
    with `seed`; what is asked there is not trained on. `max_rows`: use only the first rows of `split`."""


def _read(preset: Preset, table: Any, path: str, *, tried: Natural = 16, skip: Natural = 0) -> Any:
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


WORLDS = {
    name: environment_from(name, preset, _read, column="question", instruction=INSTRUCTION, knobs=_KNOBS)
    for name, preset in PRESETS.items()
}
