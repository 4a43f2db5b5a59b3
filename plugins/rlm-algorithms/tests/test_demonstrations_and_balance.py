"""Trajectory balance, prefixes of demonstrations, and the algorithms of this package."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rlm_algorithms import ALGORITHMS, prefixes
from rlm_algorithms.policy_losses import trajectory_balance

from rlm_plugins import recipe
from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.equation import Equation
from rlm_plugins.equation.step import objective, with_own_step_batch
from rlm_plugins.errors import PartError
from rlm_plugins.registry import Registry
from rlm_plugins.report.objective_text import slots_of
from rlm_plugins.run.train import train


def test_flowrl_equals_the_formula_of_its_paper() -> None:
    """Value and gradient of two groups of two completions are compared by sequence."""
    rng = torch.Generator().manual_seed(0)
    logp, old, ref = (-torch.rand(4, 3, generator=rng, dtype=torch.float64) for _ in range(3))
    mask = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 1]]).bool()
    group, advantages = torch.tensor([0, 1, 0, 1]), torch.tensor([[0.5], [-0.7], [-0.5], [0.7]], dtype=torch.float64)
    counts = {"num_sequences": torch.tensor(4.0), "num_sequences_all": torch.tensor(4.0)}
    batch = Batch(group=group, mask=mask, old_logp=old, ref_logp=ref, advantages=advantages, step=0, **counts)
    equation = Equation.from_slots(slots_of(ALGORITHMS["flowrl"], Registry()))

    leaf = logp.clone().requires_grad_()
    actual = objective(with_own_step_batch(replace(batch, logp=leaf)), equation)
    (gradient,) = torch.autograd.grad(actual, leaf)

    expected = logp.clone().requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    lengths = mask.sum(1).tolist()
    for i in range(4):
        pair = [j for j in range(4) if group[j] == group[i]]
        log_z = sum((15 * advantages[j, 0] + (ref - old)[j, : lengths[j]].mean()).item() for j in pair) / 2
        own = slice(0, lengths[i])
        weight = math.exp((logp - old)[i, own].sum().item())
        delta = log_z + expected[i, own].mean() - 15 * advantages[i, 0] - ref[i, own].mean()
        total = total + min(max(weight, 0.8), 1.2) * delta**2 / 4
    torch.testing.assert_close(actual, total)
    torch.testing.assert_close(gradient, torch.autograd.grad(total, expected)[0])


def test_balanced_policy_has_no_gradient() -> None:
    """π ∝ π_ref exp(β Â) over the completions of a prompt: the loss is 0, and so is its gradient."""
    advantages = torch.tensor([[1.0], [-1.0]])
    ref = torch.tensor([[0.5], [0.5]]).log()
    logp = (ref + 2 * advantages).log_softmax(0).requires_grad_()
    mask = torch.ones(2, 1, dtype=torch.bool)
    step = Batch(group=torch.zeros(2).long(), mask=mask, old_logp=logp.detach(), ref_logp=ref, advantages=advantages)
    rows = torch.tensor([0, 1])
    loss = trajectory_balance(logp, ref, torch.ones(2, 1), advantages, mask, step, rows, beta=2.0)
    torch.testing.assert_close(loss.detach(), torch.zeros(2, 1))
    torch.testing.assert_close(torch.autograd.grad(loss.sum(), logp)[0], torch.zeros(2, 1))


class Model:
    """Model whose entropy at a token decreases with the id of the previous token."""

    device = torch.device("cpu")
    training = False

    def __call__(self, input_ids: torch.Tensor, **_: Any) -> Any:
        peak = torch.nn.functional.one_hot(input_ids % 10, 10)
        return SimpleNamespace(logits=peak * (1.0 + input_ids).unsqueeze(-1))

    def eval(self) -> None: ...

    def train(self, mode: bool = True) -> None: ...

    def modules(self) -> list[Any]:
        return []


def trainer() -> Any:
    return SimpleNamespace(
        model=Model(),
        prompt_ids=lambda prompts: [[9] for _ in prompts],
        answer_ids=lambda prompt, text: [int(x) for x in text] + [7],
    )


def continued(rows: list[dict[str, Any]], **knobs: Any) -> dict[str, Any]:
    count = len(rows)
    starts: list[Any] = []

    def generate(prompts: Any, prefixes: Any) -> list[list[int]]:
        starts.extend(prefixes)
        return [[8, 8] for _ in prompts]

    arguments = (["p"] * count, rows, [0] * count, generate)
    return prefixes(*arguments, step=3, seed=0, trainer=trainer(), **knobs) | {"starts": starts}


def test_prefix_is_continued_and_trained_where_uncertain() -> None:
    found = continued([{"demonstration": "31245"}], low=0.9, high=0.9, trained=0.4)
    assert found["starts"] == [[3, 1, 2, 4, 5]]
    assert found["completion_ids"] == [[3, 1, 2, 4, 5, 8, 8]]
    # before the tokens stand 9, 3, 1, 2, 4: the entropy is highest after 1 and 2, so for the third and fourth
    assert found["mask"] == [[False, False, True, True, False, True, True]]


def test_row_without_demonstration_is_left_to_the_policy() -> None:
    assert continued([{"demonstration": ""}])["completion_ids"] == [None]
    with pytest.raises(PartError, match="no column 'demonstration'"):
        continued([{}])
    with pytest.raises(PartError, match="got int in the column"):
        continued([{"demonstration": 3}])


def test_first_text_of_a_list_is_the_demonstration() -> None:
    assert continued([{"demonstration": ["312", "4"]}], low=1.0, high=1.0)["starts"] == [[3, 1, 2]]
    assert continued([{"demonstration": []}])["completion_ids"] == [None]


def test_draw_is_within_its_bounds_and_repeatable() -> None:
    rows = [{"demonstration": "1" * 39}] * 50
    lengths = [len(start) for start in continued(rows, low=0.25, high=0.5)["starts"]]
    assert min(lengths) >= 10
    assert max(lengths) <= 20
    assert lengths == [len(start) for start in continued(rows, low=0.25, high=0.5)["starts"]]


RECIPE = """
model: {name: scratch, layers: 1, hidden: 16, heads: 2, intermediate: 32}
environment: {name: addition, digits: 1, train_rows: 16, test_rows: 0}
rewards: [length]
trainer:
  max_steps: 2
  num_generations: 4
  per_device_train_batch_size: 8
  max_completion_length: 40
  learning_rate: 1e-2
  gradient_checkpointing: false
  save_strategy: "no"
"""


@pytest.mark.parametrize(
    "name", ["flowrl", *(pytest.param(name, marks=pytest.mark.full) for name in ("prefix_rft", "relift"))]
)
def test_two_steps_of_training(name: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    file = tmp_path / "recipe.yaml"
    file.write_text(f"{RECIPE}algorithm: {name}\n")
    run = train(recipe.load(file), Registry(), tmp_path / "run")
    steps = [record for record in run.records() if "loss" in record]
    assert [step["step"] for step in steps] == [1, 2]
    assert all(step["grad_norm"] > 0 for step in steps)
    if name == "prefix_rft":
        assert steps[0]["sources/prefixes/share"] == 0.25
