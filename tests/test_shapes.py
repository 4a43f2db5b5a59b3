"""Shapes in the signatures of built-in parts: checked under test, without cost otherwise."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from jaxtyping import TypeCheckError

from rlm_plugins.builtin.advantages import gae, group_relative
from rlm_plugins.builtin.policy_losses import clip


def test_lengths_that_do_not_fit_are_caught() -> None:
    with pytest.raises(TypeCheckError, match="group"):
        group_relative(torch.ones(3), torch.zeros(2, dtype=torch.long))
    with pytest.raises(TypeCheckError, match="mask"):
        gae(torch.ones(2, 3), torch.ones(2, 3), torch.ones(2, 4).bool())


def test_kinds_of_numbers_that_do_not_fit_are_caught() -> None:
    with pytest.raises(TypeCheckError, match="mask"):
        gae(torch.ones(2, 3), torch.ones(2, 3), torch.ones(2, 3))


def test_one_advantage_per_sequence_broadcasts() -> None:
    assert clip(torch.ones(2, 3), torch.ones(2, 1)).shape == (2, 3)


def test_shapes_are_not_checked_outside_tests() -> None:
    code = "from rlm_plugins.builtin import advantages; print(hasattr(advantages.gae, '__wrapped__'))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"
    assert hasattr(gae, "__wrapped__")  # and here it does
