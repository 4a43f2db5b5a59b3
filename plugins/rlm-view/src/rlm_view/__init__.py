"""A run as one HTML file, and training steps stored whole, to be viewed and replayed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from rlm_plugins import hookimpl
from rlm_plugins.registry.setting import Section
from rlm_view import commands


class Capsules(Section):
    """Training steps stored whole, for `rlm view`. A step that a fault ends always is."""

    on_by_default = True

    def __init__(
        self,
        *,
        every: Annotated[int, Field(ge=0, description="optimizer steps between capsules; 0: only at a fault")] = 0,
    ) -> None:
        self._every = every

    def observers(self, stage: Any) -> Sequence[Any]:
        from rlm_view.recorder import CapsuleRecorder

        return [CapsuleRecorder(stage, self._every)]


rlm_sections = hookimpl(lambda: {"capsule": Capsules})
rlm_commands = hookimpl(lambda: {"view": commands.view})
