"""Dense rewards: the contribution of each step or token of a completion."""

from pathlib import Path

from rlm_plugins import hookimpl
from rlm_plugins.specs import Algorithm, read_algorithms
from rlm_process.attention_tree import AttentionTree
from rlm_process.entropy_tree import EntropyTree
from rlm_process.implicit_reward import ImplicitReward
from rlm_process.prime import outcome_and_process
from rlm_process.process_model import ProcessReward, ProcessRewards
from rlm_process.sampled_labels import step_labels
from rlm_process.step_relative import step_relative
from rlm_process.step_supervision import StepSupervision
from rlm_process.sums import right_lines, sums
from rlm_process.tool_rewards import tool_calls, tool_format
from rlm_process.tree_advantage import tree
from rlm_process.tree_rollout import Tree
from rlm_process.turn_advantage import turn_relative
from rlm_process.turn_and_step_rewards import PerStep, PerTurn
from rlm_process.turn_branches import TurnBranches
from rlm_process.vine import vine

ALGORITHMS = read_algorithms(Path(__file__).parent / "algorithms.toml")
"""Name → algorithm."""


@hookimpl
def rlm_environments() -> dict[str, object]:
    """Return the environments of this package by name."""
    return {"sums": sums}


@hookimpl
def rlm_rewards() -> dict[str, object]:
    """Return the rewards of this package by name."""
    return {
        "process_model": ProcessReward,
        "tool_format": tool_format,
        "tool_calls": tool_calls,
        "right_lines": right_lines,
    }


@hookimpl
def rlm_shapers() -> dict[str, object]:
    """Return the shapers of this package by name."""
    return {
        "implicit_reward": ImplicitReward,
        "process_model": ProcessRewards,
        "step_labels": step_labels,
        "per_turn": PerTurn,
        "per_step": PerStep,
    }


@hookimpl
def rlm_advantages() -> dict[str, object]:
    """Return the advantages of this package by name."""
    return {
        "outcome_and_process": outcome_and_process,
        "vine": vine,
        "step_relative": step_relative,
        "tree": tree,
        "turn_relative": turn_relative,
    }


@hookimpl
def rlm_rollouts() -> dict[str, object]:
    """Return the rollout sources of this package by name."""
    return {
        "tree": Tree,
        "entropy_tree": EntropyTree,
        "attention_tree": AttentionTree,
        "turn_branches": TurnBranches,
    }


@hookimpl
def rlm_algorithms() -> dict[str, Algorithm]:
    """Return the algorithms of this package by name."""
    return ALGORITHMS


@hookimpl
def rlm_trainers() -> dict[str, object]:
    """Return the trainers of this package by name."""
    return {"step_supervision": StepSupervision}
