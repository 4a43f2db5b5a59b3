"""r: rewards independent of correctness (hook ``rlm_rewards``): format and length, and the random control."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from rlm_intrinsic.vote_counting import answer
from rlm_plugins.data.answer_extraction import Untagged

Length = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Inner = Annotated[float, Field(gt=0, lt=1)]


def format_and_length(
    completions: Sequence[str],
    completion_ids: Sequence[Sequence[int]],
    *,
    length: Length,
    best: Inner = 0.5,
    tag: str = "answer",
    untagged: Untagged = "wrong",
) -> list[float]:
    """Return 1 for a well-formed answer, plus up to 1 for a length near `best · length`.

    r = f + ℓ(n / length) if the format is right (f = 1), else min(0, ℓ): ℓ(x) = 1 − (1 − x/p)² up to p = `best`, then
    1 − 2((x − p)/(1 − p))². After «Surrogate Signals from Format and Length», arXiv 2505.19439; the formula was not
    compared with the paper, so verify it before comparing numbers.

    n is the length in tokens, at most `length`. The format is right if exactly one answer is given, as for
    `majority_vote`.

    Pitfalls: it does not depend on correctness. It rewards the format (an answer that can be extracted), and then
    padding. As a control it shows how much of another reward's gain comes from the format.

    >>> format_and_length(["<answer>4</answer>", "<answer>4</answer>", "4"], [[1] * 5, [1] * 10, [1] * 10], length=10)
    [2.0, 0.0, -1.0]
    """
    length_scores = [_length_score(min(len(ids) / length, 1.0), best) for ids in completion_ids]
    well_formed = [answer(text, tag, untagged) is not None for text in completions]
    return [
        1.0 + length_score if is_well_formed else min(0.0, length_score)
        for is_well_formed, length_score in zip(well_formed, length_scores, strict=True)
    ]


def _length_score(x: float, best: float) -> float:
    return 1 - (1 - x / best) ** 2 if x <= best else 1 - 2 * ((x - best) / (1 - best)) ** 2


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
