"""Records exchanged between rewards and judges: queries, answers, usage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


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
        """The query as chat messages."""
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


class Judge(Protocol):
    """Interface of judges: a server (:mod:`rlm_judge.server`) or a model in this process (:mod:`rlm_judge.local`)."""

    async def ask(self, queries: Sequence[Query], usage: Usage) -> list[Answer]:
        """Answer each query, in order. A failure is an answer without a verdict, not an exception."""
        ...


def failures(answers: Sequence[Answer]) -> Counter[str]:
    """Count the failures by reason."""
    return Counter(answer.failure for answer in answers if answer.failure)
