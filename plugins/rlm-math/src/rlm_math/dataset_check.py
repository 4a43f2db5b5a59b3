"""Check of a data set's answers when it loads: an example with an unusable answer would never get a reward signal."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from rlm_math import reference as references
from rlm_math.comparison import Query, parse_query
from rlm_math.verifier_pool import shared
from rlm_plugins.errors import RecipeError

SECONDS = 3.0
_LOG = logging.getLogger(__name__)


def parseable_rows(answers: Sequence[str], *, where: str, max_share: float) -> list[int]:
    """Return the indices of the examples whose answer the reward can use; a warning lists the others.

    Args:
        answers: Answer of each example.
        where: Name of the data set, for messages.
        max_share: Largest share of examples that may be removed.

    Raises:
        RecipeError: More than that would be removed.
    """
    parsed = {text: references.parse_reference(text) for text in dict.fromkeys(answers)}
    queries = {text: parse_query(gold) for text, gold in parsed.items() if gold is not None}
    unique_queries = list(dict.fromkeys(query for query in queries.values() if query is not None))
    replies: dict[Query, str] = {}
    if unique_queries:
        replies = dict(zip(unique_queries, shared(None).run(unique_queries, SECONDS), strict=True))
    parseable = {text for text, query in queries.items() if query is None or replies[query] == "right"}
    kept = [row for row, text in enumerate(answers) if text in parseable]
    removed = [f"row {row}: {text[:60]!r}" for row, text in enumerate(answers) if text not in parseable]
    if len(removed) > max_share * len(answers):
        problem = f"{len(removed)} of {len(answers)} answers of {where} cannot be parsed as mathematics"
        raise RecipeError(
            f"{problem}: {'; '.join(removed[:3])}",
            where="environment.path",
            allowed=f"at most {max_share:.0%} (the knob `unreadable`)",
            hint="is it the right data set for this preset?",
        )
    if removed:
        _LOG.warning("%s: %d of %d answers left out: %s", where, len(removed), len(answers), "; ".join(removed[:10]))
    return kept
