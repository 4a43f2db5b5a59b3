"""Who judges, as a recipe says it: a server, a model on this machine, or the policy itself. Nothing is opened here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Discriminator, Field, PrivateAttr, Tag
from pydantic_core import PydanticCustomError

from rlm_judge.lending import Lent

Positive = Annotated[float, Field(gt=0)]
Natural = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]


class _Keys(pydantic.BaseModel):
    """A mapping whose keys are these and no others."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    max_tokens: Count = 1024


class ServerSpec(_Keys):
    """A server that speaks OpenAI's chat completions: vLLM, llama.cpp, Ollama, a hosted API.

    Args:
        url: Up to and with the version: ``http://localhost:8000/v1``.
        model: As the server calls it.
        api_key_env: Name of the environment variable that holds the key; the key itself is never written anywhere.
        temperature: 0 judges the same twice; null leaves it to the server.
        max_tokens: Longest answer. One that is cut off is no verdict.
        extra: Further keys of the request, as the server documents them.
        concurrency: Requests under way at once, per process.
        requests_per_minute: Never more than this in any minute, over all processes.
        tokens_per_minute: The same for tokens, estimated before and corrected after each answer.
        timeout: Seconds for one attempt, from its first byte to its last.
        retries: Attempts after the first, for what may pass: 408, 425, 429, 5xx, lost connections, half answers.
        backoff: Seconds before the first retry, at most; they double each time, and chance takes a share of them.
        longest_wait: No single wait is longer; a server that asks for more has failed.
        cache: Folder for verdicts, so that no text is judged twice; may be shared by processes and runs.
        price_in: Of a million tokens read, in any currency.
        price_out: Of a million tokens written.
        give_up: Batches in a row without a single verdict that end the run.
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
            raise _wrong("an address such as http://localhost:8000/v1")
        if "@" in rest.partition("/")[0] or "?" in rest:
            raise _wrong("an address without a password or key in it: name a variable in `api_key_env`")
        return url.rstrip("/")

    @pydantic.field_validator("api_key_env")
    @classmethod
    def _is_set(cls, name: str | None) -> str | None:
        if name is not None and not os.environ.get(name):
            raise _wrong("the name of an environment variable that is set (export it before `rlm`)")
        return name

    @property
    def key(self) -> str:
        """The key, read from the environment whenever it is needed; empty without one."""
        return os.environ.get(self.api_key_env, "") if self.api_key_env else ""


class LocalSpec(_Keys):
    """A model on this machine: a folder written by ``save_pretrained``, or a name on the Hugging Face hub.

    Args:
        path: Where its weights are.
        max_tokens: Longest answer.
        batch_size: Questions answered at once.
        device: Where it runs; by default on the accelerator, where there is one.
    """

    path: str
    batch_size: Count = 16
    device: str | None = None


class PolicySpec(_Keys):
    """The policy judges itself: whichever model is trained, or judged, at the time.

    Args:
        policy: "base": with its adapters off, as it was before training; "current": as it is now.
        max_tokens: Longest answer.
        batch_size: Questions answered at once.
    """

    policy: Literal["base", "current"]
    batch_size: Count = 16
    _lent: Lent | None = PrivateAttr(None)

    def setup(self, policy: Any, results: Mapping[str, Path], tokenizer: Any) -> None:
        """The policy, before its first score."""
        self._lent = Lent(policy, tokenizer)

    @property
    def lent(self) -> Lent | None:
        """The policy; None before it was met."""
        return self._lent

    @property
    def can_judge(self) -> bool:
        """Whether the policy is there, with adapters to switch off if its base is to judge."""
        return self._lent is not None and (self.policy == "current" or hasattr(self._lent.model, "disable_adapter"))


def _wrong(allowed: str) -> PydanticCustomError:
    return PydanticCustomError("judge", allowed)


def _kind(value: Any) -> str | None:
    named = value if isinstance(value, Mapping) else value.__dict__ if isinstance(value, _Keys) else {}
    return next((f"with {key}" for key in ("url", "path", "policy") if key in named), None)


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
"""What the knob `judge` of every reward here may be."""
