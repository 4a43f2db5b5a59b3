"""r: reward functions of verl and OpenRLHF, by one line of a recipe (hook ``rlm_rewards``).

Neither of these libraries needs to be installed. A function receives the arguments of its library, and its result is
interpreted in the same way. But an exception is reported, where some of these libraries score it 0.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Annotated, Any

from pydantic import Field

from rlm_plugins.errors import PartError
from rlm_plugins.registry.loading import await_all, call_with_accepted, import_function
from rlm_plugins.rewards.columns import text_of

Address = Annotated[str, Field(min_length=3)]
Options = dict[str, Any] | None
Log = Callable[[str, float], None]


class Verl:
    """A `compute_score` of verl, called per completion as by its naive reward manager, or once if it takes lists.

    r = compute_score(data_source, solution_str, ground_truth, extra_info), or ``score`` of the mapping it returns;
    other numbers there are logged. `ground_truth` is the column ``ground_truth``, else that in the column
    ``reward_model`` (verl's data files), else ``answer``; `data_source` is the column, else the knob.
    """

    def __init__(self, *, function: Address, data_source: str = "", options: Options = None) -> None:
        self._function, self._options = import_function(function, where="function"), dict(options or {})
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
        count = len(completions)
        nested = [row["ground_truth"] for row in reward_model] if reward_model is not None else None
        columns = {
            "data_source": data_source or [self._data_source] * count,
            "solution_str": completions,
            "ground_truth": _first("ground_truth", ground_truth, nested, answer),
            # with the keys that verl's reward manager adds, for one turn
            "extra_info": [
                {"num_turns": None, "rollout_reward_scores": {}, **(info or {})}
                for info in extra_info or [None] * count
            ],
        }
        plural = {f"{name}s": column for name, column in columns.items()}
        if "solution_strs" in set(inspect.signature(self._function).parameters):
            results = await_all([call_with_accepted(self._function, {**plural, **self._options})])[0]
        else:
            samples = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
            results = await_all([call_with_accepted(self._function, {**sample, **self._options}) for sample in samples])
        results = results if isinstance(results, list) else list(results)
        _log(log_metric, results)
        return [_score(result) for result in results]


class OpenRlhf:
    """A `reward_func` of OpenRLHF, called with `queries` (prompt and completion in one text), `prompts` and `labels`.

    r = reward_func(queries, prompts, labels), a tensor, or ``rewards`` of the mapping it returns; its ``extra_logs``
    are logged. `labels` are the column ``label``, else ``answer``. A chat prompt is the text of its messages, without
    the template tokens that OpenRLHF keeps in `queries`.
    """

    def __init__(self, *, function: Address, options: Options = None) -> None:
        self._function, self._options = import_function(function, where="function"), dict(options or {})

    def __call__(
        self,
        prompt_messages: Sequence[Any],
        completions: Sequence[str],
        label: Any = None,
        answer: Any = None,
        log_metric: Log | None = None,
    ) -> Any:
        prompts = [_prompt_text(prompt) for prompt in prompt_messages]
        queries = [prompt + text for prompt, text in zip(prompts, completions, strict=True)]
        labels = _first("label", label, answer)
        arguments = {"queries": queries, "prompts": prompts, "labels": labels, **self._options}
        result = await_all([call_with_accepted(self._function, arguments)])[0]
        if not isinstance(result, Mapping):
            return result
        _log(log_metric, [result.get("extra_logs") or {}])
        return _entry("rewards", result)


def _first(name: str, *columns: Any) -> Any:
    column = next((c for c in columns if c is not None), None)
    if column is None:
        raise PartError(
            f"the data set has no column '{name}'", hint="rename the column of right answers to this, or to `answer`"
        )
    return column


def _score(result: Any) -> Any:
    """Return the score of a result as verl does: a number, ``score`` of a mapping, the first of a tuple."""
    if isinstance(result, Mapping):
        return _entry("score", result)
    return result[0] if isinstance(result, tuple) else result


def _entry(name: str, result: Mapping[str, Any]) -> Any:
    if name not in result:
        raise PartError(f"returned {dict(result)!r:.80}", allowed=f"a mapping with '{name}', or the numbers themselves")
    return result[name]


def _log(log_metric: Log | None, results: Sequence[Any]) -> None:
    """Log the mean of every number in the mappings but ``score``."""
    mappings = [result for result in results if isinstance(result, Mapping)]
    names = dict.fromkeys(chain.from_iterable(mappings))
    names.pop("score", None)
    for name in names:
        values = [_mean(mapping[name]) for mapping in mappings if name in mapping]
        numbers = [value for value in values if value is not None]
        if log_metric is not None and numbers:
            log_metric(name, sum(numbers) / len(numbers))


def _mean(value: Any) -> float | None:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list) and value and all(isinstance(x, int | float) for x in value):
        return sum(value) / len(value)
    return float(value) if isinstance(value, int | float) else None


def _prompt_text(prompt: Any) -> str:
    return prompt if isinstance(prompt, str) else "\n".join(text_of([message]) for message in prompt)
