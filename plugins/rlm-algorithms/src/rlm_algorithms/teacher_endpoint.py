"""Teacher behind an OpenAI-compatible endpoint: log-probs of prompt tokens (vLLM, SGLang)."""

from __future__ import annotations

import http.client
import json
import math
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from rlm_plugins.errors import RlmError

PREFIX = "token_id:"
"""What vLLM writes before the id of a token."""
PROBES = 8
"""Sequences of the first batch that the server scores twice."""
TOLERANCE = 0.1
"""Mean difference in nats, per token, up to which two answers for the same text count as equal."""


class Endpoint:
    """Log-probs from ``POST {url}/completions`` with ``echo``, by token ids: a larger teacher on other machines.

    The first batch compares eight sequences with the same ones without their last token: a server that invents its
    numbers, or caches those of another text, gives the beginning other log-probs. Numbers, counts and, where the server
    reports them, ids are checked in every answer.

    Args:
        url: Address up to ``/v1``.
        served: Name of the model at the server; default: the first that it lists.
        timeout: Seconds to wait for an answer.
        retries: Further attempts after an error of the network or the server, after 1, 2, 4, … seconds.
        batch: Sequences per request.
        key: Environment variable that holds the key of the server.
    """

    def __init__(
        self,
        *,
        url: str,
        served: str | None = None,
        timeout: PositiveFloat = 120.0,
        retries: NonNegativeInt = 3,
        batch: PositiveInt = 16,
        key: str | None = None,
    ) -> None:
        self._url, self._served, self._timeout, self._retries = url.rstrip("/"), served, timeout, retries
        self._batch, self._key, self._is_checked = batch, key, False

    def __call__(
        self, prompt_ids: Sequence[Sequence[int]], completion_ids: Sequence[Sequence[int]], temperature: float
    ) -> list[list[float]]:
        """Return the log-prob of each token of each completion."""
        if temperature != 1:
            problem = f"the endpoint reports log-probs at temperature 1, the policy samples at {temperature:g}"
            raise RlmError(problem, where="trainer.temperature", hint="set `trainer: {temperature: 1}`")
        rows = [[*prompt, *completion] for prompt, completion in zip(prompt_ids, completion_ids, strict=True)]
        logp = self._score(rows)
        if not self._is_checked:
            self._check(rows, logp)
            self._is_checked = True
        return [x[len(prompt) :] for x, prompt in zip(logp, prompt_ids, strict=True)]

    def _check(self, rows: Sequence[list[int]], logp: Sequence[list[float]]) -> None:
        """Raise RlmError if the server gives eight beginnings other log-probs than before."""
        probes = [n for n, row in enumerate(rows) if len(row) > 3][:PROBES]
        for n, shorter in zip(probes, self._score([rows[n][:-1] for n in probes]), strict=True):
            gaps = [abs(x - y) for x, y in zip(shorter[1:], logp[n][1:-1], strict=True)]
            if sum(gaps) > TOLERANCE * len(gaps):
                problem = (
                    f"the log-probs of a text differ by {sum(gaps) / len(gaps):.2g} nats per token between answers"
                )
                raise self._error(problem, "its log-probs must depend on the text before a token alone")
        values = {x for n in probes for x in logp[n][1:]}
        if probes and len(values) == 1:
            raise self._error(f"every token has the log-prob {values.pop():g}", "it does not score the text")

    def _score(self, rows: Sequence[list[int]]) -> list[list[float]]:
        """Return the log-prob of every token of every row; of a first token 0."""
        if self._served is None:
            models = self._request("models", None).get("data") or []
            if not models:
                raise self._error("it lists no model", "give the model: `options: {served: …}`")
            self._served = str(models[0]["id"])
        result = []
        for first in range(0, len(rows), self._batch):
            batch = rows[first : first + self._batch]
            body = {"model": self._served, "prompt": batch, "echo": True, "logprobs": 1, "max_tokens": 1}
            answer = self._request("completions", {**body, "temperature": 1, "return_tokens_as_token_ids": True})
            try:
                choices = sorted(answer["choices"], key=lambda choice: choice.get("index", 0))
                pairs = zip(choices, batch, strict=True)
                result += [self._row(choice["logprobs"], row) for choice, row in pairs]
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                problem = f"its answer has no log-probs of the prompt ({type(error).__name__}: {error})"
                raise self._error(problem, "`echo` with `logprobs` is needed, as vLLM and SGLang have it") from error
        return result

    def _row(self, logprobs: Mapping[str, Any], row: Sequence[int]) -> list[float]:
        tokens, values = logprobs.get("tokens", []), logprobs["token_logprobs"]
        if not len(row) <= len(values) <= len(row) + 1:
            raise self._error(f"it returned {len(values)} log-probs for {len(row)} tokens", "it splits the text itself")
        for token, given in zip(tokens, row, strict=False):
            if str(token).startswith(PREFIX) and str(token) != f"{PREFIX}{given}":
                raise self._error(f"it scored {token} where {given} was sent", "its tokenizer is not the policy's")
        numbers = [0.0, *(float(x) for x in values[1 : len(row)])]
        if not all(math.isfinite(x) and x <= 1e-4 for x in numbers):
            raise self._error("a log-prob is above 0 or not finite", "it does not return log-probs")
        return numbers

    def _request(self, path: str, body: Mapping[str, Any] | None) -> Any:
        headers = {"Content-Type": "application/json"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {os.environ.get(self._key, '')}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}/{path}", data, headers)
        for attempt in range(self._retries + 1):
            try:
                with urllib.request.urlopen(request, timeout=self._timeout) as answer:
                    return json.loads(answer.read())
            except urllib.error.HTTPError as error:
                reason, is_final = (
                    f"it answers {error.code}: {error.read()[:200].decode(errors='replace')}",
                    error.code < 500,
                )
            except (OSError, http.client.HTTPException, ValueError) as error:  # no connection, a time limit, no JSON
                reason, is_final = f"{type(error).__name__}: {error}", False
            if is_final or attempt == self._retries:
                break
            time.sleep(2.0**attempt)
        raise self._error(reason, "start it, and continue with `rlm train --resume`: no step is lost")

    def _error(self, problem: str, hint: str) -> RlmError:
        return RlmError(f"the teacher at {self._url}: {problem}", where="teacher.model", hint=hint)
