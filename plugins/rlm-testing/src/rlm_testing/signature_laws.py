"""Law of every part: its signature is its schema."""

from __future__ import annotations

from rlm_plugins.hooks import HOOKS
from rlm_testing.law import Draw, law
from rlm_testing.part_under_test import Subject


@law(*(hook for hook in HOOKS if hook != "rlm_algorithms"))
def contract(subject: Subject, draw: Draw) -> None:
    """Check that its data have names of the hook, its knobs are annotated, and these knobs fit."""
    subject.part.check()
    subject.fresh()
