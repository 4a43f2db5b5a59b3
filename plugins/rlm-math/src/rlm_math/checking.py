"""Answers of a data set, checked when it loads: a row whose answer cannot be read would never teach anything."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from rlm_math import gold as golds
from rlm_math.judging import reading
from rlm_math.pool import shared
from rlm_plugins.errors import RecipeError

SECONDS = 3.0
_LOG = logging.getLogger(__name__)


def readable(answers: Sequence[str], *, where: str, most: float) -> list[int]:
    """The rows whose answer the reward can work with; the others are named in a warning.

    Args:
        answers: Of each row.
        where: The data set, for the message.
        most: Share of rows that may be lost.

    Raises:
        RecipeError: More than that is.
    """
    questions = {text: reading(gold) for text in dict.fromkeys(answers) if (gold := golds.read(text)) is not None}
    asked = list(dict.fromkeys(question for question in questions.values() if question is not None))
    said = dict(zip(asked, shared(None).run(asked, SECONDS), strict=True)) if asked else {}
    fine = {text for text, question in questions.items() if question is None or said[question] == "right"}
    kept = [row for row, text in enumerate(answers) if text in fine]
    lost = [f"row {row}: {text[:60]!r}" for row, text in enumerate(answers) if text not in fine]
    if len(lost) > most * len(answers):
        raise RecipeError(
            f"{len(lost)} of {len(answers)} answers of {where} cannot be read as mathematics: {'; '.join(lost[:3])}",
            where="environment.path",
            allowed=f"at most {most:.0%} (the knob `unreadable`)",
            hint="is it the right data set for this preset?",
        )
    if lost:
        _LOG.warning("%s: %d of %d answers left out: %s", where, len(lost), len(answers), "; ".join(lost[:10]))
    return kept
