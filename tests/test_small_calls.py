"""Calls with few multiplications use one thread."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from rlm_fast.linear_layers import MIN_THREADED, fast_linear, threads_for


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.mark.parametrize(("products", "expected"), [(0, 1), (MIN_THREADED - 1, 1), (MIN_THREADED, 2)])
def test_number_of_threads(products: int, expected: int) -> None:
    with threads_for(products):
        assert torch.get_num_threads() == expected
    assert torch.get_num_threads() == 2


def test_threads_are_restored_after_an_error() -> None:
    with pytest.raises(KeyError), threads_for(0):
        raise KeyError
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("tokens", [1, 16, 100, 400])
@pytest.mark.parametrize("size", [16, 64, 512])
def test_products_of_any_size(tokens: int, size: int) -> None:
    x, weight = torch.randn(tokens, 256), torch.randn(size, 256)
    assert torch.allclose(fast_linear(x, weight), x @ weight.T, atol=1e-4)
    assert torch.get_num_threads() == 2
