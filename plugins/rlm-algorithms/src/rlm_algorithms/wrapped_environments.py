"""x: environments that change the examples of another one; registered by `environments`."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from rlm_plugins.equation.knobs import Count
from rlm_plugins.errors import RecipeError
from rlm_plugins.registry.registry import Registry
from rlm_plugins.specs import EnvironmentSpec


def held_out_questions(*, base: str, knobs: dict[str, Any] | None = None, rows: Count | None = None) -> EnvironmentSpec:
    """Test-time training: the held-out examples of another environment are also the training examples.

    For rewards without labels, such as `majority_vote` in TTRL (arXiv 2504.16084), which adapts to the very questions
    that it is judged on: ``{name: test_time, base: dataset, knobs: {path: …, test_split: test}}``. `rows`: only
    the first of them. Their labels stay in the data set for ``evaluation.metric``; a reward of them with a `weight`
    would train on the test set.
    """
    inner = _built(base, knobs)
    held_out = [dict(example) for example in inner.test][:rows]
    if not held_out:
        problem = f"'{base}' has no held-out examples"
        raise RecipeError(problem, where="environment.knobs", hint="`test_rows` or `test_split` of that environment")
    return EnvironmentSpec(train=held_out, test=held_out, environment=inner.environment, tools=inner.tools)


def budgets(
    *,
    base: str,
    knobs: dict[str, Any] | None = None,
    low: Count = 100,
    high: Count = 4000,
    step: Count = 1,
    text: str = " Think for {tokens} tokens.",
    seed: int = 0,
) -> EnvironmentSpec:
    """Another environment with a length in tokens drawn for each prompt, and written into it.

    n_gold ~ U(low, low + step, …, high); `text` with it ends the prompt, the last message of a conversation. The column
    ``target_length`` holds n_gold for the rewards `l1_exact` and `l1_max`. L1, arXiv 2503.04697: 100 to 4000. The draw
    depends on `seed` and the number of the example.

    Raises:
        RecipeError: `low` is above `high`, or `text` has no ``{tokens}``.
    """
    if low > high:
        raise RecipeError(f"got low {low} above high {high}", where="environment.low")
    if "{tokens}" not in text:
        raise RecipeError("the text does not say how many tokens", where="environment.text", allowed="with {tokens}")
    return with_budgets(_built(base, knobs), range(low, high + 1, step), text, seed)


def with_budgets(spec: EnvironmentSpec, lengths: Sequence[int], text: str, seed: int) -> EnvironmentSpec:
    """Return `spec` with a length drawn for each example: in its prompt, and as the column ``target_length``."""

    def with_lengths(rows: Any, name: str) -> list[dict[str, Any]]:
        rng = random.Random(f"budgets {seed} {name}")
        return [_with_budget(row, text, rng.choice(lengths)) for row in rows]

    return replace(spec, train=with_lengths(spec.train, "train"), test=with_lengths(spec.test, "test"))


def _with_budget(row: Any, text: str, tokens: int) -> dict[str, Any]:
    prompt, end = row["prompt"], text.format(tokens=tokens)
    if isinstance(prompt, str):
        return {**row, "prompt": prompt + end, "target_length": tokens}
    *before, last = prompt
    return {**row, "prompt": [*before, {**last, "content": last["content"] + end}], "target_length": tokens}


def _built(base: str, knobs: dict[str, Any] | None) -> EnvironmentSpec:
    """Return another environment, of this package or of an installed one."""
    part = Registry().find("rlm_environments", base, where="environment.base")
    return cast(EnvironmentSpec, part.bind(knobs or {}, where="environment.knobs").call({}))
