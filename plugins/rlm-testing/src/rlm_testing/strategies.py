"""Hypothesis strategies of batches: ragged, interleaved, with holes, empty completions and ties; small."""

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
from rlm_testing import toy_policy as policy
from rlm_testing.batch_transforms import widened
from rlm_testing.part_under_test import Subject

LEVELS = (0.0, 1.0, 0.5, 0.25, -1.0)
"""Levels of rewards: few, so that ties are common, and with exact sums in any order."""

SOURCES = ("policy", "greedy", "demonstrations", "replay")
"""Labels of completions."""

Noise = Callable[..., torch.Tensor]

# Creating a strategy takes as long as sampling from it, so each is created once.
_COIN = st.booleans()
_UP_TO = functools.cache(st.integers)


@functools.cache
def _sizes(groups: int, group_size: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(1, group_size), min_size=1, max_size=groups)


@functools.cache
def _missing(count: int, width: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, width), min_size=count, max_size=count)


@functools.cache
def _rewards(count: int) -> st.SearchStrategy[list[float]]:
    return st.lists(st.sampled_from(LEVELS), min_size=count, max_size=count)


@st.composite
def batches(
    draw: st.DrawFn,
    *,
    groups: int = 3,
    group_size: int = 4,
    tokens: int = 5,
    wild: bool = False,
    step_batch: bool = True,
) -> Batch:
    """Generate batches with every field, in float64 on the CPU; each is a whole optimizer step.

    Groups have any size from 1 and may be interleaved; completions have any length from 0 and may have holes.
    ``named_rewards`` are ``accuracy`` and ``format``, the latter NaN where it does not apply. A completion is of the
    policy or one of three sources.

    Args:
        draw: Of hypothesis.
        groups: Maximum number of groups.
        group_size: Maximum number of completions per group.
        tokens: Maximum number of columns.
        wild: True for log-ratios and log-probabilities in the hundreds, ratios up to e²⁰, rewards of a thousand.
        step_batch: True to fill `step_batch`; all other fields are equal with and without.
    """
    sizes = draw(_sizes(groups, group_size))
    size, width = sum(sizes), draw(_UP_TO(1, tokens))
    missing, rewards = draw(_missing(size, width)), draw(_rewards(size))
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
        group = group[torch.randperm(size, generator=generator)]
    score = torch.tensor(rewards, dtype=torch.float64) * (1000.0 if wild else 1.0)
    limit = width + draw(_UP_TO(0, 3))
    batch = _filled(noise, group, mask, score, columns=1 if thin else width, limit=limit)
    if not step_batch:
        return batch
    step, (places,) = build_step_batch([batch], [noise(size)])  # in another order, as wide as on the widest process
    return replace(batch, step_batch=widened(step, limit - width), step_batch_rows=places)


def batches_for(subject: Subject, **sizes: Any) -> st.SearchStrategy[Batch]:
    """Return `batches` of these sizes, with `step_batch` if the part takes it: that doubles the work."""
    return batches(step_batch=subject.names("step_batch", "step_batch_rows"), **sizes)


def _filled(
    noise: Noise, group: torch.Tensor, mask: torch.Tensor, rewards: torch.Tensor, columns: int, limit: int
) -> Batch:
    """Fill every other field; `columns` is the width of (B, T) or (B, 1), `limit` the longest completion."""
    count, width = mask.shape
    logp = -noise(count, width).abs() - 0.01
    log_ratio = noise(count, columns, size=0.3)
    applies = noise(count) > -1.0
    return Batch(
        group=group,
        prompt_index=group + 5,
        mask=mask,
        truncated=noise(count) > 1.0,
        max_completion_length=limit,
        step=limit,
        rewards=rewards,
        named_rewards={"accuracy": rewards.clone(), "format": noise(count).where(applies, torch.nan)},
        token_rewards=on_last_token(rewards, mask),
        dense_rewards=torch.zeros_like(logp),
        **_text_fields(group, mask),
        advantages=noise(count, columns),
        returns=noise(count, width),
        logp=logp,
        old_logp=logp + noise(count, width, size=0.3),
        expected_logp=-noise(count).abs(),
        ref_logp=logp + noise(count, width, size=0.3),
        rollout_logp=logp + noise(count, width, size=0.1),
        rollout_weight=noise(count, columns).abs(),
        policy_drift=noise(count, size=0.1).abs(),
        entropy=noise(count, width).abs(),
        self_certainty=noise(count, width).abs(),
        top2_margin=noise(count, width).abs(),
        values=noise(count, width),
        log_ratio=log_ratio,
        ratio=log_ratio.clamp(-20.0, 20.0).exp(),
        loss=noise(count, width),
        num_tokens=(mask.sum() + 2).double(),
        num_sequences=(mask.any(1).sum() + 1).double(),
        num_sequences_all=torch.tensor(len(mask) + 2.0).double(),
        num_micro_batches=torch.tensor(2.0).double(),
        log=_ignore,
        sources=_sources(noise(count)),
        old_values=noise(count, width),
        turn_rewards=noise(count, width),
    )


def _text_fields(group: torch.Tensor, mask: torch.Tensor) -> dict[str, Any]:
    """Return text and token ids, and a policy and rewards that are pure functions."""
    numbers = group.tolist()
    lengths = [max([t for t, trained in enumerate(row) if trained], default=-1) + 1 for row in mask.tolist()]
    return {
        "prompts": [f"{number}+{number}=" for number in numbers],
        "inputs": [{"prompt": f"{number}+{number}=", "answer": str(2 * number)} for number in numbers],
        "prompt_ids": [[3 + number % 7, 4] for number in numbers],
        "completion_ids": [
            [3 + (number + 2 * t) % 11 for t in range(n)] for number, n in zip(numbers, lengths, strict=True)
        ],
        "logprobs_of": policy.logprobs_of,
        "generate": _generate,
        "rewards_of": _rewards_of,
        "tokenizer": policy.Letters(),
    }


def _generate(prompts: Sequence[Any], prefixes: Any = None, *, greedy: bool = False) -> list[list[int]]:
    starts = [[]] * len(prompts) if prefixes is None else prefixes
    return [[5 + (len(prompt) + len(start)) % 3, 1] for prompt, start in zip(prompts, starts, strict=True)]


def _rewards_of(prompts: Sequence[Any], completion_ids: Sequence[Sequence[int]], inputs: Sequence[Any]) -> torch.Tensor:
    return torch.tensor([float(sum(row) % 2) for row in completion_ids], device="cpu")


def _sources(x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return label → (B,) True for its completions."""
    source = (x.abs() * 100).round().long() % len(SOURCES)
    return {name: source == number for number, name in enumerate(SOURCES)}


def _ignore(name: str, x: torch.Tensor) -> None:
    """Discard what parts log."""
