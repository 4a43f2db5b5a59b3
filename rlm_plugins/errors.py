"""Errors for users: a problem, its place, the allowed values, and a hint."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RlmError(Exception):
    """An error with its place and a remedy.

    Args:
        problem: The problem in one sentence.
        where: The recipe path (``rewards[0].weight``), plugin, file or sample.
        allowed: The allowed values.
        hint: The next step for the user.

    Attributes:
        is_before_update: True if the last complete optimizer step can be saved: no weight has changed since.
    """

    is_before_update = True

    def __init__(self, problem: str, *, where: str = "", allowed: str = "", hint: str = "") -> None:
        self.problem, self.where, self.allowed, self.hint = problem, where, allowed, hint
        lines = [f"{where}: {problem}" if where else problem]
        lines += [f"  allowed: {allowed}"] if allowed else []
        lines += [f"  hint: {hint}"] if hint else []
        super().__init__("\n".join(lines))


class RecipeError(RlmError):
    """An invalid recipe."""


class PluginError(RlmError):
    """A plugin that breaks the contract of :mod:`rlm_plugins.hookspecs`."""


class PartError(RlmError):
    """A part that failed or returned an invalid value during a run."""


def nearest(word: str, choices: Iterable[str]) -> str:
    """Return the choice closest to `word`, without case, as a question for a hint; empty if none is close.

    >>> nearest("aplha", ["alpha", "beta"])
    "did you mean 'alpha'?"
    >>> nearest("GRPO", ["rloo", "grpo"])
    "did you mean 'grpo'?"
    >>> nearest("zzz", ["alpha", "beta"])
    ''
    """
    close = _close(word, choices)
    return f"did you mean '{close}'?" if close else ""


def mistyped(word: str, present: Iterable[str]) -> str:
    """Return the present name closest to a missing `word`, as a question for a hint; empty if none is close.

    >>> mistyped("beta", ["name", "bata"])
    "found 'bata': did you mean 'beta'?"
    """
    close = _close(word, present, cutoff=0.7)
    return f"found '{close}': did you mean '{word}'?" if close else ""


def _close(word: str, choices: Iterable[str], cutoff: float = 0.6) -> str:
    by_casefold = {choice.casefold(): choice for choice in choices}
    close = difflib.get_close_matches(word.casefold(), by_casefold, n=1, cutoff=cutoff)
    return by_casefold[close[0]] if close else ""
