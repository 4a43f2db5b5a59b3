"""x and r: environments and rubrics of `verifiers` (versions 0.1 to 0.3), their rubric on the answers of one turn.

A rubric of verifiers logs what its functions raise, and scores it 0. Here they are called one by one, and what they
raise is told.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, get_origin

from pydantic import Field

from rlm_plugins.errors import RecipeError
from rlm_plugins.registry.import_path import borrow, called, settled
from rlm_plugins.specs import EnvironmentSpec

Address = Annotated[str, Field(min_length=1)]
Options = dict[str, Any] | None
GROUP = {"states", "prompts", "completions", "answers", "tasks", "infos"}
"""Names by which verifiers tells a function that is called with a whole group."""


def verifiers(*, id: Address, options: Options = None) -> EnvironmentSpec:
    """An environment of verifiers that takes one turn: its data set; held-out rows where it has an evaluation data set.

    `id`: one that ``verifiers.load_environment`` knows (an installed environment), or the address of a function that
    makes one (``my_env:load_environment``, ``./my_env.py:load_environment``), called with `options`. Its rubric is
    the reward `verifiers` with the same `id`.
    """
    made = _loaded(id, json.dumps(options or {}, sort_keys=True))
    if not any(kind.__name__ == "SingleTurnEnv" for kind in type(made).__mro__):
        problem = f"'{id}' is a {type(made).__name__}: its turns, tools and users cannot be played here"
        raise RecipeError(problem, where="environment.id", allowed="a SingleTurnEnv")
    train, test = _rows(made.get_dataset), _rows(getattr(made, "get_eval_dataset", None))
    prompts = {json.dumps(row["prompt"], sort_keys=True) for row in test}
    rest = [row for row in train if json.dumps(row["prompt"], sort_keys=True) not in prompts]
    return (
        EnvironmentSpec(train=rest, test=test) if rest else EnvironmentSpec(train=train)
    )  # without one verifiers hands out the other


class Rubric:
    """A rubric of verifiers, or that of one of its environments.

    r = Σₖ wₖ · fₖ(prompt, completion, answer, state, info, task, parser, …), fₖ and wₖ its functions and weights; a
    function that names plurals, or is annotated to return a list, is called with whole groups. `id` as of the
    environment `verifiers`; or the address of a rubric (``my_env:rubric``), or of what makes one from `options`.
    """

    def __init__(self, *, id: Address, options: Options = None) -> None:
        made = _loaded(id, json.dumps(options or {}, sort_keys=True))
        self._terms = list(_terms(getattr(made, "rubric", made)))
        if not self._terms:
            raise RecipeError(f"'{id}' has no reward functions", where="id", allowed="a rubric, or an environment")

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float]:
        states = []
        for row, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
            given = {name: column[row] for name, column in columns.items() if isinstance(column, list)}
            known = {"answer": "", "task": "default", **given, "info": _mapping(given.get("info")), "trajectory": []}
            states.append({**known, "prompt": prompt, "completion": completion})
        total = [0.0] * len(states)
        for function, weight, objects in self._terms:
            scores = _of_groups(function, objects, states) if _plural(function) else _of_rows(function, objects, states)
            if log_metric is not None:
                log_metric(getattr(function, "__name__", "function"), sum(scores) / len(scores))
            total = [sofar + weight * score for sofar, score in zip(total, scores, strict=True)]
        return total


def _of_rows(function: Any, objects: Mapping[str, Any], states: Sequence[Mapping[str, Any]]) -> list[float]:
    return [float(x) for x in settled([called(function, {**state, **objects, "state": state}) for state in states])]


def _of_groups(function: Any, objects: Mapping[str, Any], states: Sequence[Mapping[str, Any]]) -> list[float]:
    groups: list[list[Mapping[str, Any]]] = []
    for state in states:
        if not groups or groups[-1][0]["prompt"] != state["prompt"]:
            groups.append([])
        groups[-1].append(state)
    names = ("prompt", "completion", "answer", "task", "info")
    known = [{**{f"{name}s": [s[name] for s in group] for name in names}, "states": group} for group in groups]
    said = settled([called(function, {**objects, **each}) for each in known])
    return [float(x) for scores in said for x in scores]


def _plural(function: Any) -> bool:
    signature = inspect.signature(function)
    said = signature.return_annotation
    return bool(GROUP & set(signature.parameters)) or list in (said, get_origin(said))


def _terms(rubric: Any) -> Iterator[tuple[Any, float, dict[str, Any]]]:
    """Function, weight and further arguments; of a group of rubrics, those of each."""
    if hasattr(rubric, "rubrics"):
        for each in rubric.rubrics:
            yield from _terms(each)
        return
    functions = getattr(rubric, "funcs", None) or getattr(rubric, "reward_funcs", None) or ()
    weights = getattr(rubric, "weights", None) or getattr(rubric, "reward_weights", None) or [1.0] * len(functions)
    objects = {"parser": getattr(rubric, "parser", None), **(getattr(rubric, "class_objects", None) or {})}
    for function, weight in zip(functions, weights, strict=True):
        yield function, float(weight), objects


@functools.lru_cache(maxsize=8)
def _loaded(id: str, options: str) -> Any:
    """What stands behind an id; world and reward of one recipe are handed the same."""
    if ":" not in id:
        try:
            load = borrow("verifiers:load_environment", where="id")
        except RecipeError as error:
            allowed = "an environment of verifiers 0.1 to 0.3, or the address of a function that makes one"
            hint = "pip install 'verifiers<0.4': from 0.4 on it has task sets instead"
            raise RecipeError(error.problem, where="id", allowed=allowed, hint=hint) from error
        return load(id, **json.loads(options))
    found = borrow(id, where="id")
    made = hasattr(found, "rubric") or hasattr(found, "rubrics") or hasattr(found, "funcs")
    return found if made or not callable(found) else found(**json.loads(options))


def _rows(data: Callable[[], Any] | None) -> list[dict[str, Any]]:
    found = data() if data is not None else None
    return [] if found is None else [dict(row) for row in found]


def _mapping(info: Any) -> Any:
    """Newer versions keep `info` as JSON in the data set."""
    return json.loads(info) if isinstance(info, str) and info else info or {}
