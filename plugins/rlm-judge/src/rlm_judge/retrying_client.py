"""Requests to a server with cache, rate limit and retries."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx2

from rlm_judge import rate_limit, reply
from rlm_judge.cache import Cache
from rlm_judge.records import Answer, Query, Usage
from rlm_judge.reply import TRANSIENT_STATUSES, Reply, RequestFailed
from rlm_judge.spec import ServerSpec

CHARACTERS_PER_TOKEN = 4
"""Used to estimate a request's tokens for the rate limit before the server reports them."""


class RetryingClient:
    """Sender of the queries of one batch."""

    def __init__(
        self,
        spec: ServerSpec,
        client: httpx2.AsyncClient,
        connections: asyncio.Semaphore,
        limiter: rate_limit.RateLimiter,
        cache: Cache | None,
        usage: Usage,
    ) -> None:
        self._spec, self._client, self._connections, self._limiter = spec, client, connections, limiter
        self._cache, self._usage = cache, usage
        self.details: dict[str, str] = {}  # failure → the server's last message about it

    async def run(self, query: Query) -> Answer:
        """Answer one query: from the cache, or by requests until success or final failure."""
        request = self._request(query)
        key = {"url": self._spec.url, "vote": query.vote, **request}
        cached = self._cache.get(key) if self._cache else None
        if cached is not None and (verdict := query.read(cached)) is not None:
            return Answer(verdict, cached=True)
        try:
            server_reply = await self._send_with_retries(request)
        except RequestFailed as failed:
            self.details[failed.why] = failed.detail
            return Answer(None, failed.why)
        verdict = query.read(server_reply.text)
        if verdict is None:
            return Answer(None, "unreadable")
        if self._cache:
            self._cache.put(key, server_reply.text)
        return Answer(verdict)

    def _request(self, query: Query) -> dict[str, Any]:
        spec = self._spec
        token_limit = {} if "max_completion_tokens" in spec.extra else {"max_tokens": spec.max_tokens}
        temperature = {} if spec.temperature is None else {"temperature": spec.temperature}
        vote = {"seed": query.vote} if query.vote else {}
        return {"model": spec.model, "messages": query.messages, **token_limit, **temperature, **vote, **spec.extra}

    async def _send_with_retries(self, request: Mapping[str, Any]) -> Reply:
        """Send a request until it succeeds, with waits between attempts."""
        attempt = 0
        while True:
            try:
                async with self._connections:
                    return await self._send(request)
            except RequestFailed as failed:
                wait = rate_limit.backoff(attempt, self._spec.backoff, self._spec.longest_wait)
                requested_wait = failed.wait or 0.0
                if not failed.retryable or attempt == self._spec.retries or requested_wait > self._spec.longest_wait:
                    raise
                if requested_wait:
                    self._limiter.pause(requested_wait)
            attempt += 1
            self._usage.retries += 1
            await asyncio.sleep(requested_wait + wait if requested_wait else wait)

    async def _send(self, request: Mapping[str, Any]) -> Reply:
        num_characters = sum(len(message["content"]) for message in request["messages"])
        estimated_tokens = num_characters // CHARACTERS_PER_TOKEN + self._spec.max_tokens
        await self._limiter.acquire(estimated_tokens)
        try:
            async with asyncio.timeout(self._spec.timeout):
                parsed = reply.read(await self._body(request))
        except RequestFailed as failed:
            self._add_usage(*failed.spent)
            raise
        except TimeoutError:
            raise RequestFailed("timeout", retryable=True) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            retryable = not isinstance(error, httpx2.UnsupportedProtocol | httpx2.LocalProtocolError)
            raise RequestFailed(type(error).__name__, retryable=retryable, detail=str(error)[:200]) from None
        if used := parsed.tokens_in + parsed.tokens_out:
            self._limiter.correct(used - estimated_tokens)
        self._add_usage(parsed.tokens_in, parsed.tokens_out)
        return parsed

    def _add_usage(self, tokens_in: int, tokens_out: int) -> None:
        self._usage.tokens_in += tokens_in
        self._usage.tokens_out += tokens_out
        self._usage.cost += (tokens_in * self._spec.price_in + tokens_out * self._spec.price_out) / 1e6

    async def _body(self, request: Mapping[str, Any]) -> bytes:
        """Return the body of a reply with status 200, read up to a size limit.

        Redirects are not followed, because the key would travel with them.
        """
        body = b""
        async with self._client.stream("POST", f"{self._spec.url}/chat/completions", json=request) as response:
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > reply.MAX_BYTES:
                    raise RequestFailed("reply too long", retryable=False)
        if self._spec.key:  # error messages may quote the body, and a server may echo the key
            body = body.replace(self._spec.key.encode(), "•••".encode())
        if response.status_code != 200:
            status = response.status_code
            wait = rate_limit.retry_after(response.headers.get("retry-after"))
            quota_exhausted = b"insufficient_quota" in body
            retryable = status in TRANSIENT_STATUSES and not quota_exhausted
            raise RequestFailed(f"status {status}", retryable=retryable, wait=wait, detail=reply.error_detail(body))
        return body
