"""Section ``teacher:`` of a recipe: log-probs of a teacher for the completions of the policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Formatter
from typing import Annotated, Any

from pydantic import Field

from rlm_plugins.errors import RecipeError
from rlm_plugins.registry.setting import Section

GROUP_BEST = "group_best"
"""Name in the prompt of a teacher: the first other completion of the group that earned `success`."""


class Teacher(Section):
    """A teacher, which reads the policy's completions after its own prompt. Parts name `teacher_logp`.

    A teacher on the policy's base costs no memory (`base`, `live`) or that of an adapter.
    """

    needs_equation = True
    provides = ("teacher_logp", "has_teacher")

    def __init__(
        self,
        *,
        model: Annotated[
            str,
            Field(
                description="base: the policy without its adapter; live: the policy itself; ema: its running average; "
                "or a folder or hub name, of an adapter or of a model with the same tokenizer"
            ),
        ] = "base",
        prompt: Annotated[
            str | None,
            Field(description="template of its prompt: {prompt}, columns by name, {group_best}; default: the prompt"),
        ] = None,
        ema: Annotated[float, Field(gt=0, le=1, description="weight of the policy in a step of the average")] = 0.05,
        success: Annotated[float, Field(description="reward of a completion that {group_best} may show")] = 1.0,
    ) -> None:
        self.model, self.prompt, self.ema, self.success = model, prompt, ema, success
        names = [name for _, name, _, _ in Formatter().parse(prompt or "") if name is not None]
        self.columns = [name for name in names if name not in ("prompt", GROUP_BEST)]
        self.reads_group = GROUP_BEST in names

    def settings(self, stage: Any, args: Any) -> Mapping[str, Any]:
        """Check the section against the stage, before any weight is loaded."""
        if stage.lora is None and self.model in ("base", "ema"):
            problem = f"`model: {self.model}` is the policy's base with another adapter, but all weights are trained"
            raise RecipeError(problem, where="teacher.model", hint="train an adapter: `model: {lora: {r: 16}}`")
        if self.model == "ema" and stage.lora.get("use_dora"):
            problem = "the average of DoRA adapters is not supported"
            raise RecipeError(problem, where="teacher.model", hint="use_dora: false")
        example: Mapping[str, Any] = next(iter(stage.environment_spec.train), {})
        missing = [name for name in self.columns if name not in example]
        if missing:
            allowed = ", ".join(["prompt", GROUP_BEST, *(name for name in example if name != "prompt")])
            raise RecipeError(f"the data has no column '{missing[0]}'", where="teacher.prompt", allowed=allowed)
        return {}

    def warnings(self, stage: Any) -> Sequence[str]:
        """Return a line if no part reads the teacher, and one on memory that the estimate leaves out."""
        lines = []
        if not any(stage.equation.requires(name) for name in self.provides):
            lines.append("teacher: no part of the algorithm reads it; it only costs time")
        if self.model == "live" and self.prompt is None:
            lines.append("teacher: the policy with its own prompt is no teacher: every log-ratio is 0 before an update")
        if self.model not in ("base", "live", "ema") and not is_adapter(self.model):
            lines.append(f"teacher: the weights of {self.model} are not part of the memory estimate")
        return lines

    def observers(self, stage: Any) -> Sequence[Any]:
        """Return the observer that scores the completions."""
        from rlm_algorithms.teacher_scoring import TeacherScoring

        return [TeacherScoring(self)]


def is_adapter(path: str) -> bool:
    """Return True if PEFT saved an adapter in the folder."""
    return (Path(path) / "adapter_config.json").is_file()
