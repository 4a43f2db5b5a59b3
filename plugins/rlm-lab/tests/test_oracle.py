"""Exact expectations of estimators, against a plain enumeration in numpy and against known results."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from rlm_lab import oracle as lab
from typer.testing import CliRunner

from rlm_plugins.cli import app
from rlm_plugins.errors import RlmError
from rlm_plugins.registry import Registry

ROOT = Path(__file__).parents[3]
RUNNER = CliRunner()
PART = """
from rlm_plugins import hookimpl


def median_baseline(rewards):
    return rewards - rewards.median()


@hookimpl
def rlm_advantages():
    return {"median_baseline": median_baseline}
"""


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry()


def measure(name: str, registry: Registry, size: int) -> lab.Entry:
    return lab.oracle(lab.equation_of(name, registry), size)


def log_probabilities(theta: np.ndarray) -> np.ndarray:
    """Return log π of every completion, without the code under test."""
    table = theta - np.log(np.exp(theta).sum(1, keepdims=True))
    steps = [
        [(["", "a", "b"].index(text[:n]), "ab$".index(text[n])) for n in range(len(text))] for text in lab.COMPLETIONS
    ]
    return np.array([sum(table[place] for place in places) for places in steps])


def gradients(theta: np.ndarray, eps: float = 1e-6) -> np.ndarray:
    """Return ∇ log π of every completion, (7, 9), by central differences."""
    columns = []
    for place in np.ndindex(theta.shape):
        step = np.zeros_like(theta)
        step[place] = eps
        columns.append((log_probabilities(theta + step) - log_probabilities(theta - step)) / (2 * eps))
    return np.array(columns).T


def test_grpo_equals_a_sum_over_all_ordered_groups(registry: Registry) -> None:
    theta = lab.logits().numpy()
    p, score = np.exp(log_probabilities(theta)), gradients(theta)
    r = np.array([float(text in ("a$", "ab", "ba")) for text in lab.COMPLETIONS])
    lengths = np.array([len(text) for text in lab.COMPLETIONS])
    mean = np.zeros(9)
    for rows in map(list, itertools.product(range(7), repeat=3)):
        advantage = (r[rows] - r[rows].mean()) / (r[rows].std(ddof=1) + 1e-4)
        mean += p[rows].prod() * (advantage / lengths[rows]) @ score[rows] / 3
    exact = (p * r) @ score
    scale = mean @ exact / (exact @ exact)
    found = measure("grpo", registry, 3)
    row = found["gradients"][0]
    assert found["value"] == pytest.approx(p @ r, abs=1e-12)
    assert row["scale"] == pytest.approx(scale, rel=1e-7)
    assert row["bias"] == pytest.approx(np.linalg.norm(mean - scale * exact) / np.linalg.norm(mean), rel=1e-6)
    assert row["bias"] > 0.01


@pytest.mark.parametrize("size", [2, 3])
def test_unbiased_estimators_are_along_the_exact_gradient(size: int, registry: Registry) -> None:
    scales = {"rloo": 1.0, "reinforce": 1 - 1 / size, "dr_grpo": (1 - 1 / size) / 2}
    for name, scale in scales.items():
        row = measure(name, registry, size)["gradients"][0]
        assert (row["bias"], row["samples"]) == (0.0, "current policy")
        assert row["scale"] == pytest.approx(scale, rel=1e-9)
        assert row["std"] > 0.5
    table = measure("rloo", registry, size)["advantages"]
    assert [mean for *_, mean in table] == pytest.approx([exact for *_, exact, _ in table])


def test_token_ratio_of_an_older_policy_is_biased_and_the_kl_is_told_from_its_estimators(registry: Registry) -> None:
    older = measure("dr_grpo", registry, 2)["gradients"][1]
    assert older["samples"] == "older policy"
    assert older["bias"] > 0.05
    (penalty,) = measure("grpo", registry, 2)["penalties"]
    assert penalty["mean"] == pytest.approx(penalty["kl"], abs=1e-12)  # k3 is unbiased in value
    assert penalty["bias"] > 0.01  # and not in its gradient


def test_what_cannot_be_enumerated_and_unknown_names_are_errors(registry: Registry) -> None:
    with pytest.raises(RlmError, match="requires `values`"):
        measure("ppo", registry, 2)
    with pytest.raises(RlmError, match="samples no completions"):
        lab.equation_of("sft", registry)
    with pytest.raises(RlmError, match="unknown algorithm or part 'grppo'"):
        lab.equation_of("grppo", registry)


def test_the_command_measures_a_part_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "median.py"
    file.write_text(PART)
    command = ["explain", "median_baseline", "--bias", "--load", str(file), "--group", "3"]
    result = RUNNER.invoke(app, [*command, "--json"])
    assert result.exit_code == 0, result.output
    row = json.loads(result.stdout)["median_baseline"]["gradients"][0]
    assert 0.5 < row["scale"] < 1
    text = RUNNER.invoke(app, command).stdout
    assert "r − E[r]  mean Â" in text
    assert "in `reinforce`: " in text
    assert "advantage median_baseline, policy_loss reinforce, aggregator" in text


def test_the_command_measures_the_algorithm_of_a_recipe() -> None:
    command = ["explain", "--bias", "--group", "2", "--json"]
    result = RUNNER.invoke(app, [*command, str(ROOT / "recipes/lessons/06-format.yaml"), "grpo"])
    assert result.exit_code == 0, result.output
    of_recipe, of_name = json.loads(result.stdout).values()
    assert of_recipe == of_name
    assert "measures algorithms and parts by name" in RUNNER.invoke(app, command).output
    assert "luffy cannot be measured: a term is for another" in RUNNER.invoke(app, [*command, "luffy"]).output
