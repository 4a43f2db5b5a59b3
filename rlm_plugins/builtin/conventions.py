"""Rows as other libraries compute them (hook ``rlm_algorithms``): ``grpo@trl`` is `grpo` with TRL's numbers.

One rule: what a library's code decides, or its default where one asks there for this algorithm by name, is the
library's (the std, eps, what a group of one is worth, dual clip, the sum); what its user sets (ε, β, k) stays the
row's, unless the library counts it otherwise. What no knob can say stands in the row's pitfalls. Versions: trl 1.16.0,
verl 0.9.1, openrlhf 0.11.2; of the others the commit that was read.
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
    return {**trl.rows(), **verl.rows(), **verl_losses.rows(), **openrlhf.rows(), **others.rows()}
