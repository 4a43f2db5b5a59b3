"""The law every part is under: its signature is its schema."""

from __future__ import annotations

from rlm_plugins.hookspecs import HOOKS
from rlm_plugins.testing.law import Draw, law
from rlm_plugins.testing.part_under_test import Subject


@law(*(hook for hook in HOOKS if hook != "rlm_algorithms"))
def contract(subject: Subject, draw: Draw) -> None:
    """Data before the star by names the hook knows, annotated knobs after it, and the knobs given here fit."""
    subject.part.check()
    subject.fresh()
