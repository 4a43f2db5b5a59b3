"""Dense rewards: the contribution of each step or token of a completion."""

from pathlib import Path

from rlm_plugins import hookimpl
from rlm_plugins.specs import read_algorithms
from rlm_process.advantages import step_relative, tree, turn_relative
from rlm_process.prime import ImplicitReward, outcome_and_process
from rlm_process.process_model import ProcessReward, ProcessRewards
from rlm_process.state_values import step_labels, vine
from rlm_process.step_supervision import StepSupervision
from rlm_process.sums import right_lines, sums
from rlm_process.tree_rollout import AttentionTree, EntropyTree, Tree
from rlm_process.turn_and_step_rewards import PerStep, PerTurn, tool_calls, tool_format
from rlm_process.turn_branches import TurnBranches

ALGORITHMS = read_algorithms(Path(__file__).parent / "algorithms.toml")
"""Name → algorithm."""

rlm_environments = hookimpl(lambda: {"sums": sums})
rlm_rewards = hookimpl(
    lambda: {
        "process_model": ProcessReward,
        "tool_format": tool_format,
        "tool_calls": tool_calls,
        "right_lines": right_lines,
    }
)
rlm_shapers = hookimpl(
    lambda: {
        "implicit_reward": ImplicitReward,
        "process_model": ProcessRewards,
        "step_labels": step_labels,
        "per_turn": PerTurn,
        "per_step": PerStep,
    }
)
rlm_advantages = hookimpl(
    lambda: {
        "outcome_and_process": outcome_and_process,
        "vine": vine,
        "step_relative": step_relative,
        "tree": tree,
        "turn_relative": turn_relative,
    }
)
rlm_rollouts = hookimpl(
    lambda: {
        "tree": Tree,
        "entropy_tree": EntropyTree,
        "attention_tree": AttentionTree,
        "turn_branches": TurnBranches,
    }
)
rlm_algorithms = hookimpl(lambda: ALGORITHMS)
rlm_trainers = hookimpl(lambda: {"step_supervision": StepSupervision})
