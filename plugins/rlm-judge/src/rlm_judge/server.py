"""A judge behind HTTP: many questions at once, patiently, and never an exception for what one of them met."""

from __future__ import annotations

import asyncio
import functools
import logging
import ssl
from collections.abc import Mapping, Sequence
from typing import Any

import httpx2

from rlm_judge import pace, reply
from rlm_judge.cache import Cache
from rlm_judge.reply import PASSING, SHUT, Failed, Reply
from rlm_judge.spec import ServerSpec
from rlm_judge.talk import Answer, Bill, Question, failures
from rlm_plugins.errors import PartError

logger = logging.getLogger(__name__)

LETTERS_PER_TOKEN = 4
"""For the estimate that a rate limit needs before the server has counted."""


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
            errand = _Errand(self.spec, client, lines, self._pace, self._cache, bill)
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
            self._barren = 0
            return
        told = ", ".join(f"{why}: {count}{_more(said.get(why))}" for why, count in failed.items())
        told = told.replace(self.spec.key, "•••") if self.spec.key else told
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


class _Errand:
    """The questions of one batch under way."""

    def __init__(
        self,
        spec: ServerSpec,
        client: httpx2.AsyncClient,
        lines: asyncio.Semaphore,
        line: pace.Pace,
        cache: Cache | None,
        bill: Bill,
    ) -> None:
        self._spec, self._client, self._lines, self._pace = spec, client, lines, line
        self._cache, self._bill = cache, bill
        self.said: dict[str, str] = {}  # failure → what the server said about it last

    async def run(self, question: Question) -> Answer:
        """One question, to its end."""
        request = self._request(question)
        key = {"url": self._spec.url, "vote": question.vote, **request}
        known = self._cache.get(key) if self._cache else None
        if known is not None and (verdict := question.read(known)) is not None:
            return Answer(verdict, cached=True)
        try:
            found = await self._patiently(request)
        except Failed as failed:
            self.said[failed.why] = failed.detail
            return Answer(None, failed.why)
        verdict = question.read(found.text)
        if verdict is None:
            return Answer(None, "unreadable")
        if self._cache:
            self._cache.put(key, found.text)
        return Answer(verdict)

    def _request(self, question: Question) -> dict[str, Any]:
        spec = self._spec
        longest = {} if "max_completion_tokens" in spec.extra else {"max_tokens": spec.max_tokens}
        warmth = {} if spec.temperature is None else {"temperature": spec.temperature}
        vote = {"seed": question.vote} if question.vote else {}
        return {"model": spec.model, "messages": question.messages, **longest, **warmth, **vote, **spec.extra}

    async def _patiently(self, request: Mapping[str, Any]) -> Reply:
        """Tries, waits, tries again.

        Raises:
            Failed: The last attempt.
        """
        attempt = 0
        while True:
            try:
                async with self._lines:
                    return await self._once(request)
            except Failed as failed:
                wait = pace.backoff(attempt, self._spec.backoff, self._spec.longest_wait)
                asked = failed.wait or 0.0
                if not failed.again or attempt == self._spec.retries or asked > self._spec.longest_wait:
                    raise
                if asked:
                    self._pace.hold(asked)
            attempt += 1
            self._bill.retries += 1
            await asyncio.sleep(asked + wait if asked else wait)

    async def _once(self, request: Mapping[str, Any]) -> Reply:
        letters = sum(len(message["content"]) for message in request["messages"])
        guess = letters // LETTERS_PER_TOKEN + self._spec.max_tokens
        await self._pace.turn(guess)
        try:
            async with asyncio.timeout(self._spec.timeout):
                found = reply.read(await self._body(request))
        except TimeoutError:
            raise Failed("timeout", again=True) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            again = not isinstance(error, httpx2.UnsupportedProtocol | httpx2.LocalProtocolError)
            raise Failed(type(error).__name__, again=again, detail=str(error)[:200]) from None
        if used := found.tokens_in + found.tokens_out:
            self._pace.correct(used - guess)
        self._bill.tokens_in += found.tokens_in
        self._bill.tokens_out += found.tokens_out
        self._bill.cost += (found.tokens_in * self._spec.price_in + found.tokens_out * self._spec.price_out) / 1e6
        return found

    async def _body(self, request: Mapping[str, Any]) -> bytes:
        """The body of a reply with status 200, read no further than it is believed. Redirects are not followed: the
        key would travel with them."""
        body = b""
        async with self._client.stream("POST", f"{self._spec.url}/chat/completions", json=request) as response:
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > reply.LARGEST:
                    raise Failed("reply too long", again=False)
        if response.status_code != 200:
            status = response.status_code
            wait = pace.retry_after(response.headers.get("retry-after"))
            out = b"insufficient_quota" in body
            again = status in PASSING and not out
            raise Failed(f"status {status}", again=again, wait=wait, detail=reply.complaint(body))
        return body
