"""Reasons under their former names; removed once the trainer uses `Features`."""

from typing import Any

from rlm_plugins.packing.features import Features


def _of(speed: Any, args: Any, equation: Any = None, **facts: Any) -> Features:
    return Features(speed, equation, args, **facts)


def padded(speed: Any, args: Any, *, sharded: bool, balanced: bool) -> str | None:
    """Return the reason of `padding_free`."""
    return _of(speed, args, sharded=sharded, load_balancing=balanced).padding_free.reason


def apart(speed: Any, args: Any, *, sharded: bool) -> str | None:
    """Return the reason of `fused_lora`."""
    return _of(speed, args, sharded=sharded).fused_lora.reason


def at_random(speed: Any, equation: Any, args: Any, *, packed: bool) -> str | None:
    """Return the reason of `group_micro_batches`."""
    return _of(speed, args, equation).group_micro_batches.reason


def by_number(speed: Any, equation: Any, args: Any) -> str | None:
    """Return the reason of `dynamic_micro_batches`."""
    return _of(speed, args, equation).dynamic_micro_batches.reason


def all_read(speed: Any, args: Any, *, critic: bool) -> str | None:
    """Return the reason of `skip_zero_advantage`."""
    return _of(speed, args, critic=critic).skip_zero_advantage.reason


def scores_by(name: str, equation: Any, learners: Any) -> bool:
    """Return `Features.needed_for_scoring`."""
    return _of(None, None, equation, learners=learners).needed_for_scoring(name)


def old_is_scored(equation: Any, learners: Any) -> bool:
    """Return `Features.needs_old_for_scoring`."""
    return _of(None, None, equation, learners=learners).needs_old_for_scoring


def reads_old(args: Any) -> bool:
    """Return `Features.recomputes_old_logprobs`."""
    return _of(None, args).recomputes_old_logprobs


def old_is_first(speed: Any, args: Any) -> bool:
    """Return `Features.first_pass_is_old`."""
    return _of(speed, args).first_pass_is_old
