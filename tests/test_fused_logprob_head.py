"""The head with its gradient in the forward pass: values and gradients of the plain formula, in chunks or not."""

from __future__ import annotations

import pytest
import torch
from rlm_fast import fused_layers as head
from rlm_fast import linear_layers as sizes

ROWS, WIDTH, WORDS = 11, 6, 17


def plain(
    hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, target: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    logits = hidden @ weight.T / temperature if bias is None else (hidden @ weight.T + bias) / temperature
    reference = torch.distributions.Categorical(logits=logits)
    return reference.log_prob(target), reference.entropy()


@pytest.mark.parametrize("chunk", [1, 4, 100])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("entropy_gradient", [False, True])
def test_equals_the_plain_formula(
    monkeypatch: pytest.MonkeyPatch, chunk: int, biased: bool, entropy_gradient: bool
) -> None:
    monkeypatch.setattr(sizes, "LOGITS", chunk * WORDS)
    monkeypatch.setattr(sizes, "TOKENS", 1)
    torch.manual_seed(0)
    leaves = [torch.randn(ROWS, WIDTH), torch.randn(WORDS, WIDTH), torch.randn(WORDS)]
    leaves = [leaf.requires_grad_() for leaf in leaves[: 2 + biased]]
    hidden, weight, bias = leaves if biased else (*leaves, None)
    target, of_logp, of_entropy = torch.randint(WORDS, (ROWS,)), torch.randn(ROWS), torch.randn(ROWS)

    logp, entropy = plain(hidden, weight, bias, target, 0.7)
    wanted = torch.autograd.grad((logp * of_logp + entropy * of_entropy * entropy_gradient).sum(), leaves)
    found = head.fused_logprobs(hidden, weight, bias, target, temperature=0.7, entropy_gradient=entropy_gradient)
    torch.testing.assert_close(found, (logp, entropy))
    assert found[1].requires_grad is entropy_gradient
    loss = (found[0] * of_logp).sum()
    if entropy_gradient:
        loss = loss + (found[1] * of_entropy).sum()
    torch.testing.assert_close(torch.autograd.grad(loss, leaves), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shift", [0.0, 1e3])
def test_exact_for_probabilities_near_one(shift: float) -> None:
    """Large or distant logits lose no precision against the plain formula in double precision."""
    torch.manual_seed(0)
    hidden, weight = torch.randn(ROWS, WIDTH) * 8, torch.randn(WORDS, WIDTH)
    bias, target = torch.full((WORDS,), shift), torch.randint(WORDS, (ROWS,))
    logits = torch.nn.functional.linear(hidden, weight, bias)  # rounded as they are
    reference = torch.distributions.Categorical(logits=logits.double())
    logp, entropy = head.fused_logprobs(hidden, weight, bias, target)
    torch.testing.assert_close(logp.double(), reference.log_prob(target), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(entropy.double(), reference.entropy(), rtol=1e-5, atol=1e-6)


def test_bf16_error_of_a_likely_token_is_at_most_autograds() -> None:
    """Rounding applies to 1 − p and not to p: at a probability of 0.95 that would lose a tenth of it."""
    torch.manual_seed(0)
    hidden = (2 * torch.randn(64, 32)).bfloat16().requires_grad_()
    weight = torch.randn(33, 32).bfloat16()
    logits = torch.nn.functional.linear(hidden, weight)
    target = logits.argmax(-1)
    usual = torch.distributions.Categorical(logits=logits.float()).log_prob(target)
    (stock,) = torch.autograd.grad(usual.sum(), hidden)
    (found,) = torch.autograd.grad(head.fused_logprobs(hidden, weight, None, target)[0].sum(), hidden)
    truth = (torch.nn.functional.one_hot(target, 33) - logits.detach().double().softmax(-1)) @ weight.double()

    def far(x: torch.Tensor) -> torch.Tensor:
        return ((x.double() - truth).norm(dim=1) / truth.norm(dim=1)).median()

    assert usual.exp().median() > 0.9
    assert far(found) < 1.1 * far(stock) < 5e-3


@pytest.mark.parametrize("states", [torch.float32, torch.bfloat16])
def test_autocast_applies_to_products_only(states: torch.dtype) -> None:
    """Logits have two bytes, the sums over them four.

    The backward pass, outside autocast, computes as the forward pass did.
    """
    torch.manual_seed(0)
    hidden, weight = torch.randn(64, 32).to(states).requires_grad_(), torch.randn(2000, 32).requires_grad_()
    target, of_logp, of_entropy = torch.randint(2000, (64,)), torch.randn(64), torch.randn(64)
    small = [x.detach().bfloat16().requires_grad_() for x in (hidden, weight)]
    reference = torch.distributions.Categorical(logits=torch.nn.functional.linear(*small).float())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logp, entropy = head.fused_logprobs(hidden, weight, None, target, entropy_gradient=True)
    assert logp.dtype == entropy.dtype == torch.float32
    torch.testing.assert_close(logp, reference.log_prob(target), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(entropy, reference.entropy(), rtol=1e-5, atol=1e-5)
    torch.autograd.backward([(logp * of_logp + entropy * of_entropy).sum()])
    usual = (reference.log_prob(target) * of_logp + reference.entropy() * of_entropy).sum()
    for leaf, wanted in zip((hidden, weight), torch.autograd.grad(usual, small), strict=True):
        assert leaf.grad is not None
        assert leaf.grad.dtype == leaf.dtype
        assert (leaf.grad - wanted).norm() < 5e-3 * wanted.float().norm()


def test_entropies_are_zero_unless_requested() -> None:
    hidden, weight = torch.randn(ROWS, WIDTH, requires_grad=True), torch.randn(WORDS, WIDTH)
    target = torch.randint(WORDS, (ROWS,))
    wanted = head.fused_logprobs(hidden, weight, None, target)[0]
    logp, entropy = head.fused_logprobs(hidden, weight, None, target, with_entropy=False)
    assert torch.equal(logp, wanted)
    assert not entropy.any()
    assert torch.equal(*(torch.autograd.grad(x.sum(), hidden)[0] for x in (logp, wanted)))


def test_empty_batch_is_supported() -> None:
    hidden = torch.zeros(0, WIDTH, requires_grad=True)
    logp, entropy = head.fused_logprobs(hidden, torch.randn(WORDS, WIDTH), None, torch.zeros(0, dtype=torch.long))
    logp.sum().backward()
    assert len(logp) == len(entropy) == 0
    assert hidden.grad is not None


def test_gradient_of_a_likely_token_keeps_its_accuracy() -> None:
    """One of 49,152 tokens has almost all probability, so that 1 − p in float32 would be mostly rounding."""
    draw = torch.Generator().manual_seed(0)
    weight = torch.randn(49_152, 8, generator=draw)
    weight[7] = 6.0
    hidden = (torch.full((4, 8), 0.4) + 0.01 * torch.randn(4, 8, generator=draw)).requires_grad_()
    target = torch.full((4,), 7)
    exact = hidden.detach().double().requires_grad_()
    likely = torch.log_softmax(exact @ weight.double().T, -1)[:, 7]
    assert bool((likely.exp() > 0.99).all())
    (wanted,) = torch.autograd.grad(likely.sum(), exact)
    (found,) = torch.autograd.grad(head.fused_logprobs(hidden, weight, None, target)[0].sum(), hidden)
    assert (found - wanted).norm() <= 1e-4 * wanted.norm()
