"""Tests of a reward before training: completions of known quality, and answers right or wrong by construction."""

from __future__ import annotations

import typer

from rlm_audit.case import Case, Family
from rlm_audit.commands import rewards
from rlm_audit.kinds import generators, read_kinds
from rlm_audit.references import References
from rlm_plugins import hookimpl

__all__ = ["Case", "Family", "generators", "read_kinds"]


@hookimpl
def rlm_sections() -> dict[str, type[References]]:
    return {"references": References}


@hookimpl
def rlm_commands() -> dict[str, typer.Typer]:
    return {"reward": rewards}
