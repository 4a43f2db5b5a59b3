"""r: what was written for other libraries, by one line of a recipe (hook ``rlm_rewards``). None of them is needed.

Their functions get what their libraries hand over, and what they return is taken as their libraries take it; but what
goes wrong in them is told, where some of these libraries score it 0.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from rlm_plugins.errors import PartError
from rlm_plugins.registry.import_path import borrow_function, called, settled
from rlm_plugins.rewards.columns import text_of

Address = Annotated[str, Field(min_length=3)]
Options = dict[str, Any] | None
Log = Callable[[str, float], None]


class Trl:
    """A reward function of TRL: called with `prompts`, `completions`, `completion_ids` and every column of the data.

    r = function(prompts, completions, **columns), one number or None per row. `function`: an address,
    ``trl.rewards:accuracy_reward`` or ``./mine.py:reward``; `options` are handed over with the columns. (A plugin
    offers such a function as it is.)
    """

    def __init__(self, *, function: Address, options: Options = None) -> None:
        self._function, self._options = borrow_function(function, where="function"), dict(options or {})

    def __call__(self, **columns: Any) -> Any:
        return settled([called(self._function, {**columns, **self._options})])[0]


class Verl:
    """A `compute_score` of verl, called row by row as its naive reward manager does; one that names plurals, at once.

    r = compute_score(data_source, solution_str, ground_truth, extra_info), or ``score`` of what it returns; other
    numbers there are logged. `ground_truth` is the column ``ground_truth``, else that of the column ``reward_model``
    (verl's data files), else ``answer``; `data_source` is the column, else the knob.
    """

    def __init__(self, *, function: Address, data_source: str = "", options: Options = None) -> None:
        self._function, self._options = borrow_function(function, where="function"), dict(options or {})
        self._data_source = data_source

    def __call__(
        self,
        completions: Sequence[str],
        ground_truth: Any = None,
        reward_model: Any = None,
        answer: Any = None,
        data_source: Any = None,
        extra_info: Any = None,
        log_metric: Log | None = None,
    ) -> list[Any]:
        rows = len(completions)
        of_verl = [row["ground_truth"] for row in reward_model] if reward_model is not None else None
        columns = {
            "data_source": data_source or [self._data_source] * rows,
            "solution_str": completions,
            "ground_truth": _first("ground_truth", ground_truth, of_verl, answer),
            "extra_info": [_extra(info) for info in extra_info or [None] * rows],
        }
        plural = {f"{name}s": column for name, column in columns.items()}
        if "solution_strs" in _names(self._function):
            said = settled([called(self._function, {**plural, **self._options})])[0]
        else:
            each = ({name: column[row] for name, column in columns.items()} for row in range(rows))
            said = settled([called(self._function, {**one, **self._options}) for one in each])
        said = said if isinstance(said, list) else list(said)
        _log(log_metric, said)
        return [_score(one) for one in said]


class OpenRlhf:
    """A `reward_func` of OpenRLHF: called with `queries` (prompt and completion in one text), `prompts` and `labels`.

    r = reward_func(queries, prompts, labels), a tensor, or ``rewards`` of what it returns; ``extra_logs`` are logged.
    `labels` are the column ``label``, else ``answer``. A chat prompt is the text of its messages: the template that
    OpenRLHF leaves in `queries` is not there.
    """

    def __init__(self, *, function: Address, options: Options = None) -> None:
        self._function, self._options = borrow_function(function, where="function"), dict(options or {})

    def __call__(
        self,
        prompt_messages: Sequence[Any],
        completions: Sequence[str],
        label: Any = None,
        answer: Any = None,
        log_metric: Log | None = None,
    ) -> Any:
        prompts = [_whole(prompt) for prompt in prompt_messages]
        queries = [prompt + text for prompt, text in zip(prompts, completions, strict=True)]
        labels = _first("label", label, answer)
        known = {"queries": queries, "prompts": prompts, "labels": labels, **self._options}
        said = settled([called(self._function, known)])[0]
        if not isinstance(said, Mapping):
            return said
        _log(log_metric, [said.get("extra_logs") or {}])
        return _under("rewards", said)


def _first(name: str, *columns: Any) -> Any:
    found = next((column for column in columns if column is not None), None)
    if found is None:
        raise PartError(f"the data set has no column '{name}'", hint="name the right answers so, or `answer`")
    return found


def _extra(info: Mapping[str, Any] | None) -> dict[str, Any]:
    """With what verl's reward manager adds to the column, of one turn."""
    return {"num_turns": None, "rollout_reward_scores": {}, **(info or {})}


def _names(function: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(function).parameters)


def _score(said: Any) -> Any:
    """What verl takes of a result: a number, ``score`` of a mapping, the first of a tuple."""
    if isinstance(said, Mapping):
        return _under("score", said)
    return said[0] if isinstance(said, tuple) else said


def _under(name: str, said: Mapping[str, Any]) -> Any:
    if name not in said:
        raise PartError(
            f"it returned {dict(said)!r:.80}", allowed=f"a mapping with '{name}', or the numbers themselves"
        )
    return said[name]


def _log(log_metric: Log | None, said: Sequence[Any]) -> None:
    """The mean of every other number in mappings."""
    rows = [one for one in said if isinstance(one, Mapping)]
    for name in dict.fromkeys(name for row in rows for name in row if name != "score"):
        values = [_mean(row[name]) for row in rows if name in row]
        numbers = [value for value in values if value is not None]
        if log_metric is not None and numbers:
            log_metric(name, sum(numbers) / len(numbers))


def _mean(value: Any) -> float | None:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list) and value and all(isinstance(x, int | float) for x in value):
        return sum(value) / len(value)
    return float(value) if isinstance(value, int | float) else None


def _whole(prompt: Any) -> str:
    return prompt if isinstance(prompt, str) else "\n".join(text_of([message]) for message in prompt)


GUESTS = {"trl": Trl, "verl": Verl, "openrlhf": OpenRlhf}
