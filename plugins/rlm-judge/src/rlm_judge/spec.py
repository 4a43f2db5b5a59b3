"""Queries, answers and the recipe sections of a judge, and the judge that a section describes."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import pydantic
from pydantic import Discriminator, Field, PrivateAttr, Tag
from pydantic_core import PydanticCustomError

from rlm_plugins.equation.knobs import Count, Natural
from rlm_plugins.errors import PartError


@dataclass(frozen=True)
class Query:
    """One prompt for a judge.

    Args:
        system: System message; empty: none.
        user: User message.
        read: The judge's answer → verdict, or None if it has none. An answer without a verdict is never cached.
        vote: Index among several samples for the same prompt.
    """

    system: str
    user: str
    read: Callable[[str], float | None] = field(compare=False)
    vote: int = 0

    @property
    def messages(self) -> list[dict[str, str]]:
        contents = {"system": self.system, "user": self.user}
        return [{"role": role, "content": text} for role, text in contents.items() if text]


@dataclass(frozen=True)
class Answer:
    """The result of a query.

    Args:
        verdict: The value that `read` returned; None: there is none.
        failure: Reason for a missing verdict, in a word or two.
        cached: Whether it came from the cache.
    """

    verdict: float | None
    failure: str = ""
    cached: bool = False


@dataclass
class Usage:
    """Resources of a batch of queries: retries, tokens read and generated, cost, seconds."""

    retries: float = 0
    tokens_in: float = 0
    tokens_out: float = 0
    cost: float = 0
    seconds: float = 0


@dataclass(frozen=True)
class ModelHandle:
    """A causal language model, possibly with adapters, and its tokenizer."""

    model: Any
    tokenizer: Any


class JudgeClient(Protocol):
    """Interface of judges: a server (:mod:`rlm_judge.server`) or a model in this process (:mod:`rlm_judge.local`)."""

    async def ask(self, queries: Sequence[Query], usage: Usage) -> list[Answer]:
        """Answer each query, in order. A failure is an answer without a verdict, not an exception."""
        ...


def failures(answers: Sequence[Answer]) -> Counter[str]:
    """Count the failures by reason."""
    return Counter(answer.failure for answer in answers if answer.failure)


Instructions = Annotated[str, Field(description="Criteria for the judge, in words.")]
Template = Annotated[str | None, Field(description="Replacement of the whole prompt, with named fields in braces.")]
Reason = Annotated[bool, Field(description="Whether the judge reasons before its verdict.")]
Votes = Annotated[int, Field(ge=1, description="Number of verdicts per query, of which the mean counts.")]
Thinking = Annotated[Literal["hide", "show"], Field(description="Whether the judge sees the text before `</think>`.")]
MaxCharacters = Annotated[int, Field(ge=100, description="Longest text in the prompt; longer ones lose their middle.")]


Positive = Annotated[float, Field(gt=0)]


class _JudgeSection(pydantic.BaseModel):
    """A mapping with these keys and no others."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    max_tokens: Count = 1024


