"""Hypothesis strategies of batches, and transforms under which the result of a part must be invariant."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from hypothesis import strategies as st

from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.dispatch import on_last_token, select
from rlm_plugins.equation.step import build_step_batch
from rlm_testing import toy_policy as policy
from rlm_testing.law import Subject

Change = Callable[[str, torch.Tensor], Any]
POSITIVE = ("ratio", "rollout_weight", "entropy")


def each(batch: Batch, change: Change) -> Batch:
    """Return the batch with `change(name, tensor)` in place of every tensor, also in its `step_batch`."""

    def apply(name: str, value: Any) -> Any:
        if isinstance(value, Batch):
            return each(value, change)
        if isinstance(value, dict):
            return {key: apply(name, x) for key, x in value.items()}
        return change(name, value) if isinstance(value, torch.Tensor) else value

    return Batch(**{f.name: apply(f.name, getattr(batch, f.name)) for f in fields(batch)})


def copied(batch: Batch) -> Batch:
    """Return a copy in other memory."""
    return each(batch, lambda _, x: x.detach().clone())


def cast(batch: Batch, dtype: torch.dtype) -> Batch:
    """Return the batch with every floating-point field in `dtype`."""
    return each(batch, lambda _, x: x.to(dtype) if x.is_floating_point() else x)


def with_other_padding(batch: Batch, seed: int) -> Batch:
    """Return the batch with other values of the same kind where the mask is False.

    None is inf or NaN, which never reach a part, nor has an exp or log that is.
    """
    generator = torch.Generator().manual_seed(seed)

    def change(name: str, x: torch.Tensor) -> torch.Tensor:
        if not x.is_floating_point() or x.shape != batch.mask.shape:
            return x
        other = torch.randn(x.shape, generator=generator, dtype=x.dtype) * 5
        kind = -other.abs() if name.endswith("logp") else other.abs() if name in POSITIVE else other
        return x.where(batch.mask, kind)

    changed = each(replace(batch, step_batch=None), change)  # type: ignore[arg-type]
    step_batch = None if batch.step_batch is None else with_other_padding(batch.step_batch, seed)
    return replace(changed, step_batch=step_batch)  # type: ignore[arg-type]


def widened(batch: Batch, columns: int) -> Batch:
    """Return the batch with more columns of padding on the right."""

    def change(name: str, x: torch.Tensor) -> torch.Tensor:
        thin = name in ("advantages", "log_ratio", "ratio", "rollout_weight") and x.shape[1] == 1
        return x if x.dim() != 2 or thin else torch.nn.functional.pad(x, (0, columns))

    return each(batch, change)


def at_two_tokens(batch: Batch) -> Batch:
    """Return the batch with a teacher in a vocabulary of two tokens: the sampled one, and one for all others."""

    def both(logp: torch.Tensor) -> torch.Tensor:
        logp = logp.where(batch.mask, -1.0).clamp(max=-1e-3)
        return torch.stack([logp, (-logp.expm1()).log()], -1)

    def kl(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        return (p.exp() * (p - q)).sum(-1)

    def divergence_of(beta: float) -> torch.Tensor:
        if beta in (0, 1):
            return kl(policy, teacher) if beta else kl(teacher, policy)
        mixture = torch.logaddexp(policy + math.log(1 - beta), teacher + math.log(beta))
        return beta * kl(teacher, mixture) + (1 - beta) * kl(policy, mixture)

    if batch.teacher_logp is None:
        return batch
    policy, teacher = both(batch.logp), both(batch.teacher_logp)
    batch = replace(batch, teacher_top_ids=torch.arange(2).expand(teacher.shape), teacher_top_logp=teacher)
    return replace(batch, top_logp=policy, divergence_of=divergence_of)


def select_in_order(batch: Batch, order: torch.Tensor) -> Batch:
    """Return the completions at `order`; the `step_batch` they belong to stays whole."""
    return replace(select(replace(batch, step_batch=None), order), step_batch=batch.step_batch)  # type: ignore[arg-type]


def with_other_group_numbers(batch: Batch) -> Batch:
    """Return the batch with other numbers for the same groups."""
    return replace(batch, group=1000 - 7 * batch.group)


def with_empty_completion(batch: Batch) -> Batch:
    """Return the batch with one more completion, in the last one's group, without a trained token."""
    more = each(batch, lambda _, x: torch.cat([x, x[-1:]]) if x.dim() else x)
    for name, value in [(f.name, getattr(more, f.name)) for f in fields(more)]:
        if isinstance(value, list):
            setattr(more, name, [*value, value[-1]])
    more.mask[-1] = False
    if more.step_batch is not None:
        more.step_batch.mask[-1] = False
        more.step_batch_rows[-1] = len(batch.step_batch.mask)
    return more


def without_tokens(batch: Batch) -> Batch:
    """Return the batch without trained tokens."""
    step_batch = None if batch.step_batch is None else without_tokens(batch.step_batch)
    mask, token_rewards = torch.zeros_like(batch.mask), torch.zeros_like(batch.token_rewards)
    return replace(batch, mask=mask, token_rewards=token_rewards, step_batch=step_batch)  # type: ignore[arg-type]


LEVELS = (0.0, 1.0, 0.5, 0.25, -1.0)
"""Levels of rewards: few, so that ties are common, and with exact sums in any order."""

SOURCES = ("policy", "greedy", "demonstrations", "replay")
"""Labels of completions."""

Noise = Callable[..., torch.Tensor]

# Creating a strategy takes as long as sampling from it, so each is created once.
_COIN = st.booleans()
_UP_TO = functools.cache(st.integers)
_LEVELS = st.sampled_from(LEVELS)


@functools.cache
def _lists(items: st.SearchStrategy[Any], least: int, most: int) -> st.SearchStrategy[list[Any]]:
    return st.lists(items, min_size=least, max_size=most)


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
    sizes = draw(_lists(_UP_TO(1, group_size), 1, groups))
    size, width = sum(sizes), draw(_UP_TO(1, tokens))
    missing, rewards = draw(_lists(_UP_TO(0, width), size, size)), draw(_lists(_LEVELS, size, size))
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
    found = batches(step_batch=subject.names("step_batch", "step_batch_rows"), **sizes)
    return found.map(at_two_tokens) if subject.names("top_logp", "divergence_of") else found


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
        sum_pi_squared=noise(count, width).sigmoid(),
        values=noise(count, width),
        log_ratio=log_ratio,
        ratio=log_ratio.clamp(-20.0, 20.0).exp(),
        loss=noise(count, width),
        num_tokens=(mask.sum() + 2).double(),
        num_sequences=(mask.any(1).sum() + 1).double(),
        num_sequences_all=torch.tensor(len(mask) + 2.0).double(),
        num_micro_batches=torch.tensor(2.0).double(),
        log=lambda name, x: None,
        sources=_sources(noise(count)),
        old_values=noise(count, width),
        turn_rewards=noise(count, width),
        teacher_logp=logp + noise(count, width, size=0.5),
        has_teacher=noise(count) > -0.5,
        observation_mask=~mask & (noise(count, width) > 0),
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
