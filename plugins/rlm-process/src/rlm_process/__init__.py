"""Dense rewards: what a step or a token of an answer was worth."""

from rlm_plugins import hookimpl
from rlm_process import step_rows
from rlm_process.branching import Tree
from rlm_process.implicit import ImplicitReward
from rlm_process.labels import step_labels
from rlm_process.paid import PerStep, PerTurn
from rlm_process.prime import outcome_and_process, prime
from rlm_process.process import step_relative
from rlm_process.process_model import ProcessReward, ProcessRewards
from rlm_process.sums import right_lines, sums
from rlm_process.supervision import StepSupervision, process_reward_model
from rlm_process.tools import tool_calls, tool_format
from rlm_process.trees import tree
from rlm_process.turns import turn_relative
from rlm_process.vine import vine


@hookimpl
def rlm_environments() -> dict[str, object]:
    return {"sums": sums}


@hookimpl
def rlm_rewards() -> dict[str, object]:
    return {
        "process_model": ProcessReward,
        "tool_format": tool_format,
        "tool_calls": tool_calls,
        "right_lines": right_lines,
    }


@hookimpl
def rlm_shapers() -> dict[str, object]:
    return {
        "implicit_reward": ImplicitReward,
        "process_model": ProcessRewards,
        "step_labels": step_labels,
        "per_turn": PerTurn,
        "per_step": PerStep,
    }


@hookimpl
def rlm_advantages() -> dict[str, object]:
    return {
        "outcome_and_process": outcome_and_process,
        "vine": vine,
        "step_relative": step_relative,
        "tree": tree,
        "turn_relative": turn_relative,
    }


@hookimpl
def rlm_rollouts() -> dict[str, object]:
    return {
        "tree": Tree,
    }


@hookimpl
def rlm_algorithms() -> dict[str, object]:
    return {
        "prime": prime,
        "vine_ppo": step_rows.vine_ppo,
        "tree": step_rows.tree,
        "gigpo": step_rows.gigpo,
        "process_reward_model": process_reward_model,
    }


@hookimpl
def rlm_trainers() -> dict[str, object]:
    return {"step_supervision": StepSupervision}