class ServerSpec(_JudgeSection):
    """A server with OpenAI's chat completions: vLLM, llama.cpp, Ollama, a hosted API.

    Args:
        url: Address up to and including the version: ``http://localhost:8000/v1``.
        model: Its name on the server.
        api_key_env: Name of the environment variable that holds the key; the key itself is never written anywhere.
        temperature: Sampling temperature; 0 is deterministic, null leaves it to the server.
        max_tokens: Longest answer in tokens. A truncated answer is no verdict.
        extra: Further keys of the request, as the server documents them.
        concurrency: Largest number of concurrent requests per process.
        requests_per_minute: Limit in any minute, over all processes.
        tokens_per_minute: Limit of tokens in any minute, estimated before and corrected after each answer.
        timeout: Seconds for one attempt, from its first byte to its last.
        retries: Attempts after the first, for transient failures: 408, 425, 429, 5xx, lost connections, partial
            answers.
        backoff: Largest wait in seconds before the first retry; it doubles with each retry, with random jitter.
        longest_wait: Longest single wait in seconds; a server that requests more has failed.
        cache: Folder for verdicts, so that no text is judged twice; processes and runs may share it.
        price_in: Price of a million input tokens, in any currency.
        price_out: Price of a million generated tokens.
        give_up: Consecutive batches without any verdict that end the run.
    """

    url: str
    model: str
    api_key_env: str | None = None
    temperature: Annotated[float, Field(ge=0)] | None = 0.0
    extra: dict[str, Any] = Field(default_factory=dict)
    concurrency: Count = 32
    requests_per_minute: Positive | None = None
    tokens_per_minute: Positive | None = None
    timeout: Positive = 60.0
    retries: Natural = 5
    backoff: Positive = 1.0
    longest_wait: Positive = 60.0
    cache: str | None = None
    price_in: Annotated[float, Field(ge=0)] = 0.0
    price_out: Annotated[float, Field(ge=0)] = 0.0
    give_up: Count = 3

    @pydantic.field_validator("url")
    @classmethod
    def _is_address(cls, url: str) -> str:
        scheme, _, rest = url.partition("://")
        if scheme not in ("http", "https") or not rest.strip("/"):
            raise _invalid("an address such as http://localhost:8000/v1")
        if "@" in rest.partition("/")[0] or "?" in rest:
            raise _invalid("an address without a password or key; put the key into a variable, named by `api_key_env`")
        return url.rstrip("/")

    @pydantic.field_validator("api_key_env")
    @classmethod
    def _is_set(cls, name: str | None) -> str | None:
        if name is not None and not os.environ.get(name):
            raise _invalid("the name of an environment variable that is set (export it before `rlm`)")
        return name

    @property
    def key(self) -> str:
        """The key, read from the environment on each access; empty without one."""
        return os.environ.get(self.api_key_env, "") if self.api_key_env else ""


class LocalSpec(_JudgeSection):
    """A model on this machine: a folder written by ``save_pretrained``, or a name on the Hugging Face hub.

    Args:
        path: Folder or name of its weights.
        max_tokens: Longest answer in tokens.
        batch_size: Queries per batch.
        device: Its device; by default the accelerator, if there is one.
    """

    path: str
    batch_size: Count = 16
    device: str | None = None


class PolicySpec(_JudgeSection):
    """The policy as its own judge: the model in training, or under evaluation.

    Args:
        policy: "base": with its adapters disabled, as before training; "current": in its current state.
        max_tokens: Longest answer in tokens.
        batch_size: Queries per batch.
    """

    policy: Literal["base", "current"]
    batch_size: Count = 16
    _handle: ModelHandle | None = PrivateAttr(None)

    def setup(self, policy: Any, results: Mapping[str, Path], tokenizer: Any) -> None:
        self._handle = ModelHandle(policy, tokenizer)

    @property
    def handle(self) -> ModelHandle | None:
        return self._handle

    @property
    def is_ready(self) -> bool:
        """True if the policy is set, with adapters to disable if its base is the judge."""
        return self._handle is not None and (self.policy == "current" or hasattr(self._handle.model, "disable_adapter"))


def _invalid(allowed: str) -> PydanticCustomError:
    return PydanticCustomError("judge", allowed)


def _kind(value: Any) -> str | None:
    keys = value.__dict__ if isinstance(value, _JudgeSection) else value
    if not isinstance(keys, Mapping):
        return None
    return next((f"with {key}" for key in ("url", "path", "policy") if key in keys), None)


Judge = Annotated[
    Annotated[ServerSpec, Tag("with url")]
    | Annotated[LocalSpec, Tag("with path")]
    | Annotated[PolicySpec, Tag("with policy")],
    Discriminator(
        _kind,
        custom_error_type="judge",
        custom_error_message="a judge: {url: …, model: …}, {path: …} or {policy: base}",
    ),
]
"""The values of the knob `judge` of this package's rewards."""


Log = Callable[[str, float], None]
Spec = ServerSpec | LocalSpec | PolicySpec

_judges: dict[str, JudgeClient] = {}


def make_judge(spec: Spec) -> JudgeClient:
    """Return the judge of a spec. Equal specs share a judge, except for the policy, which changes between runs."""
    if isinstance(spec, PolicySpec):
        from rlm_judge.local import Policy

        return Policy(spec)
    key = f"{type(spec).__name__} {spec.model_dump_json()}"
    if key not in _judges:
        _judges[key] = _construct(spec)
    return _judges[key]


def _construct(spec: ServerSpec | LocalSpec) -> JudgeClient:
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
