"""Who watches (hook ``rlm_callbacks``): transformers callbacks a recipe may add to the machine's own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlm_plugins import hookimpl
from rlm_plugins.errors import PartError

if TYPE_CHECKING:
    from transformers import TrainerCallback

    from rlm_plugins.training.run import Run


def stop_at(run: Run, *, score: float, metric: str = "accuracy") -> TrainerCallback:
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


@hookimpl
def rlm_callbacks() -> dict[str, object]:
    return {"stop_at": stop_at, "stop_when_nothing_teaches": stop_when_nothing_teaches}
