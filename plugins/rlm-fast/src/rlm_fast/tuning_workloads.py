"""Small workloads on which `tuning.py` times candidates. Each function returns the call to time.

No random numbers are drawn. The results are for the tests: no value of a choice changes more than rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from rlm_fast import chunk_sizes
from rlm_fast.cpu_linear import PackedLinear, fast_linear
from rlm_fast.fused_logprob_head import fused_logprobs
from rlm_fast.tree_attention import TreeAttention

Work = Callable[[], Sequence[torch.Tensor]]


def numbers(*shape: int) -> torch.Tensor:
    """Return a tensor of different numbers between -1 and 1."""
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).cos_().view(shape)


def thin_products() -> Work:
    """Products of 8 to 64 tokens with a layer's weight, forward and backward."""
    weight = numbers(768, 768)
    inputs = [numbers(n, 768) for n in (64, 32, 32, 16, 16, 8, 8)]

    @torch.no_grad()
    def work() -> list[torch.Tensor]:
        return [fast_linear(x, w) for x in inputs for w in (weight, weight.T)]

    return work


def products_of_few() -> Work:
    """Products of 8 to 128 tokens with weights in place, as in decoding without copies."""
    weights = numbers(1536, 576), numbers(576, 1536)
    pairs = [(numbers(n, weight.shape[1]), weight) for weight in weights for n in (128, 80, 48, 32, 16, 8)]

    @torch.no_grad()
    def work() -> list[torch.Tensor]:
        return [fast_linear(x, weight) for x, weight in pairs]

    return work


def packed_products() -> Work:
    """Products of 1 to 16 sequences with layers of three sizes, as in decoding."""
    sizes = (192, 384, 768)
    calls = [(PackedLinear(numbers(size, size), None), numbers(n, size)) for size in sizes for n in (1, 4, 16)]

    @torch.no_grad()
    def work() -> list[torch.Tensor]:
        return [layer(x) for layer, x in calls]

    return work


def logprob_head() -> Work:
    """Log-probs of 256 tokens over 8192 words, with their gradient."""
    hidden, weight = numbers(256, 64).requires_grad_(), numbers(8192, 64)
    target = torch.arange(256)
    return lambda: torch.autograd.grad(fused_logprobs(hidden, weight, None, target)[0].sum(), hidden)


def tree_attention() -> Work:
    """Attention over a prompt with eight completions, with its gradient."""
    sizes, heads = [48, *[24] * 8], 6
    attention = TreeAttention.of_tree(sizes, [-1, *[0] * 8], torch.device("cpu"))
    query, key, value = (numbers(1, n, sum(sizes), 64).requires_grad_() for n in (heads, 2, 2))
    return lambda: torch.autograd.grad(attention(query, key, value, None).square().sum(), (query, key, value))


def small_micro_batches() -> Work:
    """Half of a layer over 4096 tokens, in the micro-batches of a model with four such layers."""
    size, model_size = 128, 4 * 4 * 128**2
    up, down = numbers(size, size).requires_grad_(), numbers(size, size)
    inputs = numbers(4096, size).split(chunk_sizes.PRODUCTS // model_size)

    def work() -> list[torch.Tensor]:
        gradient = torch.zeros_like(up)
        for x in inputs:
            hidden = torch.nn.functional.silu(torch.nn.functional.rms_norm(x, (size,)) @ up)
            gradient += torch.autograd.grad((x + hidden @ down).sum(), up)[0]
        return [gradient]

    return work
