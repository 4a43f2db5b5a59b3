"""r: the random control, independent of correctness (hook ``rlm_rewards``)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from rlm_plugins.equation.knobs import Share


def random_reward(
    prompt_messages: Sequence[Any],
    completions: Sequence[str],
    trainer_state: Any = None,
    *,
    probability: Share = 0.5,
    seed: int = 0,
) -> list[float]:
    """Return 1 with `probability`, independent of the completion.

    r ~ Bernoulli(probability). The control of «Spurious Rewards», arXiv 2506.10947: compare any reward of this
    package with it. A gain that this control reaches, too, is not due to the reward.

    The draw is a hash of prompt, completion, step and `seed`, so a resumed run repeats it. It carries no
    information, since the same text is drawn anew at every step. Equal texts of one group share a draw.

    Pitfalls: its expected gradient is 0 only where the loss is linear in Â. An asymmetric clip turns noise into a bias
    towards completions that the policy prefers already, which is why some models gain from it.
    """
    step = getattr(trainer_state, "global_step", 0)
    pairs = zip(prompt_messages, completions, strict=True)
    return [float(_uniform(repr((seed, step, prompt, text))) < probability) for prompt, text in pairs]


def _uniform(text: str) -> float:
    """Return a number in [0, 1), a hash of the text."""
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
    return (int.from_bytes(digest) >> 11) / 2**53
