"""x: the data sets of `presets.PRESETS` as worlds (hook ``rlm_environments``): problem, instruction, checked answer."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from rlm_math.checking import readable
from rlm_math.presets import BULKY, PRESETS, Preset
from rlm_plugins.data.presets import environment_from
from rlm_plugins.errors import RecipeError

Share = Annotated[float, Field(ge=0, le=1)]

INSTRUCTION = "Reason step by step, and put your final answer within \\boxed{}."
_KNOBS = """Columns: ``prompt`` (the problem, an empty line, `instruction`), ``problem``, ``answer``, and what else
    the data set has.

    `path` may also be a local file or folder of the same shape. A problem that occurs twice is taken once; rows
    without an answer are left out, and so are those whose answer cannot be read as mathematics: they are named in a
    warning, and more than the share `unreadable` of them is an error. `check: false` trusts the answers.

    Held out: `test_rows` rows of `test_split` (0: all of them), or, without one, `test_rows` rows of `split`, drawn
    with `seed`; what is asked there is not trained on. `max_rows`: use only the first rows of `split`."""


def _read(preset: Preset, table: Any, path: str, *, check: bool = True, unreadable: Share = 0.05) -> Any:
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
    return table.select(readable(table["answer"][:], where=f"'{path}'", most=unreadable)) if check else table


WORLDS = {
    name: environment_from(name, preset, _read, column="problem", instruction=INSTRUCTION, knobs=_KNOBS)
    for name, preset in PRESETS.items()
}
