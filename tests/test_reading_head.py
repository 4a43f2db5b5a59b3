"""The head that makes its gradient in the forward pass: values and gradients of the plain formula, in chunks or not."""

from __future__ import annotations

import pytest
import torch

from rlm_plugins.speed import head

ROWS, WIDTH, WORDS = 11, 6, 17


def plain(
    hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, target: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    logits = hidden @ weight.T / temperature if bias is None else (hidden @ weight.T + bias) / temperature
    said = torch.distributions.Categorical(logits=logits)
    return said.log_prob(target), said.entropy()


@pytest.mark.parametrize("chunk", [1, 4, 100])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("entropy_gradient", [False, True])
def test_equals_the_plain_formula(
    monkeypatch: pytest.MonkeyPatch, chunk: int, biased: bool, entropy_gradient: bool
) -> None:
    monkeypatch.setattr(head, "LOGITS", chunk * WORDS)
    torch.manual_seed(0)
    leaves = [torch.randn(ROWS, WIDTH), torch.randn(WORDS, WIDTH), torch.randn(WORDS)]
    leaves = [leaf.requires_grad_() for leaf in leaves[: 2 + biased]]
    hidden, weight, bias = leaves if biased else (*leaves, None)
    target, of_logp, of_entropy = torch.randint(WORDS, (ROWS,)), torch.randn(ROWS), torch.randn(ROWS)

    logp, entropy = plain(hidden, weight, bias, target, 0.7)
    wanted = torch.autograd.grad((logp * of_logp + entropy * of_entropy * entropy_gradient).sum(), leaves)
    found = head.read_head(hidden, weight, bias, target, temperature=0.7, entropy_gradient=entropy_gradient)
    torch.testing.assert_close(found, (logp, entropy))
    assert found[1].requires_grad is entropy_gradient
    loss = (found[0] * of_logp).sum()
    if entropy_gradient:
        loss = loss + (found[1] * of_entropy).sum()
    torch.testing.assert_close(torch.autograd.grad(loss, leaves), wanted, rtol=1e-5, atol=1e-6)


def test_a_frozen_head_keeps_no_logits() -> None:
    """What is saved for the backward pass is as large as the hidden states, whatever the vocabulary is."""
    hidden, weight = torch.randn(ROWS, WIDTH, requires_grad=True), torch.randn(1000, WIDTH)
    sizes: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.append(x.numel()) or x, lambda x: x):
        head.read_head(hidden, weight, None, torch.randint(1000, (ROWS,)))
    assert max(size for size in sizes if size != weight.numel()) == hidden.numel()


def test_no_rows_are_fine() -> None:
    hidden = torch.zeros(0, WIDTH, requires_grad=True)
    logp, entropy = head.read_head(hidden, torch.randn(WORDS, WIDTH), None, torch.zeros(0, dtype=torch.long))
    logp.sum().backward()
    assert len(logp) == len(entropy) == 0
    assert hidden.grad is not None
