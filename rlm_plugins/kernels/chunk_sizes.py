"""How much is done at once by a packed pass; numbers that the estimate of memory must know too, without torch."""

from __future__ import annotations

from collections.abc import Sequence

LOGITS, LOGITS_GPU = 2**21, 2**27
"""Most logits that exist at a time; a GPU wants larger pieces."""
TOKENS = 64
"""But of so many tokens at least: a product with fewer spends its time on taking a large head in."""
PAIRS, PAIRS_GPU = 2**12, 2**18
"""Most pairs of tokens that attention may look at in vain, before two calls are cheaper than one."""

PRODUCTS = 2**30
"""Most products of a token and a weight that micro-batches read together have: so few that a CPU spends much of a
micro-batch's time on calls."""


def logits(vocabulary: int, *, gpu: bool) -> int:
    """How many logits exist at a time at most.

    >>> logits(151_936, gpu=False) // 151_936
    64
    """
    return max(LOGITS_GPU if gpu else LOGITS, TOKENS * vocabulary)


def runs(lengths: Sequence[int], pairs: int = PAIRS) -> list[list[int]]:
    """Which completions of a prompt are attended to in one call; the first goes with the prompt, and is alone.

    Tokens of different completions do not see each other, so that a call for several looks at pairs in vain; but a
    call costs time too, which is all the time there is where completions are short.

    Args:
        lengths: Tokens of each completion, in order.
        pairs: As `PAIRS` has it.

    >>> runs([30, 30, 30, 100, 5, 5])
    [[30], [30, 30], [100, 5, 5]]
    """
    found = [list(lengths[:1])]
    for length in lengths[1:]:
        if len(found) > 1 and 2 * sum(found[-1]) * length <= pairs:
            found[-1].append(length)
        else:
            found.append([length])
    return found
