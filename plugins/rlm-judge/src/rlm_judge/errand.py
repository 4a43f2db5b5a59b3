"""One question on its way to a server and back: known already, or asked until it is answered or hopeless."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx2

from rlm_judge import pace, reply
from rlm_judge.cache import Cache
from rlm_judge.reply import PASSING, Failed, Reply
from rlm_judge.spec import ServerSpec
from rlm_judge.talk import Answer, Bill, Question

LETTERS_PER_TOKEN = 4
"""For the estimate that a rate limit needs before the server has counted."""


class Errand:
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
        except Failed as failed:
            self._pay(*failed.spent)
            raise
        except TimeoutError:
            raise Failed("timeout", again=True) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            again = not isinstance(error, httpx2.UnsupportedProtocol | httpx2.LocalProtocolError)
            raise Failed(type(error).__name__, again=again, detail=str(error)[:200]) from None
        if used := found.tokens_in + found.tokens_out:
            self._pace.correct(used - guess)
        self._pay(found.tokens_in, found.tokens_out)
        return found

    def _pay(self, tokens_in: int, tokens_out: int) -> None:
        self._bill.tokens_in += tokens_in
        self._bill.tokens_out += tokens_out
        self._bill.cost += (tokens_in * self._spec.price_in + tokens_out * self._spec.price_out) / 1e6

    async def _body(self, request: Mapping[str, Any]) -> bytes:
        """The body of a reply with status 200, read no further than it is believed. Redirects are not followed: the
        key would travel with them."""
        body = b""
        async with self._client.stream("POST", f"{self._spec.url}/chat/completions", json=request) as response:
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > reply.LARGEST:
                    raise Failed("reply too long", again=False)
        if self._spec.key:  # a server that echoes it is not quoted
            body = body.replace(self._spec.key.encode(), "•••".encode())
        if response.status_code != 200:
            status = response.status_code
            wait = pace.retry_after(response.headers.get("retry-after"))
            out = b"insufficient_quota" in body
            again = status in PASSING and not out
            raise Failed(f"status {status}", again=again, wait=wait, detail=reply.complaint(body))
        return body
