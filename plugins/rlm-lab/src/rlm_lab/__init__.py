"""Commands that explain recipes, diagnose runs and compare them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlm_lab import explain_commands, model_commands, run_commands
from rlm_plugins import hookimpl
from rlm_plugins.registry.setting import Section


class Diagnosis(Section):
    """Findings of `rlm why`: in `rlm check` those of settings and data, in a run each as soon as it is certain."""

    on_by_default = True

    def warnings(self, stage: Any) -> Sequence[str]:
        from rlm_lab import live

        return live.warnings(stage)

    def callbacks(self, stage: Any, run: Any, console: Any) -> Sequence[Any]:
        from rlm_lab import live

        return [live.LiveDiagnosis(stage, console, run)]


rlm_sections = hookimpl(lambda: {"diagnosis": Diagnosis})


PANELS: dict[str, dict[str, Any]] = {
    "Start": {"signal": run_commands.signal},
    "Look": {
        "why": run_commands.why,
        "compare": run_commands.compare,
        "sweep": run_commands.sweep,
        "eval": model_commands.evaluate,
        "sample": model_commands.sample,
    },
    "Extend": {"explain": explain_commands.explain, "lesson": explain_commands.lesson, "new": run_commands.new},
    "Ship": {"doctor": run_commands.doctor, "export": model_commands.export, "launch": model_commands.launch},
}


@hookimpl
def rlm_commands() -> Mapping[str, Any]:
    commands = {}
    for panel, members in PANELS.items():
        for name, command in members.items():
            commands[name] = command
            command.panel = panel
    return commands
