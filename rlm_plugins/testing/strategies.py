"""Batches as hypothesis draws them: ragged, interleaved, with holes, empty rows and ties; small, to be readable."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from hypothesis import strategies as st

from rlm_plugins.batch import Batch
from rlm_plugins.dispatch import on_last_token
from rlm_plugins.step_batch import build_step_batch
from rlm_plugins.testing import toy_policy as policy
from rlm_plugins.testing.batch_transforms import wider
from rlm_plugins.testing.part_under_test import Subject

LEVELS = (0.0, 1.0, 0.5, 0.25, -1.0)
"""Rewards are drawn from few levels, so that ties are common; sums of them are exact, in any order."""

SOURCES = ("policy", "greedy", "demonstrations", "replay")
"""What rows go by."""

Noise = Callable[..., torch.Tensor]

# Making a strategy costs as much as drawing from it: each is made once.
_COIN = st.booleans()
_UP_TO = functools.cache(st.integers)


@functools.cache
def _sizes(groups: int, group_size: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(1, group_size), min_size=1, max_size=groups)


@functools.cache
def _missing(rows: int, width: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, width), min_size=rows, max_size=rows)


@functools.cache
def _rewards(rows: int) -> st.SearchStrategy[list[float]]:
    return st.lists(st.sampled_from(LEVELS), min_size=rows, max_size=rows)


@st.composite
def batches(
    draw: st.DrawFn,
    *,
    groups: int = 3,
    group_size: int = 4,
    tokens: int = 5,
    wild: bool = False,
    window: bool = True,
) -> Batch:
    """Batches with every field filled, in float64 on the CPU; each is the whole of its optimiser step.

    Groups are of any size from 1 and may be interleaved; rows are of any length from 0 and may have holes;
    ``named_rewards`` are ``accuracy`` and ``format``, the latter NaN where it did not apply; a row is the policy's or
    that of one of three sources.

    Args:
        draw: Given by hypothesis.
        groups: How many groups at most.
        group_size: How many rows per group at most.
        tokens: How many columns at most.
        wild: Log-ratios and log-probabilities in the hundreds, ratios up to e²⁰, rewards of a thousand.
        window: Whether the optimiser step is there as `window`; the other fields are the same with and without.
    """
    sizes = draw(_sizes(groups, group_size))
    rows, width = sum(sizes), draw(_UP_TO(1, tokens))
    missing, rewards = draw(_missing(rows, width)), draw(_rewards(rows))
    holes, interleaved, thin = draw(_COIN), draw(_COIN), draw(_COIN)
    generator = torch.Generator().manual_seed(draw(_UP_TO(0, 999)))

    def noise(*shape: int, size: float = 1.0) -> torch.Tensor:
        raw = torch.randn(shape, generator=generator, dtype=torch.float64)
        return (raw * size * (300.0 if wild else 1.0)).round(decimals=2)

    mask = torch.arange(width) < width - torch.tensor(missing).unsqueeze(1)
    if holes:
        mask &= torch.rand(mask.shape, generator=generator) < 0.7
    group = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes)) * 3
    if interleaved:
        group = group[torch.randperm(rows, generator=generator)]
    score = torch.tensor(rewards, dtype=torch.float64) * (1000.0 if wild else 1.0)
    limit = width + draw(_UP_TO(0, 3))
    batch = _filled(noise, group, mask, score, columns=1 if thin else width, limit=limit)
    if not window:
        return batch
    step, (places,) = build_step_batch([batch], [noise(rows)])  # in some other order, and as wide as the widest process
    return replace(batch, step_batch=wider(step, limit - width), step_batch_rows=places)


def batches_for(subject: Subject, **sizes: Any) -> st.SearchStrategy[Batch]:
    """`batches` of these sizes, with a window where the part asks for one: it doubles what is made and moved."""
    return batches(window=subject.names("step_batch", "step_batch_rows"), **sizes)


def _filled(
    noise: Noise, group: torch.Tensor, mask: torch.Tensor, rewards: torch.Tensor, columns: int, limit: int
) -> Batch:
    """Every other field; `columns` is the width of what may be (B, T) or (B, 1), `limit` the longest completion."""
    rows, width = mask.shape
    logp = -noise(rows, width).abs() - 0.01
    log_ratio = noise(rows, columns, size=0.3)
    applies = noise(rows) > -1.0
    return Batch(
        group=group,
        prompt_index=group + 5,
        mask=mask,
        truncated=noise(rows) > 1.0,
        max_completion_length=limit,
        step=limit,
        rewards=rewards,
        named_rewards={"accuracy": rewards.clone(), "format": noise(rows).where(applies, torch.nan)},
        token_rewards=on_last_token(rewards, mask),
        dense_rewards=torch.zeros_like(logp),
        **_words(group, mask),
        advantages=noise(rows, columns),
        returns=noise(rows, width),
        logp=logp,
        old_logp=logp + noise(rows, width, size=0.3),
        expected_logp=-noise(rows).abs(),
        ref_logp=logp + noise(rows, width, size=0.3),
        rollout_logp=logp + noise(rows, width, size=0.1),
        rollout_weight=noise(rows, columns).abs(),
        policy_drift=noise(rows, size=0.1).abs(),
        entropy=noise(rows, width).abs(),
        self_certainty=noise(rows, width).abs(),
        top2_margin=noise(rows, width).abs(),
        values=noise(rows, width),
        log_ratio=log_ratio,
        ratio=log_ratio.clamp(-20.0, 20.0).exp(),
        loss=noise(rows, width),
        num_tokens=(mask.sum() + 2).double(),
        num_sequences=(mask.any(1).sum() + 1).double(),
        num_sequences_all=torch.tensor(len(mask) + 2.0).double(),
        num_micro_batches=torch.tensor(2.0).double(),
        log=_listen,
        sources=_written(noise(rows)),
        old_values=noise(rows, width),
        turn_rewards=noise(rows, width),
    )


def _words(group: torch.Tensor, mask: torch.Tensor) -> dict[str, Any]:
    """Rows as text and token ids, and a policy and rewards whose answers depend on nothing but what they are given."""
    numbers = group.tolist()
    lengths = [max([t for t, trained in enumerate(row) if trained], default=-1) + 1 for row in mask.tolist()]
    return {
        "prompts": [f"{number}+{number}=" for number in numbers],
        "inputs": [{"prompt": f"{number}+{number}=", "answer": str(2 * number)} for number in numbers],
        "prompt_ids": [[3 + number % 7, 4] for number in numbers],
        "completion_ids": [
            [3 + (number + 2 * t) % 11 for t in range(n)] for number, n in zip(numbers, lengths, strict=True)
        ],
        "logprobs_of": policy.read,
        "generate": _write,
        "rewards_of": _score,
        "tokenizer": policy.Letters(),
    }


def _write(prompts: Sequence[Any], prefixes: Any = None, *, greedy: bool = False) -> list[list[int]]:
    starts = [[]] * len(prompts) if prefixes is None else prefixes
    return [[5 + (len(prompt) + len(start)) % 3, 1] for prompt, start in zip(prompts, starts, strict=True)]


def _score(prompts: Sequence[Any], completion_ids: Sequence[Sequence[int]], inputs: Sequence[Any]) -> torch.Tensor:
    return torch.tensor([float(sum(row) % 2) for row in completion_ids], device="cpu")


def _written(x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Who wrote each row."""
    writer = (x.abs() * 100).round().long() % len(SOURCES)
    return {name: writer == number for number, name in enumerate(SOURCES)}


def _listen(name: str, x: torch.Tensor) -> None:
    """What parts log goes nowhere."""
