"""Errors of parts that return invalid results or raise, and shapes that do not fit."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from fixtures_equations import equation, loss_batch, part, scoring
from jaxtyping import TypeCheckError

from rlm_plugins.builtin import advantages, shapers
from rlm_plugins.builtin.advantages import gae, group_relative
from rlm_plugins.builtin.policy_losses import clip
from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.equation.step import objective, score
from rlm_plugins.errors import PartError, RecipeError


def error_message(hook: str, target: Any) -> str:
    """Return the error for `target`, without its beginning, which always names the part and its file."""
    bound, slot = part(hook, target), HOOKS[hook]
    parts = equation(**{slot.key: [bound] if slot.many else bound})
    run = objective if hook in ("rlm_policy_losses", "rlm_aggregators") else score
    with pytest.raises(PartError) as caught:
        run(loss_batch() if run is objective else scoring([1.0, 2.0]), parts)
    message = str(caught.value)
    assert message.startswith(f"part 'test/{target.__name__}' ({hook}, ")
    assert "test_dispatch.py): " in message
    return message.split("test_dispatch.py): ")[1]


def test_wrong_shapes_name_the_part_and_the_right_ones() -> None:
    def short(rewards):
        return rewards[:1]

    def nothing(rewards):
        return None

    def pair(rewards):
        return rewards, rewards

    def table(loss):
        return loss

    def scalar(logp):
        return logp.sum()

    allowed = "\n  allowed: a tensor of shape "
    assert error_message("rlm_advantages", short) == f"returned a tensor of shape (1,){allowed}(2,) or (2, 2)"
    assert error_message("rlm_advantages", pair) == f"returned a tensor of shape (2,){allowed}(2, 2)"
    assert error_message("rlm_filters", short) == f"returned a tensor of shape (1,){allowed}(2,)"
    assert error_message("rlm_shapers", nothing) == f"returned NoneType{allowed}(2,) or (2, 2)"
    assert error_message("rlm_shapers", pair) == f"returned tuple{allowed}(2,) or (2, 2)"
    assert error_message("rlm_policy_losses", scalar) == f"returned a tensor of shape (){allowed}(2, 1) or (2, 3)"
    assert error_message("rlm_aggregators", table) == f"returned a tensor of shape (2, 3){allowed}()"


def test_non_finite_values_name_part_and_completion() -> None:
    def log_of_nothing(rewards):
        return (rewards - 1).log()

    def impossible_returns(rewards, mask):
        return rewards, torch.full(mask.shape, torch.nan)

    message = "returned a number that is not finite for completion 0: "
    assert error_message("rlm_shapers", log_of_nothing) == message + "-inf"
    assert error_message("rlm_advantages", log_of_nothing) == message + "[-inf]"
    assert error_message("rlm_advantages", impossible_returns) == message + "[nan, nan]"


@pytest.mark.parametrize(
    ("error", "text"), [(KeyError("answer"), "KeyError: 'answer'"), (SystemExit(0), "SystemExit: 0")]
)
def test_a_part_that_raises_or_exits_is_named(error: BaseException, text: str) -> None:
    def careless(rewards):
        raise error

    assert error_message("rlm_shapers", careless) == f"failed: {text}"


def test_out_of_memory_is_not_reported_as_a_part_error() -> None:
    def large(rewards):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):  # accelerate looks for it, to try a smaller batch
        score(scoring([1.0]), equation(advantage=part("rlm_advantages", large)))


def test_error_of_a_part_keeps_its_message() -> None:
    spread = part("rlm_filters", shapers.nonzero_std, reward="acuracy")
    batch = scoring([1.0, 2.0], named_rewards={"accuracy": torch.zeros(2)})
    with pytest.raises(RecipeError, match="did you mean 'accuracy'"):
        score(batch, equation(filters=[spread]))


def test_missing_data_name_the_part() -> None:
    gae = equation(advantage=part("rlm_advantages", advantages.gae))
    with pytest.raises(
        PartError, match=r"part 'test/gae' .*: requires `values`, which this configuration does not provide"
    ):
        score(scoring([1.0, 2.0]), gae)


def test_infinite_reward_names_reward_and_completion() -> None:
    named = {"format": torch.zeros(2), "speed": torch.tensor([0.0, torch.inf])}
    with pytest.raises(PartError, match=r"reward 'speed': the reward of completion 1 is inf"):
        score(scoring([1.0, torch.inf], named_rewards=named), equation())


def test_lengths_and_kinds_of_numbers_that_do_not_fit_are_caught() -> None:
    with pytest.raises(TypeCheckError, match="group"):
        group_relative(torch.ones(3), torch.zeros(2, dtype=torch.long))
    with pytest.raises(TypeCheckError, match="mask"):
        gae(torch.ones(2, 3), torch.ones(2, 3), torch.ones(2, 4).bool())
    with pytest.raises(TypeCheckError, match="mask"):
        gae(torch.ones(2, 3), torch.ones(2, 3), torch.ones(2, 3))


def test_one_advantage_per_sequence_broadcasts() -> None:
    assert clip(torch.ones(2, 3), torch.ones(2, 1)).shape == (2, 3)


def test_shapes_are_not_checked_outside_tests() -> None:
    code = "from rlm_plugins.builtin import advantages; print(hasattr(advantages.gae, '__wrapped__'))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"
    assert hasattr(gae, "__wrapped__")  # and here it does
