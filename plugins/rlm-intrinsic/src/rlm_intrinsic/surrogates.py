"""r: what says nothing of the answer (hook ``rlm_rewards``): form and length, and the control that knows nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from rlm_intrinsic.ballots import answer
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
    """1 for an answer in its place, and up to 1 more for a length near `best · length`.

    r = f + ℓ(n / length) where the form is right (f = 1), else min(0, ℓ): ℓ(x) = 1 − (1 − x/p)² up to p = `best`, then
    1 − 2((x − p)/(1 − p))². After «Surrogate Signals from Format and Length», arXiv 2505.19439; written down from
    memory, so hold it against the paper before you compare numbers.

    n is the length in tokens, at most `length`. The form is right where exactly one answer is given, as for
    `majority_vote`.

    Pitfalls: nothing here looks at the answer. It raises what a good form is worth (an answer that is found at all) and
    then pays for padding; it is the measure of how much of another reward's gain is form.

    >>> format_and_length(["<answer>4</answer>", "<answer>4</answer>", "4"], [[1] * 5, [1] * 10, [1] * 10], length=10)
    [2.0, 0.0, -1.0]
    """
    shapes = [_bent(min(len(ids) / length, 1.0), best) for ids in completion_ids]
    formed = [answer(text, tag, untagged) is not None for text in completions]
    return [1.0 + shape if good else min(0.0, shape) for good, shape in zip(formed, shapes, strict=True)]


def _bent(x: float, best: float) -> float:
    return 1 - (1 - x / best) ** 2 if x <= best else 1 - 2 * ((x - best) / (1 - best)) ** 2


def random_reward(
    prompt_messages: Sequence[Any],
    completions: Sequence[str],
    trainer_state: Any = None,
    *,
    probability: Share = 0.5,
    seed: int = 0,
) -> list[float]:
    """A coin: 1 with `probability`, whatever was written.

    r ~ Bernoulli(probability). The control of «Spurious Rewards», arXiv 2506.10947: run it beside any reward of this
    package. What it gains too, that reward has not earned.

    The coin is a hash of prompt, completion, step and `seed`: a resumed run throws the same, and nothing can be learnt
    from it, since the same text is paid anew at every step. Equal texts of one group share a coin.

    Pitfalls: its expected gradient is 0 only where the loss is linear in Â. A clip that cuts one side more than the
    other turns noise into a pull towards what the policy prefers already, which is why some models gain from it.
    """
    step = getattr(trainer_state, "global_step", 0)
    pairs = zip(prompt_messages, completions, strict=True)
    return [float(_uniform(repr((seed, step, prompt, text))) < probability) for prompt, text in pairs]


def _uniform(text: str) -> float:
    """A number in [0, 1) that the text decides."""
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
    return (int.from_bytes(digest) >> 11) / 2**53
