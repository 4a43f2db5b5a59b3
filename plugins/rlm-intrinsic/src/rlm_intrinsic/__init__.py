"""Rewards without reference answers: votes, certainty, and a control reward for comparison."""

from rlm_intrinsic.certainty import (
    em_ft,
    entropy_reshaped,
    ettrl,
    random_reward,
    rlsc,
    self_certainty,
    self_confidence,
    token_entropy,
    token_entropy_loss,
)
from rlm_intrinsic.co_learners import CoLearners
from rlm_intrinsic.language import language_consistency
from rlm_intrinsic.majority import majority_vote, vote_share
from rlm_plugins import hookimpl

rlm_rewards = hookimpl(
    lambda: {
        "majority_vote": majority_vote,
        "vote_share": vote_share,
        "random_reward": random_reward,
        "language_consistency": language_consistency,
    }
)
rlm_shapers = hookimpl(
    lambda: {"self_certainty": self_certainty, "token_entropy": token_entropy, "co_learners": CoLearners}
)
rlm_advantages = hookimpl(lambda: {"entropy_reshaped": entropy_reshaped})
rlm_policy_losses = hookimpl(lambda: {"self_confidence": self_confidence, "token_entropy_loss": token_entropy_loss})
rlm_algorithms = hookimpl(lambda: {"rlsc": rlsc, "em_ft": em_ft, "ettrl": ettrl})
