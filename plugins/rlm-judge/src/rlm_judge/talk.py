"""What goes to a judge and what comes back: the records that every judge and every reward speak in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class Question:
    """One thing to be judged.

    Args:
        system: What the judge is told about its office; empty: nothing.
        user: What it is asked.
        read: Its answer → the verdict, None where there is none. An answer without verdict is never cached.
        vote: Which of several answers to the same question, where they are drawn at random.
    """

    system: str
    user: str
    read: Callable[[str], float | None] = field(compare=False)
    vote: int = 0

    @property
    def messages(self) -> list[dict[str, str]]:
        """As a chat."""
        spoken = {"system": self.system, "user": self.user}
        return [{"role": role, "content": text} for role, text in spoken.items() if text]


@dataclass(frozen=True)
class Answer:
    """What came of a question.

    Args:
        verdict: As its `read` returned it; None: there is none.
        failure: Why there is none, in a word or two.
        cached: Whether it was known already.
    """

    verdict: float | None
    failure: str = ""
    cached: bool = False


@dataclass
class Bill:
    """What a batch of questions took: requests tried again, tokens read and written, money, seconds."""

    retries: float = 0
    tokens_in: float = 0
    tokens_out: float = 0
    cost: float = 0
    seconds: float = 0


class Judge(Protocol):
    """Whoever answers: a server (:mod:`rlm_judge.server`) or a model in this process (:mod:`rlm_judge.local`)."""

    async def ask(self, questions: Sequence[Question], bill: Bill) -> list[Answer]:
        """An answer to each question, in order. What fails is an answer without verdict, not an exception."""
        ...


def failures(answers: Sequence[Answer]) -> Counter[str]:
    """How often each failure happened."""
    return Counter(answer.failure for answer in answers if answer.failure)
