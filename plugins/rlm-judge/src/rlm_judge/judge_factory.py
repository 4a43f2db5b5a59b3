"""Construction of judges from a recipe's spec, and evaluation of queries with votes and metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from rlm_judge.records import Judge, Query, Usage, failures
from rlm_judge.spec import LocalSpec, PolicySpec, ServerSpec
from rlm_plugins.errors import PartError

Log = Callable[[str, float], None]
Spec = ServerSpec | LocalSpec | PolicySpec

_judges: dict[str, Judge] = {}


def make_judge(spec: Spec) -> Judge:
    """Return the judge of a spec. Equal specs share a judge, except for the policy, which changes between runs."""
    if isinstance(spec, PolicySpec):
        from rlm_judge.local import Policy

        return Policy(spec)
    key = f"{type(spec).__name__} {spec.model_dump_json()}"
    if key not in _judges:
        _judges[key] = _construct(spec)
    return _judges[key]


def _construct(spec: ServerSpec | LocalSpec) -> Judge:
    # lazy imports: checking a recipe must not require an HTTP library or torch
    if isinstance(spec, ServerSpec):
        from rlm_judge.server import Server

        return Server(spec)
    from rlm_judge.local import Local

    return Local(spec)


async def query_judge(
    name: str, spec: Spec, queries: Sequence[Query], votes: int, log: Log | None, state: object
) -> list[float | None]:
    """Query the judge and return the mean verdict of each query's votes; None if none was valid.

    Args:
        name: Prefix of the metrics.
        spec: The judge.
        queries: The queries.
        votes: Number of votes per query.
        log: Called with name and value of each metric.
        state: The trainer's state; None outside training, where a policy without adapters gives no verdicts.
    """
    if votes > 1 and (not isinstance(spec, ServerSpec) or spec.temperature == 0):
        hint = "set the server's temperature above 0, or use one vote"
        raise PartError(f"{votes} votes of a deterministic judge are identical", where="votes", hint=hint)
    if isinstance(spec, PolicySpec) and state is None and not spec.is_ready:
        return [None] * len(queries)
    votes_of_queries = [replace(query, vote=vote) for query in queries for vote in range(votes)]
    usage, start = Usage(), time.monotonic()
    answers = await make_judge(spec).ask(votes_of_queries, usage)
    usage.seconds = time.monotonic() - start
    if log is not None:
        failed = sum(failures(answers).values())
        cached = sum(answer.cached for answer in answers)
        for key, value in {"asked": len(answers), "failed": failed, "cached": cached, **asdict(usage)}.items():
            log(f"{name}/{key}", float(value))
    verdicts = [answer.verdict for answer in answers]
    return [_mean(verdicts[start : start + votes]) for start in range(0, len(verdicts), votes)]


def _mean(votes: Sequence[float | None]) -> float | None:
    valid = [vote for vote in votes if vote is not None]
    return sum(valid) / len(valid) if valid else None


async def query_or_default(
    name: str,
    spec: Spec,
    queries: Sequence[Query | None],
    votes: int,
    log: Log | None,
    state: object,
    *,
    default: float,
) -> list[float | None]:
    """Query the judge where needed; None in `queries` gives `default`."""
    verdicts = iter(await query_judge(name, spec, [q for q in queries if q is not None], votes, log, state))
    return [default if query is None else next(verdicts) for query in queries]
