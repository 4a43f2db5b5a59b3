"""What went wrong in a reward: on which rows, and what it said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlm_plugins.errors import PartError, RlmError
from rlm_plugins.messages import short
from rlm_plugins.rewards.timeout import Late

SAVED = 4
"""Samples of one fault that are kept; the message says how many there were."""


class Fault(PartError):
    """A reward that failed, or returned something impossible.

    Args:
        problem: What was found, in one sentence.
        rows: The rows of the batch that have no score for it.
        sample: The one of them that it was, where that is known.
        value: What it returned.
        narrow: Whether asking again about fewer rows may tell whose fault it was.
        whole: Whether the answer as a whole was no list of scores: one row is to blame only where others are answered.
        **place: As in :class:`rlm_plugins.errors.RlmError`.

    Attributes:
        records: The samples, as ``faults.jsonl`` keeps them.
        everywhere: Whether every process raises it, at the same place.
    """

    def __init__(
        self,
        problem: str,
        *,
        rows: Sequence[int] = (),
        sample: int | None = None,
        value: Any = None,
        narrow: bool = True,
        whole: bool = False,
        **place: str,
    ) -> None:
        super().__init__(problem, **place)
        self.rows, self.sample, self.value, self.narrow, self.whole = tuple(rows), sample, value, narrow, whole
        self.records: list[dict[str, Any]] = []
        self.everywhere = False

    @classmethod
    def of(cls, error: BaseException) -> Fault:
        """What a reward raised, as a fault; a house error keeps its words."""
        if isinstance(error, Fault):
            return error
        if isinstance(error, Late):  # its traceback is ours
            return cls(f"gave {error}", narrow=False, hint="a longer `timeout` beside it, or a smaller batch")
        found = cls(f"raised {type(error).__name__}: {error}")
        if isinstance(error, RlmError):
            problem = f"{error.where}: {error.problem}" if error.where else error.problem
            found = cls(problem, allowed=error.allowed, hint=error.hint)
        found.__cause__ = error.__cause__ or error if isinstance(error, RlmError) else error
        return found

    def place(self) -> dict[str, str]:
        """What an error consists of, as text that can be sent to another process."""
        return {name: getattr(self, name) for name in ("problem", "where", "allowed", "hint")}

    def but(self, **changes: Any) -> Fault:
        """The same, with something said otherwise."""
        known = {name: getattr(self, name) for name in ("rows", "sample", "value", "narrow", "whole")}
        other = Fault(**{**self.place(), **known, **changes})
        other.__cause__ = self.__cause__
        return other

    def seen(self, label: str, columns: Mapping[str, Any], texts: Sequence[str]) -> Fault:
        """The same with its sample in the message, and its first samples as records."""
        problem = self.problem
        if self.sample is not None:
            problem += f" for sample {self.sample}, whose completion begins {short(repr(texts[self.sample]), 80)}"
        elif len(self.rows) < len(texts):
            problem += f" for samples {', '.join(map(str, self.rows[:8]))}{', …' if len(self.rows) > 8 else ''}"
        found = self.but(problem=problem)
        kept = [name for name, x in columns.items() if isinstance(x, list) and len(x) == len(texts)]
        step = getattr(columns.get("trainer_state"), "global_step", None)
        found.records = [
            {
                "step": step,
                "reward": label,
                "fault": self.problem,
                "where": self.where,
                "value": repr(self.value)[:2000],
                "sample": row,
                "text": texts[row],
                "columns": {name: _plain(columns[name][row]) for name in kept},
            }
            for row in ([self.sample] if self.sample is not None else self.rows[:SAVED])
        ]
        return found


def _plain(value: Any) -> Any:
    """What JSON can hold; everything else as Python writes it."""
    if isinstance(value, Mapping):
        return {str(name): _plain(x) for name, x in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(x) for x in value]
    return value if value is None or isinstance(value, str | int | float | bool) else repr(value)
