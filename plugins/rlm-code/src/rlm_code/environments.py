"""x: the data sets of `presets.PRESETS` as environments (hook ``rlm_environments``): prompts with checked tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rlm_sandbox import Limits, SandboxError, shared

from rlm_code.cases import BadTests, parse_tests
from rlm_code.presets import PRESETS, Preset
from rlm_code.reward import grade
from rlm_plugins.data.presets import environment_from
from rlm_plugins.equation.knobs import Natural
from rlm_plugins.errors import RecipeError

SOLUTION_LIMITS = Limits(seconds=20.0)


def check_solutions(rows: Sequence[tuple[int, str, str | None]], path: str) -> None:
    """Run each solution against its tests; `rows` are (row number, tests, solution)."""
    failed = []
    try:
        for number, tests, solution in rows:
            end = grade(shared(), solution or "", parse_tests(tests), SOLUTION_LIMITS, every_case=False).end
            failed += [f"row {number} ({end})"] if end != "passed" else []
    except SandboxError as error:
        raise RecipeError(str(error), where="environment") from None
    if failed:
        raise RecipeError(
            f"the data set's own solution fails its tests in {', '.join(failed[:5])} of '{path}'",
            where="environment.path",
            hint="correct or remove these rows; `tried: 0` skips this check",
        )


INSTRUCTION = "Write the program in one ```python block."
_KNOBS = """Columns: ``prompt`` (question, empty line, `instruction`), ``question``, ``tests`` for `code_tests`, and
    the data set's other columns.

    `path` may also be a local file or folder of the same shape. Tests are parsed when the data load: malformed tests
    are an error that names the row; up to `skip` such rows are removed. If the data set has solutions, the first
    `tried` of them must pass in the sandbox. Duplicate questions are removed.

    Held out: `test_rows` examples of `test_split` (0: all of them), or, without one, of `split`, drawn with `seed`.
    Their prompts are never trained on. `max_rows`: use only the first examples of `split`."""


def _read(preset: Preset, table: Any, path: str, *, tried: Natural = 16, skip: Natural = 0) -> Any:
    """Return `table` with the columns `question` and `tests`, each question once."""
    by_question: dict[str, tuple[int, str, str | None]] = {}
    problems = []
    for number, example in enumerate(table):
        try:
            question, tests = preset.question(example), preset.tests(example)
            parse_tests(tests)
            text = tests if isinstance(tests, str) else json.dumps(tests)
            by_question.setdefault(question, (number, text, preset.solution(example)))
        except KeyError as error:
            raise RecipeError(
                f"this preset requires {error}, which row {number} of '{path}' does not have",
                where="environment.path",
                allowed=", ".join(table.column_names),
                hint="for other shapes: code_table",
            ) from None
        except (BadTests, ValueError, TypeError, LookupError) as error:
            problems.append(f"row {number}: {error}")
    if len(problems) > skip or not by_question:
        raise RecipeError(
            f"{len(problems)} of {len(table)} rows of '{path}' have unusable tests: {'; '.join(problems[:3])}",
            where="environment.path",
            allowed=f"at most {skip} (the knob `skip`)",
            hint="is it the right data set for this preset?",
        )
    check_solutions([entry for entry in by_question.values() if entry[2]][:tried], path)
    table = table.select([number for number, _, _ in by_question.values()])
    columns = {"question": list(by_question), "tests": [text for _, text, _ in by_question.values()]}
    table = table.remove_columns([name for name in (*columns, "private_test_cases") if name in table.column_names])
    for name, values in columns.items():
        table = table.add_column(name, values)
    return table


ENVIRONMENTS = {
    name: environment_from(name, preset, _read, column="question", instruction=INSTRUCTION, knobs=_KNOBS)
    for name, preset in PRESETS.items()
}
