"""x: the data sets of `presets.PRESETS` as environments (hook ``rlm_environments``): prompts with checked answers."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from rlm_math.dataset_check import parseable_rows
from rlm_math.presets import PRESETS, TRANSCRIPT_COLUMNS, Preset
from rlm_plugins.data.presets import environment_from
from rlm_plugins.errors import RecipeError

Share = Annotated[float, Field(ge=0, le=1)]

INSTRUCTION = "Reason step by step, and put your final answer within \\boxed{}."
_KNOBS = """Columns: ``prompt`` (the problem, an empty line, `instruction`), ``problem``, ``answer``, and the
    data set's other columns.

    `path` may also be a local file or folder of the same shape. Duplicate problems are removed, and so
    are examples without an answer. Examples whose answer cannot be parsed as mathematics are removed with a warning;
    more than the share `unreadable` of them is an error. `check: false` skips this check.

    Held out: `test_rows` examples of `test_split` (0: all of them), or, without one, of `split`, drawn with `seed`.
    Their prompts are never trained on. `max_rows`: use only the first examples of `split`."""


def _read(preset: Preset, table: Any, path: str, *, check: bool = True, unreadable: Share = 0.05) -> Any:
    """Return `table` with the columns `problem` and `answer`, each problem once, without unusable answers.

    Raises:
        RecipeError: A column is missing, or no row has an answer.
    """
    if len(table) == 0:
        raise RecipeError(f"'{path}' has no rows", where="environment.path")
    if preset.demonstration is not None and preset.trace in table.column_names:
        table = table.add_column("demonstration", list(map(preset.demonstration, table)))
    table = table.remove_columns([name for name in TRANSCRIPT_COLUMNS if name in table.column_names])
    parsed: list[tuple[str, str | None]] = []
    for example in table:
        try:
            parsed.append((preset.problem(example), preset.answer(example)))
        except KeyError as error:
            raise RecipeError(
                f"this preset requires the column {error}, which '{path}' does not have",
                where="environment.path",
                allowed=", ".join(table.column_names),
                hint="for other shapes: math_table, or dataset with `columns`",
            ) from None
    first = {problem: example for example, (problem, _) in reversed(list(enumerate(parsed)))}
    kept = [
        example
        for example, (problem, answer) in enumerate(parsed)
        if answer and problem.strip() and first[problem] == example
    ]
    if not kept:
        raise RecipeError(f"no example of '{path}' has an answer", where="environment.path")
    table = table.select(kept)
    for index, name in enumerate(("problem", "answer")):
        values = [str(parsed[example][index]) for example in kept]
        table = table.add_column(f"_{name}", values)
        table = table.remove_columns([name] if name in table.column_names else []).rename_column(f"_{name}", name)
    return table.select(parseable_rows(table["answer"][:], where=f"'{path}'", max_share=unreadable)) if check else table


ENVIRONMENTS = {
    name: environment_from(name, preset, _read, column="problem", instruction=INSTRUCTION, knobs=_KNOBS)
    for name, preset in PRESETS.items()
}
