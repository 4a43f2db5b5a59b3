"""Failures of rewards: their messages and records over processes, and the validation of the scores.

TRL would train on a dict's keys and on infinity.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from rlm_plugins.errors import PartError, RlmError, short
from rlm_plugins.workers.distributed import gather_lists
from rlm_plugins.workers.time_limit import CallTimeout, is_of_call

SAVED = 4
"""Number of samples of one fault that are recorded; the message states how many there were."""
_COPIED_FIELDS = ("rows", "sample", "value", "retry", "invalid_list")
_REPR = reprlib.Repr()
_REPR.maxlist = _REPR.maxtuple = _REPR.maxdict = 20
_REPR.maxlevel = 4


def brief(value: object, length: int = 80) -> str:
    """Return the repr of a value, cut for messages.

    >>> brief([1.0, 2.0]), brief("a" * 100, 5)
    ('[1.0, 2.0]', "'aaaa…")
    """
    _REPR.maxstring = _REPR.maxother = _REPR.maxlong = 2 * length + 40  # reprlib keeps both ends
    try:
        text = _REPR.repr(value)
    except BaseException as error:
        return f"something whose repr raises {type(error).__name__}"
    return text if len(text) <= length else f"{text[:length]}…"


def safe_text(error: BaseException) -> str:
    """Return class and message of an error, of which 2000 characters are kept.

    >>> safe_text(ValueError("no"))
    'ValueError: no'
    """
    try:
        text = str(error)
    except BaseException as failure:
        text = f"(its message raises {type(failure).__name__})"
    return f"{type(error).__name__}: {text[:2000]}"


class Fault(PartError):
    """Error of a reward that failed, or returned an invalid score.

    Args:
        problem: One sentence.
        rows: Indices of the completions without a score.
        sample: The one of them that fails, where known.
        value: The returned value.
        retry: True if calling again on fewer completions can isolate the failing one.
        invalid_list: True if the result as a whole was no list of scores; one completion is then isolated only where
            others get scores.
        **texts: `where`, `allowed` and `hint` of :class:`rlm_plugins.errors.RlmError`.

    Attributes:
        records: Samples, as ``faults.jsonl`` has them.
        everywhere: True if every process raises it, at the same place.
    """

    def __init__(
        self,
        problem: str,
        *,
        rows: Sequence[int] = (),
        sample: int | None = None,
        value: Any = None,
        retry: bool = True,
        invalid_list: bool = False,
        **texts: str,
    ) -> None:
        super().__init__(problem, **texts)
        self.rows, self.sample, self.value = tuple(rows), sample, value
        self.retry, self.invalid_list = retry, invalid_list
        self.records: list[dict[str, Any]] = []
        self.everywhere = False

    @classmethod
    def from_error(cls, error: BaseException) -> Fault:
        """Return the fault of an error that a reward raised; an `RlmError` keeps its message."""
        if isinstance(error, Fault):
            return error
        if isinstance(error, CallTimeout):
            hint = error.hint or "a longer `timeout` beside it, a smaller batch, or `processes: 1`"
            return cls(f"gave {error}" + (f"\n{error.stack}" if error.stack else ""), retry=False, hint=hint)
        fault = cls(f"raised {safe_text(error)}")
        if isinstance(error, RlmError):
            problem = f"{error.where}: {error.problem}" if error.where else error.problem
            fault = cls(problem, allowed=error.allowed, hint=error.hint)
        fault.__cause__ = error.__cause__ or error if isinstance(error, RlmError) else error
        return fault

    def texts(self) -> dict[str, str]:
        """Return the texts of the error, which can be sent to another process."""
        return {name: getattr(self, name) for name in ("problem", "where", "allowed", "hint")}

    def replace(self, **changes: Any) -> Fault:
        """Return a copy with other fields."""
        fields = {name: getattr(self, name) for name in _COPIED_FIELDS}
        copy = Fault(**{**self.texts(), **fields, **changes})
        copy.__cause__ = self.__cause__
        return copy

    def with_samples(self, label: str, columns: Mapping[str, Any], texts: Sequence[str]) -> Fault:
        """Return a copy that names its sample in the message and has records of its first samples."""
        problem = self.problem
        if self.sample is not None:
            problem += f" for sample {self.sample}, whose completion begins {short(repr(texts[self.sample]), 80)}"
        elif len(self.rows) < len(texts):
            problem += f" for samples {', '.join(map(str, self.rows[:8]))}{', …' if len(self.rows) > 8 else ''}"
        fault = self.replace(problem=problem)
        rows = [self.sample] if self.sample is not None else self.rows[:SAVED]
        fault.records = [self._record(row, label, columns, texts) for row in rows]
        return fault

    def _record(self, row: int, label: str, columns: Mapping[str, Any], texts: Sequence[str]) -> dict[str, Any]:
        """Return one line of ``faults.jsonl``."""
        names = [name for name, x in columns.items() if isinstance(x, list) and len(x) == len(texts)]
        return {
            "step": getattr(columns.get("trainer_state"), "global_step", None),
            "reward": label,
            "fault": self.problem,
            "where": self.where,
            "value": brief(self.value, 2000),
            "sample": row,
            "text": texts[row],
            "columns": {name: _to_json(columns[name][row]) for name in names},
        }


def _to_json(value: Any) -> Any:
    """Return a value as JSON data; the repr of a value that JSON does not support."""
    if isinstance(value, Mapping):
        return {str(name): _to_json(x) for name, x in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(x) for x in value]
    return value if value is None or isinstance(value, str | int | float | bool) else brief(value, 2000)


class FaultLog:
    """Log of the rewards of one generation batch on this process.

    Attributes:
        stop: The first fault of a reward that stops the run.
        records: Samples, as ``faults.jsonl`` has them.
        seconds: Label → seconds of its call.
        rows: Label → indices of the completions without a score.
        skipped: Indices of completions to exclude from the loss.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Empty the log for the next generation batch."""
        self.stop: Fault | None = None
        self.records: list[dict[str, Any]] = []
        self.seconds: dict[str, float] = {}
        self.rows: dict[str, list[int]] = {}
        self.skipped: set[int] = set()


def raise_on_all_processes(fault: Fault | None) -> None:
    """Raise the fault of any process on all processes: otherwise the others would wait in a collective.

    Raises:
        Fault: That of this process, else that of another one; with the records of all processes.
    """
    faults: list[Any] = gather_lists([fault and (fault.texts(), fault.records)])
    failed = [(number, *pair) for number, pair in enumerate(faults) if pair]
    if not failed:
        return
    number, texts, _ = failed[0]
    raised = fault or Fault(**{**texts, "where": f"{texts['where']}, on process {number}"})
    raised.records = [{"process": n, **record} for n, _, records in failed for record in records]
    raised.everywhere = True
    raise raised


MAX_SCORE = 1e15
"""Largest reward: the sum of squares of a group must stay finite in float32, or all its advantages are 0."""


def validate_scores(returned: Any, count: int) -> list[Any]:
    """Return the result of a reward as a list of `count` entries."""
    if issubclass(type(returned), Fault):  # `isinstance` would call `__class__` of the result
        raise returned
    try:
        scores = returned.tolist() if hasattr(returned, "tolist") else returned
        is_list = isinstance(scores, Sequence) and not isinstance(scores, str | bytes | bytearray)
        entries = list(islice(scores, count + 1)) if is_list else []
        length = len(scores) if is_list else 0
    except BaseException as error:
        raise _unreadable(error, f"returned {type(returned).__name__}, which cannot be read") from error
    if not is_list:
        problem = f"returned {type(returned).__name__}: {brief(returned)}"
    elif len(entries) != count or length != count:
        problem = f"returned {length} scores for {count} completions: {brief(entries)}"
    else:
        return entries
    raise Fault(problem, value=returned, allowed=allowed(count), invalid_list=True)


def validate_score(score: Any) -> float | None:
    """Return a score as a finite float, or None: the reward does not apply.

    Raises:
        Fault: It is anything else, or the fault that stands in its place.
    """
    if issubclass(type(score), Fault):  # `isinstance` would call `__class__` of the score
        raise score
    try:
        x = _item(score)
        number = None if x is None else _number(x)
    except BaseException as error:
        raise _unreadable(error, f"returned {type(score).__name__}, which cannot be read") from error
    if x is None:
        return None
    if number is None:
        raise Fault(f"returned {brief(score)} ({type(score).__name__})", value=score)
    if not -MAX_SCORE <= number <= MAX_SCORE:  # also false for NaN
        limit = f", beyond the limit of {MAX_SCORE:g}" if -math.inf < number < math.inf else ""
        raise Fault(f"returned {brief(number)}{limit}", value=score)
    return float(number)


def plain_scores(returned: Any, count: int) -> list[float | Fault | None]:
    """Return scores as plain numbers, None and faults: objects without code of the reward."""
    return [_score_or_fault(score) for score in validate_scores(returned, count)]


def _score_or_fault(score: Any) -> float | Fault | None:
    try:
        return validate_score(score)
    except Fault as fault:
        return fault


def _unreadable(error: BaseException, problem: str) -> BaseException:
    """Return the fault of a value whose methods raise; an interruption by the user is returned unchanged."""
    return Fault(f"{problem}: {safe_text(error)}") if is_of_call(error) else error


def _item(score: Any) -> Any:
    """Return a number of torch or numpy as Python's; anything else unchanged."""
    try:
        return score.item() if hasattr(score, "item") else score
    except (TypeError, ValueError, RuntimeError):  # a tensor of several numbers
        return score


def _number(x: Any) -> int | float | None:
    """Return the value of a number without its own methods, which a subclass may replace; None for all else."""
    if isinstance(x, float):
        return float.__pos__(x)
    return int.__pos__(x) if isinstance(x, int) else None


def allowed(count: int) -> str:
    """Return the expected result, for messages."""
    return f"a list of {count} numbers (None: does not apply)"
