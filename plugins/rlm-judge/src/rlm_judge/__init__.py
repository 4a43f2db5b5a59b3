"""Reward models, and rewards from a language model as judge. Importing this opens no connection and loads no model."""

from rlm_judge.critique_score import CritiqueScore
from rlm_judge.critique_trainer import CritiquePreferences, critique_reward_model
from rlm_judge.equivalence import JudgedEquality, answer_pairs
from rlm_judge.learned_reward import LearnedReward
from rlm_judge.pairwise import judge_pairwise
from rlm_judge.preferences import Preferences, reward_model
from rlm_judge.rubrics import judge_rubric
from rlm_judge.single import judge_score, judge_verify
from rlm_judge.toy_sums import critiqued_sums, sums_and_verdicts
from rlm_judge.trained_verifier import TrainedVerifier
from rlm_plugins import hookimpl

__all__ = ["judge_pairwise", "judge_rubric", "judge_score", "judge_verify"]


@hookimpl
def rlm_rewards() -> dict[str, object]:
    """Return the rewards of this package by name."""
    return {
        "judge_score": judge_score,
        "judge_verify": judge_verify,
        "judge_rubric": judge_rubric,
        "judge_pairwise": judge_pairwise,
        "critique_score": CritiqueScore,
        "reward_model": LearnedReward,
        "judged_equality": JudgedEquality,
    }


@hookimpl
def rlm_environments() -> dict[str, object]:
    """Return the environments of this package by name."""
    return {
        "sums_and_verdicts": sums_and_verdicts,
        "critiqued_sums": critiqued_sums,
        "answer_pairs": answer_pairs,
    }


@hookimpl
def rlm_shapers() -> dict[str, object]:
    """Return the shapers of this package by name."""
    return {"trained_verifier": TrainedVerifier}


@hookimpl
def rlm_trainers() -> dict[str, object]:
    """Return the trainers of this package by name."""
    return {"reward_model": Preferences, "critique_preferences": CritiquePreferences}


@hookimpl
def rlm_algorithms() -> dict[str, object]:
    """Return the algorithms of this package by name."""
    return {"reward_model": reward_model, "critique_reward_model": critique_reward_model}
