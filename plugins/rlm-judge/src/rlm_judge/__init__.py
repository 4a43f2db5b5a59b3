"""Reward models, and rewards from a language model as judge. Importing this opens no connection and loads no model."""

from rlm_judge.equivalence import JudgedEquality, answer_pairs
from rlm_judge.learned_reward import CritiqueScore, LearnedReward
from rlm_judge.preferences import CritiquePreferences, Preferences, critique_reward_model, reward_model
from rlm_judge.rewards import judge_pairwise, judge_rubric, judge_score, judge_verify
from rlm_judge.toy_sums import critiqued_sums, sums_and_verdicts
from rlm_judge.trained_verifier import TrainedVerifier
from rlm_plugins import hookimpl

__all__ = ["judge_pairwise", "judge_rubric", "judge_score", "judge_verify"]

rlm_rewards = hookimpl(
    lambda: {
        "judge_score": judge_score,
        "judge_verify": judge_verify,
        "judge_rubric": judge_rubric,
        "judge_pairwise": judge_pairwise,
        "critique_score": CritiqueScore,
        "reward_model": LearnedReward,
        "judged_equality": JudgedEquality,
    }
)
rlm_environments = hookimpl(
    lambda: {
        "sums_and_verdicts": sums_and_verdicts,
        "critiqued_sums": critiqued_sums,
        "answer_pairs": answer_pairs,
    }
)
rlm_shapers = hookimpl(lambda: {"trained_verifier": TrainedVerifier})
rlm_trainers = hookimpl(lambda: {"reward_model": Preferences, "critique_preferences": CritiquePreferences})
rlm_algorithms = hookimpl(lambda: {"reward_model": reward_model, "critique_reward_model": critique_reward_model})
