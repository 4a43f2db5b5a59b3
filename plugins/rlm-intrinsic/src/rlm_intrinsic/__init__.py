"""Rewards without answers: votes, clusters and certainty, and the controls that say what they are worth."""

from rlm_intrinsic.majority import cross_view, frozen_voters, majority_vote, vote_share
from rlm_intrinsic.surrogates import format_and_length, random_reward
from rlm_plugins import hookimpl

__all__ = ["cross_view", "format_and_length", "frozen_voters", "majority_vote", "random_reward", "vote_share"]


@hookimpl
def rlm_rewards() -> dict[str, object]:
    return {
        "majority_vote": majority_vote,
        "vote_share": vote_share,
        "cross_view": cross_view,
        "frozen_voters": frozen_voters,
        "format_and_length": format_and_length,
        "random_reward": random_reward,
    }
