"""The judge's bench: from what a recipe says to the judge itself, and from questions to verdicts and metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from rlm_judge.spec import LocalSpec, PolicySpec, ServerSpec
from rlm_judge.talk import Bill, Judge, Question, failures
from rlm_plugins.errors import PartError

Log = Callable[[str, float], None]
Spec = ServerSpec | LocalSpec | PolicySpec

_judges: dict[str, Judge] = {}


def judge_of(spec: Spec) -> Judge:
    """The judge a recipe describes; the same description is the same judge, but for the policy, who comes and goes."""
    if isinstance(spec, PolicySpec):
        from rlm_judge.local import Policy

        return Policy(spec)
    key = f"{type(spec).__name__} {spec.model_dump_json()}"
    if key not in _judges:
        _judges[key] = _made(spec)
    return _judges[key]


def _made(spec: ServerSpec | LocalSpec) -> Judge:
    # imported here: a recipe is checked without an HTTP library and without torch
    if isinstance(spec, ServerSpec):
        from rlm_judge.server import Server

        return Server(spec)
    from rlm_judge.local import Local

    return Local(spec)


async def verdicts(
    name: str, spec: Spec, questions: Sequence[Question], votes: int, log: Log | None, state: object
) -> list[float | None]:
    """The verdict on each question: the mean of its votes; None where there is none.

    Args:
        name: What the metrics begin with.
        spec: Who judges.
        questions: What is asked.
        votes: How often.
        log: Where the metrics go.
        state: The trainer's, None while nobody trains: then a policy without its adapters judges nothing.

    Raises:
        PartError: Several votes of a judge that always says the same; a judge that cannot be asked at all.
    """
    if votes > 1 and (not isinstance(spec, ServerSpec) or spec.temperature == 0):
        hint = "give the server a temperature above 0, or take one vote"
        raise PartError(f"{votes} votes of a judge that says the same each time", where="votes", hint=hint)
    if isinstance(spec, PolicySpec) and state is None and not spec.can_judge:
        return [None] * len(questions)
    asked = [replace(question, vote=vote) for question in questions for vote in range(votes)]
    bill, start = Bill(), time.monotonic()
    answers = await judge_of(spec).ask(asked, bill)
    bill.seconds = time.monotonic() - start
    if log is not None:
        failed = sum(failures(answers).values())
        known = sum(answer.cached for answer in answers)
        for key, value in {"asked": len(answers), "failed": failed, "cached": known, **asdict(bill)}.items():
            log(f"{name}/{key}", float(value))
    found = [answer.verdict for answer in answers]
    return [_mean(found[start : start + votes]) for start in range(0, len(found), votes)]


def _mean(votes: Sequence[float | None]) -> float | None:
    given = [vote for vote in votes if vote is not None]
    return sum(given) / len(given) if given else None


async def marks(
    name: str,
    spec: Spec,
    questions: Sequence[Question | None],
    votes: int,
    log: Log | None,
    state: object,
    *,
    unasked: float,
) -> list[float | None]:
    """The same where some rows need no judge: they get `unasked`."""
    found = iter(await verdicts(name, spec, [q for q in questions if q is not None], votes, log, state))
    return [unasked if question is None else next(found) for question in questions]
