"""Prompt sampling (hook ``rlm_samplers``): the order of an epoch, or a choice before every generation batch."""

from __future__ import annotations

from rlm_plugins import hookimpl
from rlm_plugins.builtin.tracked_baseline import Curriculum, Prioritized
from rlm_plugins.functional.epoch_order import in_order, shuffled


@hookimpl
def rlm_samplers() -> dict[str, object]:
    return {"shuffled": shuffled, "in_order": in_order, "prioritized": Prioritized, "curriculum": Curriculum}
