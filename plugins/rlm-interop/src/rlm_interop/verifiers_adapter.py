"""x and r: single-turn environments and rubrics of `verifiers` (versions 0.1 to 0.3).

A rubric of verifiers logs exceptions of its functions, and scores them 0. Here the functions are called separately,
and exceptions are reported.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, get_origin

from pydantic import Field

from rlm_plugins.errors import RecipeError
from rlm_plugins.registry.loading import await_all, call_with_accepted, import_object
from rlm_plugins.specs import EnvironmentSpec

Address = Annotated[str, Field(min_length=1)]
Options = dict[str, Any] | None
GROUP = {"states", "prompts", "completions", "answers", "tasks", "infos"}
"""Parameter names by which verifiers recognizes a function that is called once per group."""


def verifiers(*, id: Address, options: Options = None) -> EnvironmentSpec:
    """Single-turn environment of verifiers: its data set, and its evaluation data set (if any) as held-out examples.

    `id` is an installed environment (for ``verifiers.load_environment``), or the address of a function that returns one
    (``my_env:load_environment``, ``./my_env.py:load_environment``), called with `options`. Its rubric is the reward
    `verifiers` with the same `id`.
    """
    loaded = _load(id, json.dumps(options or {}, sort_keys=True))
    if not any(kind.__name__ == "SingleTurnEnv" for kind in type(loaded).__mro__):
        problem = f"'{id}' is a {type(loaded).__name__}: multi-turn environments of verifiers are not supported"
        raise RecipeError(problem, where="environment.id", allowed="a SingleTurnEnv")
    train, test = _rows(loaded.get_dataset), _rows(getattr(loaded, "get_eval_dataset", None))
    held_out = {json.dumps(row["prompt"], sort_keys=True) for row in test}
    rest = [row for row in train if json.dumps(row["prompt"], sort_keys=True) not in held_out]
    # an environment without an evaluation set returns its training set for both
    return EnvironmentSpec(train=rest, test=test) if rest else EnvironmentSpec(train=train)


class Rubric:
    """A rubric of verifiers, or the rubric of one of its environments.

    r = Σₖ wₖ · fₖ(prompt, completion, answer, state, info, task, parser, …), fₖ and wₖ its functions and weights. A
    function with plural parameter names, or annotated to return a list, is called once per group. `id` as for the
    environment `verifiers`; or the address of a rubric (``my_env:rubric``), or of a function that returns one.
    """

    def __init__(self, *, id: Address, options: Options = None) -> None:
        loaded = _load(id, json.dumps(options or {}, sort_keys=True))
        self._terms = list(_terms(getattr(loaded, "rubric", loaded)))
        if not self._terms:
            raise RecipeError(f"'{id}' has no reward functions", where="id", allowed="a rubric, or an environment")

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: list[list[dict[str, Any]]],
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float]:
        states = []
        for row, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
            example = {name: column[row] for name, column in columns.items() if isinstance(column, list)}
            defaults = {"answer": "", "task": "default"}
            info = example.get("info") or {}  # newer versions store it as JSON
            info = json.loads(info) if isinstance(info, str) else info
            state = {**defaults, **example, "info": info, "trajectory": []}
            states.append({**state, "prompt": prompt, "completion": completion})
        total = [0.0] * len(states)
        for function, weight, objects in self._terms:
            score = _group_scores if _takes_groups(function) else _scores
            scores = score(function, objects, states)
            if log_metric is not None:
                log_metric(getattr(function, "__name__", "function"), sum(scores) / len(scores))
            total = [subtotal + weight * score for subtotal, score in zip(total, scores, strict=True)]
        return total


def _scores(function: Any, objects: Mapping[str, Any], states: Sequence[Mapping[str, Any]]) -> list[float]:
    calls = [call_with_accepted(function, {**state, **objects, "state": state}) for state in states]
    return list(map(float, await_all(calls)))


def _group_scores(function: Any, objects: Mapping[str, Any], states: Sequence[Mapping[str, Any]]) -> list[float]:
    groups: list[list[Mapping[str, Any]]] = []
    for state in states:
        if not groups or groups[-1][0]["prompt"] != state["prompt"]:
            groups.append([])
        groups[-1].append(state)
    results = await_all([call_with_accepted(function, {**objects, **_group_arguments(group)}) for group in groups])
    return list(map(float, chain.from_iterable(results)))


def _group_arguments(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the arguments of a function that verifiers calls once per group."""
    names = ("prompt", "completion", "answer", "task", "info")
    columns = {f"{name}s": [state[name] for state in states] for name in names}
    return {**columns, "states": states}


def _takes_groups(function: Any) -> bool:
    signature = inspect.signature(function)
    returned = signature.return_annotation
    return bool(GROUP & set(signature.parameters)) or list in (returned, get_origin(returned))


def _terms(rubric: Any) -> Iterator[tuple[Any, float, dict[str, Any]]]:
    """Yield function, weight and further arguments; of a group of rubrics, those of each."""
    if hasattr(rubric, "rubrics"):
        for member in rubric.rubrics:
            yield from _terms(member)
        return
    functions = getattr(rubric, "funcs", None) or getattr(rubric, "reward_funcs", None) or ()
    weights = getattr(rubric, "weights", None) or getattr(rubric, "reward_weights", None) or [1.0] * len(functions)
    objects = {"parser": getattr(rubric, "parser", None), **(getattr(rubric, "class_objects", None) or {})}
    for function, weight in zip(functions, weights, strict=True):
        yield function, float(weight), objects


@functools.lru_cache(maxsize=8)
def _load(id: str, options: str) -> Any:
    """Return the object of an id, cached so that environment and reward of a recipe share it."""
    if ":" not in id:
        try:
            load = import_object("verifiers:load_environment", where="id")
        except RecipeError as error:
            allowed = "an environment of verifiers 0.1 to 0.3, or the address of a function that returns one"
            hint = "pip install 'verifiers<0.4'; later versions have task sets instead"
            raise RecipeError(error.problem, where="id", allowed=allowed, hint=hint) from error
        return load(id, **json.loads(options))
    target = import_object(id, where="id")
    is_instance = hasattr(target, "rubric") or hasattr(target, "rubrics") or hasattr(target, "funcs")
    return target if is_instance or not callable(target) else target(**json.loads(options))


def _rows(data: Callable[[], Any] | None) -> list[dict[str, Any]]:
    table = data() if data is not None else None
    return [] if table is None else [dict(row) for row in table]
