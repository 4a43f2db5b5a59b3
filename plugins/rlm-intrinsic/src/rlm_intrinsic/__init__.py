"""Rewards without reference answers: votes, certainty, consistency of language, and a control for comparison."""

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
from rlm_intrinsic.majority import language_consistency, majority_vote, vote_share
from rlm_plugins import hookimpl

rlm_rewards = hookimpl(
    lambda: {f.__name__: f for f in (majority_vote, vote_share, random_reward, language_consistency)}
)
rlm_shapers = hookimpl(
    lambda: {"self_certainty": self_certainty, "token_entropy": token_entropy, "co_learners": CoLearners}
)
rlm_advantages = hookimpl(lambda: {"entropy_reshaped": entropy_reshaped})
rlm_policy_losses = hookimpl(lambda: {"self_confidence": self_confidence, "token_entropy_loss": token_entropy_loss})
rlm_algorithms = hookimpl(lambda: {"rlsc": rlsc, "em_ft": em_ft, "ettrl": ettrl})
