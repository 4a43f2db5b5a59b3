"""Who watches (hook ``rlm_callbacks``): transformers callbacks a recipe may add to the machine's own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlm_plugins import hookimpl
from rlm_plugins.annotations import RewardName, named
from rlm_plugins.errors import PartError

if TYPE_CHECKING:
    from transformers import TrainerCallback

    from rlm_plugins.batch import Batch
    from rlm_plugins.run.folder import Run
    from rlm_plugins.stage import Stage


def stop_at(run: Run, *, score: float, metric: RewardName = "accuracy") -> TrainerCallback:
    """Ends a stage once the held-out `metric` has reached `score` (see `evaluation:` for how often it is measured)."""
    from transformers import TrainerCallback

    class StopAt(TrainerCallback):  # type: ignore[misc]
        """Compares the latest evaluation after each step."""

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            control.should_training_stop |= run.held_out.get(metric, -math.inf) >= score

    return StopAt()


def stop_when_nothing_teaches(*, steps: int = 20) -> TrainerCallback:
    """Ends a run whose every advantage has been zero for `steps` logged steps: all groups solved, or all hopeless.

    Such a run goes on for ever otherwise, with loss 0 and exit code 0. It ends as an error that says so.
    """
    from transformers import TrainerCallback

    class StopWhenNothingTeaches(TrainerCallback):  # type: ignore[misc]
        """Counts logged steps in a row without a lesson."""

        idle = 0

        def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, float], **kwargs: Any) -> None:
            if "advantage/nonzero" not in logs:
                return
            self.idle = 0 if logs["advantage/nonzero"] > 0 else self.idle + 1
            if self.idle >= steps:
                raise PartError(
                    f"no row has had an advantage other than 0 for {self.idle} steps",
                    where=f"callbacks: stop_when_nothing_teaches, step {state.global_step}",
                    hint=f"mean reward {logs.get('reward')}: make the problems harder if it is high, easier if low",
                )

    return StopWhenNothingTeaches()


def keep_successes(run: Run, *, reward: RewardName | None = None, at_least: float = 1.0) -> TrainerCallback:
    """Keeps every completion of the policy that came to an end and is good enough: a pool for `replay`.

    They are written to ``successes.jsonl`` in the run's folder, one JSON line each: stage, step, prompt (as in the data
    set), completion, reward. `reward` names the one that decides, unweighted and unshaped; by default their shaped sum.
    """
    from transformers import TrainerCallback

    def keep(stage: Stage, step: int, prompts: Sequence[Any], completions: Sequence[Any], batch: Batch) -> None:
        from accelerate.utils import gather_object

        from rlm_plugins.distributed import processes
        from rlm_plugins.rewards.columns import text_of

        scores = batch.rewards if reward is None else named(batch.named_rewards, reward, where="keep_successes.reward")
        good = (scores >= at_least) & ~batch.truncated & batch.sources["policy"]
        found = [(prompts[i], text_of(completions[i]), scores[i].item()) for i in good.nonzero().squeeze(1).tolist()]
        for prompt, completion, score in gather_object(found) if processes().num_processes > 1 else found:
            entry = {"stage": stage.name, "step": step, "prompt": prompt, "completion": completion, "reward": score}
            run.append("successes.jsonl", entry)

    run.observers.append(keep)
    return TrainerCallback()


@hookimpl
def rlm_callbacks() -> dict[str, object]:
    return {
        "stop_at": stop_at,
        "stop_when_nothing_teaches": stop_when_nothing_teaches,
        "keep_successes": keep_successes,
    }
