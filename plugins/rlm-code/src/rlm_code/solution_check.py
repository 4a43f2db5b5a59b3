"""Check of a data set's own solutions when it loads: tests that reject them would never reward a completion."""

from __future__ import annotations

from collections.abc import Sequence

from rlm_sandbox import Limits, SandboxError, shared

from rlm_code.cases import parse_tests
from rlm_code.grading import grade
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
