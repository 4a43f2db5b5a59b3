"""Lesson 2: a new symbol is a function in a file beside the recipe."""

import torch

from rlm_plugins import hookimpl


def median_baseline(rewards, group):
    """Âᵢ = rᵢ − median of its group: a single lucky completion does not move the baseline."""
    return rewards - torch.stack([rewards[group == g].median() for g in group])


@hookimpl
def rlm_advantages():
    return {"median_baseline": median_baseline}
