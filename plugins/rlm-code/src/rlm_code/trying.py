"""A data set's own solutions, tried when it loads: tests that they fail would teach nothing."""

from __future__ import annotations

from collections.abc import Sequence

from rlm_sandbox import Limits, SandboxError, shared

from rlm_code.cases import read
from rlm_code.grading import grade
from rlm_plugins.errors import RecipeError

PATIENT = Limits(seconds=20.0)


def try_solutions(rows: Sequence[tuple[int, str, str | None]], path: str) -> None:
    """Runs each solution against its tests: (number of the row, tests, solution).

    Raises:
        RecipeError: One fails, or programs cannot be run here.
    """
    failed = []
    try:
        for number, tests, solution in rows:
            end = grade(shared(), solution or "", read(tests), PATIENT, every_case=False).end
            failed += [f"row {number} ({end})"] if end != "passed" else []
    except SandboxError as error:
        raise RecipeError(str(error), where="environment") from None
    if failed:
        raise RecipeError(
            f"the data set's own solution fails its tests in {', '.join(failed[:5])} of '{path}'",
            where="environment.path",
            hint="mend or leave out these rows; `tried: 0` does not try",
        )
