"""Implementation variants of other libraries (hook ``rlm_algorithms``): ``grpo@trl`` is `grpo` with TRL's numbers.

One rule: a value that a library's code fixes, or its default for this algorithm, is the library's (the std, eps, the
advantage of a singleton group, dual clip, the aggregation). A value that its user sets (ε, β, k) stays the
algorithm's, unless the library defines it differently. Differences that no knob covers are in the pitfalls. Versions:
trl 1.16.0, verl 0.9.1, openrlhf 0.11.2; for the others the commit is given.
"""

from __future__ import annotations

from rlm_plugins import hookimpl
from rlm_plugins.algorithm import Algorithm
from rlm_plugins.builtin import conventions_openrlhf as openrlhf
from rlm_plugins.builtin import conventions_others as others
from rlm_plugins.builtin import conventions_trl as trl
from rlm_plugins.builtin import conventions_verl as verl
from rlm_plugins.builtin import conventions_verl_losses as verl_losses


@hookimpl
def rlm_algorithms() -> dict[str, Algorithm]:
    return {
        **trl.algorithms(),
        **verl.algorithms(),
        **verl_losses.algorithms(),
        **openrlhf.algorithms(),
        **others.algorithms(),
    }
