"""A judge behind HTTP: concurrent requests, rate limits, retries; the failure of a single query is no exception."""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import functools
import hashlib
import json
import logging
import os
import random
import ssl
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2

from rlm_judge import reply_parsing
from rlm_judge.reply_parsing import PERMANENT_FAILURES, TRANSIENT_STATUSES, Reply, RequestFailed
from rlm_judge.spec import Answer, Query, ServerSpec, Usage, failures
from rlm_plugins.errors import PartError

_RNG = random.Random()
"""A generator of its own, so that the trainer's RNG state does not change."""


def backoff(attempt: int, first: float, longest: float) -> float:
    """Return the seconds before attempt `attempt` + 1: a random time up to first · 2^attempt, at most `longest`.

    At least half of that bound is waited, which spares an overloaded server. The rest is random, so that many requests
    that failed together are not retried together.
    """
    bound = min(longest, first * 2.0 ** min(attempt, 60))
    return bound * (0.5 + 0.5 * _RNG.random())


def retry_after(header: str | None) -> float | None:
    """Return the seconds of a ``Retry-After`` header, a number or a date; None if it is missing or malformed.

    >>> retry_after("7"), retry_after("0.5"), retry_after("soon"), retry_after("-3"), retry_after("nan")
    (7.0, 0.5, None, 0.0, None)
    """
    try:
        seconds = float(header or "")
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(header or "").timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return None
    return max(0.0, seconds) if seconds == seconds else None


class RateLimiter:
    """A limit of requests and tokens per minute; each request waits for its slot.

    Slots are spaced evenly, so no window of a minute exceeds the limit whatever the load. Several processes share it
    evenly.

    Args:
        requests: Per minute; None: no limit.
        tokens: Per minute; None: no limit.
    """

    def __init__(self, requests: float | None, tokens: float | None) -> None:
        share = int(os.environ.get("WORLD_SIZE", "1"))
        self._per_request = 60.0 * share / requests if requests else 0.0
        self._per_token = 60.0 * share / tokens if tokens else 0.0
        self._free = 0.0  # time of the next free slot, on the monotonic clock
        self._budget = 0.0  # time by which the token limit allows the tokens used so far
        self._lock = threading.Lock()

    async def acquire(self, tokens: int) -> None:
        """Wait until a request of about `tokens` tokens may be sent."""
        while (wait := self._reserve(tokens)) > 0:
            await asyncio.sleep(wait)

    def _reserve(self, tokens: int) -> float:
        """Reserve the next slot if it is free (0), else return the seconds to wait before the next attempt."""
        with self._lock:
            now = time.monotonic()
            wait = max(self._free, self._budget) - now
            if wait <= 0:
                self._free = now + self._per_request
                self._budget = now + tokens * self._per_token
            return max(0.0, wait)

    def correct(self, tokens: int) -> None:
        """Correct the last request's estimate by `tokens`."""
        with self._lock:
            self._budget += tokens * self._per_token

    def pause(self, seconds: float) -> None:
        """Pause all requests, as the server requested."""
        with self._lock:
            self._free = max(self._free, time.monotonic() + seconds)


_limiters: dict[tuple[object, ...], RateLimiter] = {}


def shared(url: str, requests: float | None, tokens: float | None) -> RateLimiter:
    """Return the rate limiter of a server, shared by all judges of this process."""
    return _limiters.setdefault((url, requests, tokens), RateLimiter(requests, tokens))


logger = logging.getLogger(__name__)


class Server:
    """A judge served by OpenAI's chat completions."""

    def __init__(self, spec: ServerSpec) -> None:
        self.spec = spec
        self._limiter = shared(spec.url, spec.requests_per_minute, spec.tokens_per_minute)
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
        messages = {failure: f" ({details[failure]})" for failure in failed if details.get(failure)}
        summary = ", ".join(f"{failure}: {count}{messages.get(failure, '')}" for failure, count in failed.items())
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


CHARACTERS_PER_TOKEN = 4
"""Used to estimate a request's tokens for the rate limit before the server reports them."""


class RetryingClient:
    """Sender of the queries of one batch."""

    def __init__(
        self,
        spec: ServerSpec,
        client: httpx2.AsyncClient,
        connections: asyncio.Semaphore,
        limiter: RateLimiter,
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
        attempt = 0
        while True:
            try:
                async with self._connections:
                    return await self._send(request)
            except RequestFailed as failed:
                wait = backoff(attempt, self._spec.backoff, self._spec.longest_wait)
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
                parsed = reply_parsing.read(await self._body(request))
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
                if len(body) > reply_parsing.MAX_BYTES:
                    raise RequestFailed("reply too long", retryable=False)
        if self._spec.key:  # error messages may quote the body, and a server may echo the key
            body = body.replace(self._spec.key.encode(), "•••".encode())
        if response.status_code != 200:
            status = response.status_code
            wait = retry_after(response.headers.get("retry-after"))
            quota_exhausted = b"insufficient_quota" in body
            retryable = status in TRANSIENT_STATUSES and not quota_exhausted
            raise RequestFailed(
                f"status {status}", retryable=retryable, wait=wait, detail=reply_parsing.error_detail(body)
            )
        return body


class Cache:
    """A folder of answers. Unreadable files count as absent, and failures to write are ignored."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder).expanduser()

    def get(self, request: Mapping[str, Any]) -> str | None:
        try:
            entry = json.loads(self._file(request).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        text = entry.get("text") if isinstance(entry, dict) else None
        return text if isinstance(text, str) else None

    def put(self, request: Mapping[str, Any], text: str) -> None:
        """Store an answer. Neither the request nor any key is written, only the request's hash."""
        file = self._file(request)
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=".", suffix=".part")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as stream:
                    json.dump({"text": text}, stream)
                os.replace(temporary, file)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise

    def _file(self, request: Mapping[str, Any]) -> Path:
        name = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
        return self._folder / name[:2] / f"{name[2:]}.json"
