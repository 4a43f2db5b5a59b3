"""A judge behind HTTP: many questions at once, patiently, and never an exception for what one of them met."""

from __future__ import annotations

import asyncio
import functools
import logging
import ssl
from collections.abc import Mapping, Sequence

import httpx2

from rlm_judge import pace
from rlm_judge.cache import Cache
from rlm_judge.errand import Errand
from rlm_judge.reply import SHUT
from rlm_judge.spec import ServerSpec
from rlm_judge.talk import Answer, Bill, Question, failures
from rlm_plugins.errors import PartError

logger = logging.getLogger(__name__)


class Server:
    """Asks a server that speaks OpenAI's chat completions.

    Args:
        spec: As the recipe says it.
    """

    def __init__(self, spec: ServerSpec) -> None:
        self.spec = spec
        self._pace = pace.shared(spec.url, spec.requests_per_minute, spec.tokens_per_minute)
        self._cache = Cache(spec.cache) if spec.cache else None
        self._barren = 0  # batches in a row without a verdict

    async def ask(self, questions: Sequence[Question], bill: Bill) -> list[Answer]:
        """An answer to each question; equal ones are asked once.

        Raises:
            PartError: The server wants none of them (key, model, address), or nothing has come for `give_up` batches.
        """
        different = list(dict.fromkeys(questions))
        async with self._client() as client:
            lines = asyncio.Semaphore(self.spec.concurrency)
            errand = Errand(self.spec, client, lines, self._pace, self._cache, bill)
            answers = dict(zip(different, await asyncio.gather(*map(errand.run, different)), strict=True))
        self._look_at(list(answers.values()), errand.said)
        return [answers[question] for question in questions]

    def _client(self) -> httpx2.AsyncClient:
        # one per batch: a client belongs to its event loop, and evaluation has another one than training
        limits = httpx2.Limits(max_connections=self.spec.concurrency)
        headers = {"Accept-Encoding": "identity"}  # a small reply that unpacks to a large one is no use to anybody
        if self.spec.key:
            headers["Authorization"] = f"Bearer {self.spec.key}"
        trust = _trust() if self.spec.url.startswith("https") else False
        return httpx2.AsyncClient(headers=headers, limits=limits, timeout=None, verify=trust)

    def _look_at(self, answers: Sequence[Answer], said: Mapping[str, str]) -> None:
        """Tells what failed; ends a run that would go on for ever without a judge."""
        failed = failures(answers)
        if not failed:
            self._barren = 0 if answers else self._barren
            return
        told = ", ".join(f"{why}: {count}{_more(said.get(why))}" for why, count in failed.items())
        barren = sum(failed.values()) == len(answers)
        self._barren = self._barren + 1 if barren else 0
        if barren and all(why in SHUT for why in failed):
            problem = f"the judge at {self.spec.url} lets nobody in: {told}"
            raise PartError(problem, hint="look at its url, model and api_key_env")
        if self._barren >= self.spec.give_up:
            problem = f"the judge at {self.spec.url} gave no verdict in {self._barren} batches in a row: {told}"
            raise PartError(problem, hint="`give_up` says how many are borne")
        count = sum(failed.values())
        logger.warning("judge %s: %d of %d questions without verdict (%s)", self.spec.model, count, len(answers), told)


@functools.cache
def _trust() -> ssl.SSLContext:
    """The certificates of this machine: read once, since that takes longer than a question."""
    return httpx2.create_ssl_context()


def _more(detail: str | None) -> str:
    return f" ({detail})" if detail else ""
