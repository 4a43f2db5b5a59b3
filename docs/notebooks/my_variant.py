# %% [markdown]
# # My variant
#
# An advantage of your own: a function, then the laws that it must obey, its exact gradient, and a run beside the
# original.

# %%
import torch
from rlm_testing.conformance_kit import find_violation, report
from rlm_testing.law import Subject, battery

import rlm_plugins as rlm
from rlm_plugins.registry.part import Part


def median_baseline(rewards, group):
    """Â = r − median of the group: a single lucky completion does not move the baseline."""
    return rewards - torch.stack([rewards[group == g].median() for g in group])


def of_the_batch(rewards):
    """Â = r − median of the batch, which a group alone would not have."""
    return rewards - rewards.median()


# %% [markdown]
# ## The laws of its hook
#
# `violations` searches for the smallest batch that shows a violation.


# %%
def violations(function):
    """Return the report of each law of an advantage that a function violates."""
    subject = Subject(Part("rlm_advantages", function.__name__, "notebook", function))
    found = [(law, find_violation(law, subject)) for law in battery(subject)]
    return [report(law, subject, broken) for law, broken in found if broken]


print(*violations(of_the_batch), sep="\n\n")
assert not violations(median_baseline)

# %% [markdown]
# ## What it does to the gradient
#
# `rlm explain --bias` sums over every group of a policy with seven completions. Their rewards are 0 or 1, so every
# baseline points along the exact gradient: bias 0. Scale is the size of the step, std the noise of one group.

# %%
from dataclasses import replace

from rlm_lab.oracle import equation_of, oracle

from rlm_plugins.registry import Registry

plain = equation_of("leave_one_out", Registry())
mine = replace(plain, advantage=Part("rlm_advantages", "median_baseline", "notebook", median_baseline).bind({}))
exact = {name: oracle(equation)["gradients"][0] for name, equation in {"plain": plain, "mine": mine}.items()}
exact

# %% [markdown]
# ## Two runs that differ in one symbol

# %%
recipe = {
    "model": {"name": "scratch", "hidden": 16, "heads": 2, "intermediate": 16},
    "environment": {"name": "addition", "digits": 2, "test_rows": 4},
    "rewards": ["accuracy", {"name": "format", "weight": 0.2}],
    "trainer": {"max_steps": 2, "num_generations": 4, "per_device_train_batch_size": 8, "max_completion_length": 6},
    "evaluation": {"max_new_tokens": 6, "every": 1},
}
algorithms = {"grpo": "grpo", "median": {"name": "grpo", "advantage": median_baseline}}
runs = {
    name: rlm.train({**recipe, "algorithm": algorithm}, out=f"runs/{name}") for name, algorithm in algorithms.items()
}
runs
