"""Transformers callbacks that a recipe may add to those of every run (hook ``rlm_callbacks``)."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import PositiveInt

from rlm_plugins import hookimpl
from rlm_plugins.equation.knobs import RewardName, named
from rlm_plugins.errors import PartError
from rlm_plugins.lazy import transformers

_LOG = logging.getLogger(__name__)
_CONSTANT = (
    "reward '%s' has paid %g to every completion of %d steps, so nothing is learned from it. hint: print a completion "
    "in the reward; of a chat it is a list of messages, and a prompt that is text gets no chat template"
)

if TYPE_CHECKING:
    from rlm_plugins.equation.batch import Batch
    from rlm_plugins.run.folder import Run
    from rlm_plugins.stage import Stage


def stop_at(run: Run, *, score: float, metric: RewardName = "accuracy") -> transformers.TrainerCallback:
    """End a stage once the held-out `metric` reaches `score` (`evaluation:` sets how often it is measured)."""

    class StopAt(transformers.TrainerCallback):  # type: ignore[misc]
        """A callback that compares the latest evaluation with the score after each step."""

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            control.should_training_stop |= run.held_out.get(metric, -math.inf) >= score

    return StopAt()


def warn_of_constant_rewards(steps: int = 3) -> transformers.TrainerCallback:
    """Return a callback that warns once of each reward whose every completion has earned one score for `steps` steps.

    It is that of the trainers with TRL's constructors; the run of a recipe has the diagnosis.
    """
    first: dict[str, float] = {}
    decided: set[str] = set()

    class ConstantRewards(transformers.TrainerCallback):  # type: ignore[misc]
        """A callback that compares the logged mean of each reward with its first one."""

        def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, float], **kwargs: Any) -> None:
            names = [key[8:-4] for key in logs if key.startswith("rewards/") and key.endswith("/std")]
            for name in [name for name in names if name not in decided]:
                std, mean = logs[f"rewards/{name}/std"], logs[f"rewards/{name}/mean"]
                if std != 0 or mean != first.setdefault(name, mean):  # without a score both are NaN
                    decided.add(name)
                elif state.global_step >= steps:
                    decided.add(name)
                    if state.is_world_process_zero:
                        _LOG.warning(_CONSTANT, name, mean, state.global_step)

    return ConstantRewards()


def stop_at_zero_advantage(*, steps: PositiveInt = 20) -> transformers.TrainerCallback:
    """End a run with an error after `steps` logged steps in which every advantage was zero.

    All groups are then solved, or none is. Without this callback such a run continues with loss 0 and exit code 0.
    """

    class StopAtZeroAdvantage(transformers.TrainerCallback):  # type: ignore[misc]
        """A callback that counts consecutive logged steps without any nonzero advantage."""

        zero_steps = 0

        def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, float], **kwargs: Any) -> None:
            if "advantage/nonzero" not in logs:
                return
            self.zero_steps = 0 if logs["advantage/nonzero"] > 0 else self.zero_steps + 1
            if self.zero_steps >= steps:
                raise PartError(
                    f"all advantages have been 0 for {self.zero_steps} steps",
                    where=f"callbacks: stop_at_zero_advantage, step {state.global_step}",
                    hint=f"mean reward {logs.get('reward')}: make the prompts harder if it is high, easier if low",
                )

    return StopAtZeroAdvantage()


def keep_successes(
    run: Run, *, reward: RewardName | None = None, at_least: float = 1.0
) -> transformers.TrainerCallback:
    """Save every complete (not truncated) completion of the policy with a high reward: a pool for `replay`.

    They are appended to ``successes.jsonl`` in the run's folder, one JSON line each: stage, step, prompt (as in the
    data set), completion, reward. `reward` names the reward that decides, unweighted and unshaped; by default the
    shaped sum.
    """

    def keep(stage: Stage, step: int, prompts: Sequence[Any], completions: Sequence[Any], batch: Batch) -> None:
        from rlm_plugins.rewards.columns import text_of
        from rlm_plugins.workers.distributed import gather_lists

        scores = batch.rewards if reward is None else named(batch.named_rewards, reward, where="keep_successes.reward")
        good = (scores >= at_least) & ~batch.truncated & batch.sources["policy"]
        indices = good.nonzero().squeeze(1).tolist()
        successes = [(prompts[i], text_of(completions[i]), scores[i].item()) for i in indices]
        for prompt, completion, score in gather_lists(successes):
            entry = {"stage": stage.name, "step": step, "prompt": prompt, "completion": completion, "reward": score}
            run.append("successes.jsonl", entry)

    run.observers.append(keep)
    return transformers.TrainerCallback()


keep_successes.produces = "successes"  # type: ignore[attr-defined]


@hookimpl
def rlm_callbacks() -> dict[str, object]:
    return {"stop_at": stop_at, "stop_at_zero_advantage": stop_at_zero_advantage, "keep_successes": keep_successes}
