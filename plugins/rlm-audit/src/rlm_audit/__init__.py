"""Tests of a reward before training: completions of known quality, and answers right or wrong by construction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer

from rlm_audit.commands import rewards
from rlm_audit.kinds import Case, Family, generators, read_kinds
from rlm_plugins import hookimpl
from rlm_plugins.registry.setting import Section

__all__ = ["Case", "Family", "generators", "read_kinds"]


class References(Section):
    """Calls each reward on reference answers of its examples and on an empty completion, before a weight is loaded.

    A reward that compares with gold answers and pays none of them is an error, any other one a warning. Rewards that
    ask a model, keep state or read episodes are not called.
    """

    on_by_default = True
    needs_equation = True

    def __init__(self) -> None:
        self._scores: Sequence[Any] = ()

    def check_stage(self, stage: Any, where: str) -> None:
        """Call the rewards of a stage."""
        from rlm_audit.references import check_references

        self._scores = check_references(stage, where)

    def check_data(self, stage: Any, args: Any) -> Any:
        """Return what each reward was given and what it paid."""
        return [{"reward": found.label, "scores": found.line} for found in self._scores]

    def check_lines(self, data: Any) -> Sequence[str]:
        """Return the lines of ``rlm check``."""
        return [f"{entry['reward']}: {entry['scores']}" for entry in data]

    @contextmanager
    def training(self, stage: Any, run: Any) -> Iterator[None]:
        """Print what each reward was given and what it paid."""
        for found in self._scores:
            run.log_line(f"{stage.name}: reward {found.label}: {found.line}")
        yield


@hookimpl
def rlm_sections() -> dict[str, type[References]]:
    return {"references": References}


@hookimpl
def rlm_commands() -> dict[str, typer.Typer]:
    return {"reward": rewards}
