"""A judge behind HTTP: concurrent requests, retries, and no exception for the failure of a single query."""

from __future__ import annotations

import asyncio
import functools
import logging
import ssl
from collections.abc import Mapping, Sequence

import httpx2

from rlm_judge import rate_limit
from rlm_judge.cache import Cache
from rlm_judge.records import Answer, Query, Usage, failures
from rlm_judge.reply import PERMANENT_FAILURES
from rlm_judge.retrying_client import RetryingClient
from rlm_judge.spec import ServerSpec
from rlm_plugins.errors import PartError

logger = logging.getLogger(__name__)


class Server:
    """A judge served by OpenAI's chat completions.

    Args:
        spec: Its section of the recipe.
    """

    def __init__(self, spec: ServerSpec) -> None:
        self.spec = spec
        self._limiter = rate_limit.shared(spec.url, spec.requests_per_minute, spec.tokens_per_minute)
        self._cache = Cache(spec.cache) if spec.cache else None
        self._batches_without_verdict = 0  # consecutive batches

    async def ask(self, queries: Sequence[Query], usage: Usage) -> list[Answer]:
        """Answer each query; equal ones are sent once.

        Raises:
            PartError: The server rejects all of them (key, model, address), or `give_up` batches in a row had no
                verdict.
        """
        unique = list(dict.fromkeys(queries))
        async with self._client() as client:
            connections = asyncio.Semaphore(self.spec.concurrency)
            sender = RetryingClient(self.spec, client, connections, self._limiter, self._cache, usage)
            answers = dict(zip(unique, await asyncio.gather(*map(sender.run, unique)), strict=True))
        self._report_failures(list(answers.values()), sender.details)
        return [answers[query] for query in queries]

    def _client(self) -> httpx2.AsyncClient:
        # one per batch: a client belongs to an event loop, and evaluation and training use different ones
        limits = httpx2.Limits(max_connections=self.spec.concurrency)
        headers = {"Accept-Encoding": "identity"}  # a compressed reply could expand without bound
        if self.spec.key:
            headers["Authorization"] = f"Bearer {self.spec.key}"
        verify = _trust() if self.spec.url.startswith("https") else False
        return httpx2.AsyncClient(headers=headers, limits=limits, timeout=None, verify=verify)

    def _report_failures(self, answers: Sequence[Answer], details: Mapping[str, str]) -> None:
        """Log the failures of a batch, and raise if the judge is permanently unavailable."""
        failed = failures(answers)
        if not failed:
            self._batches_without_verdict = 0 if answers else self._batches_without_verdict
            return
        summary = ", ".join(
            f"{failure}: {count}{_parenthesized(details.get(failure))}" for failure, count in failed.items()
        )
        no_verdict = sum(failed.values()) == len(answers)
        self._batches_without_verdict = self._batches_without_verdict + 1 if no_verdict else 0
        if no_verdict and all(failure in PERMANENT_FAILURES for failure in failed):
            problem = f"the judge at {self.spec.url} rejects every request: {summary}"
            raise PartError(problem, hint="check `url`, `model` and `api_key_env`")
        if self._batches_without_verdict >= self.spec.give_up:
            count = self._batches_without_verdict
            problem = f"the judge at {self.spec.url} gave no verdict in {count} batches in a row: {summary}"
            raise PartError(problem, hint="`give_up` sets the limit")
        count = sum(failed.values())
        logger.warning("judge %s: %d of %d queries without verdict (%s)", self.spec.model, count, len(answers), summary)


@functools.cache
def _trust() -> ssl.SSLContext:
    """Return this machine's certificates; cached, since reading them takes longer than a request."""
    return httpx2.create_ssl_context()


def _parenthesized(detail: str | None) -> str:
    return f" ({detail})" if detail else ""
