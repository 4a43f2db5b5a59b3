"""Commands that explain recipes, diagnose runs and compare them."""

from __future__ import annotations

from collections.abc import Callable

from rlm_lab import explain_commands
from rlm_plugins import hookimpl


@hookimpl
def rlm_commands() -> dict[str, Callable[..., None]]:
    return {
        **explain_commands.COMMANDS,
    }
