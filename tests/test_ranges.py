"""Numbers that cannot be meant are refused by name; the ends of every range are accepted."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.compose import compose
from rlm_plugins.recipe.document import load
from rlm_plugins.recipe.ranges import RANGES, Range, check_values, problem
from rlm_plugins.registry import Registry

IMPLAUSIBLE = Path(__file__).parent / "data" / "implausible_values.yaml"
RECIPE = """\
model: {name: scratch, lora: {r: 4}}
environment: {name: addition, train_rows: 8, test_rows: 2}
rewards: [accuracy, length]
algorithm: grpo
trainer: {learning_rate: 1e-6}
"""


def implausible() -> list[tuple[str, Any]]:
    listed = yaml.safe_load(IMPLAUSIBLE.read_text())
    return [(key, value) for key, values in listed.items() for value in values]


def accepted(folder: Path, values: list[tuple[str, Any]]) -> tuple[list[str], list[str]]:
    """Return the overrides that a recipe accepts, and those whose error names none of their keys."""
    file = folder / "r.yaml"
    file.write_text(RECIPE)
    registry = Registry()
    passed, unnamed = [], []
    for key, value in values:
        override = f"{key}={json.dumps(value).replace('NaN', '.nan').replace('Infinity', '.inf')}"
        try:
            compose(load(file, [override]), registry, build_environment=False)
        except RecipeError as error:
            names = {key.split(".")[-1], *(value if isinstance(value, dict) else ())}
            names |= {name for each in value for name in each} if isinstance(value, list) else set()
            unnamed += [] if any(name in str(error) for name in names) else [f"{override}: {error}"]
        else:
            passed.append(override)
    return passed, unnamed


def test_value_out_of_range_is_rejected(tmp_path: Path) -> None:
    values = implausible()
    assert len(values) >= 250
    assert accepted(tmp_path, values) == ([], [])


def test_range_includes_its_ends() -> None:
    for key, limits in RANGES.items():
        for end, excluded in ((limits.low, limits.above), (limits.high, limits.below)):
            if math.isfinite(end):
                assert (problem(key, end)[0] == "") is not excluded, key
        assert limits.also is None or not problem(key, limits.also)[0], key
        assert problem(key, math.nan)[0], key
        assert problem(key, True) == problem(key, "text") == problem(key, None) == ("", "")


def test_labels_of_the_user_are_no_keys() -> None:
    """A mapping inside a knob has names of rewards or criteria, which may be those of settings."""
    body = {"algorithm": {"name": "x", "advantage": {"name": "per_reward", "weights": {"r": 0.0, "seed": -1}}}}
    check_values(body, ())
    with pytest.raises(RecipeError, match=r"algorithm.advantage.eps: expected 0 or more, got the number -1"):
        check_values({"algorithm": {"advantage": {"eps": -1}}}, ())
    with pytest.raises(RecipeError, match=r"stages\[1\].rewards\[0\].low: expected `low` not larger than `high`"):
        check_values({"rewards": [{"low": 2, "high": 1}]}, ("stages", 1))


def test_a_message_names_the_end_that_is_exceeded() -> None:
    limits = Range(0, 1_000_000, above=True)
    assert (limits.wanted(0), limits.wanted(1e7)) == ("more than 0", "1,000,000 or less")
    assert problem("adam_beta2", 1.48)[0] == "expected less than 1, got the number 1.48"
