"""Rewards without reference answers: votes, certainty, and a control reward for comparison."""

from rlm_intrinsic.certainty import self_certainty, token_entropy
from rlm_intrinsic.co_learners import CoLearners
from rlm_intrinsic.entropy_advantages import clipped_group_relative, entropy_reshaped, ettrl
from rlm_intrinsic.majority import majority_vote, vote_share
from rlm_intrinsic.path_consistency import PathConsistency
from rlm_intrinsic.self_confidence import em_ft, rlsc, self_confidence, token_entropy_loss
from rlm_intrinsic.surrogates import random_reward
from rlm_plugins import hookimpl


@hookimpl
def rlm_rewards() -> dict[str, object]:
    """Return the rewards of this package by name."""
    return {
        "majority_vote": majority_vote,
        "vote_share": vote_share,
        "path_consistency": PathConsistency,
        "random_reward": random_reward,
    }


@hookimpl
def rlm_shapers() -> dict[str, object]:
    """Return the shapers of this package by name."""
    return {"self_certainty": self_certainty, "token_entropy": token_entropy, "co_learners": CoLearners}


@hookimpl
def rlm_advantages() -> dict[str, object]:
    """Return the advantages of this package by name."""
    return {"entropy_reshaped": entropy_reshaped, "clipped_group_relative": clipped_group_relative}


@hookimpl
def rlm_policy_losses() -> dict[str, object]:
    """Return the policy losses of this package by name."""
    return {"self_confidence": self_confidence, "token_entropy_loss": token_entropy_loss}


@hookimpl
def rlm_algorithms() -> dict[str, object]:
    """Return the algorithms of this package by name."""
    return {"rlsc": rlsc, "em_ft": em_ft, "ettrl": ettrl}
