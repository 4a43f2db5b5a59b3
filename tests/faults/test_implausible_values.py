"""Values of the right type but implausible size are refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.compose import compose
from rlm_plugins.recipe.document import load
from rlm_plugins.registry import Registry

VALUES = Path(__file__).parents[1] / "data" / "implausible_values.yaml"
RECIPE = """\
model: {name: scratch, lora: {r: 4}}
environment: {name: addition, train_rows: 8, test_rows: 2}
rewards: [accuracy, length]
algorithm: grpo
trainer: {learning_rate: 1e-6}
"""


@pytest.mark.faults(group="values")
def test_value_out_of_range_is_rejected(tmp_path: Path, cases: Any) -> None:
    file, registry = tmp_path / "r.yaml", Registry()
    file.write_text(RECIPE)
    listed = yaml.safe_load(VALUES.read_text())
    values = [(key, value) for key, of_key in listed.items() for value in of_key]
    assert len(values) >= 175
    for key, value in values:
        override = f"{key}={json.dumps(value).replace('NaN', '.nan').replace('Infinity', '.inf')}"
        with cases(override):
            with pytest.raises(RecipeError) as error:
                compose(load(file, [override]), registry, build_environment=False)
            assert any(name in str(error.value) for name in named(key, value)), error.value


def named(key: str, value: Any) -> set[str]:
    """Return the names of which the message must have one: the key, or the keys of a mapping that is the value."""
    mappings = [value] if isinstance(value, dict) else value if isinstance(value, list) else []
    return {key.split(".")[-1]} | {name for mapping in mappings for name in mapping}
