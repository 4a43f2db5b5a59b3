"""Section ``teacher:`` of a recipe: what one or several teachers say of the completions of the policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from string import Formatter
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt

from rlm_plugins.errors import TRAIN_ADAPTER, RecipeError
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.setting import Section

GROUP_BEST = "group_best"
"""Name in the prompt of a teacher: the first other completion of the group that earned `success`."""
HELD_OUT = 32
"""Held-out prompts on which teacher and policy are compared before the first step."""
ON_POLICY_BASE = ("base", "live", "ema")
"""Teachers that are the policy's base with another adapter."""


class Teacher(Section):
    """A teacher, which reads the policy's completions after its own prompt. Parts name `teacher_logp`.

    A teacher on the policy's base costs no memory (`base`, `live`) or that of an adapter. Several are selected by a
    column: ``{by: task, of: {math: ./math, code: {model: ./code}}}``; keys beside `of` are then those of all.
    """

    needs_equation = True

    def __init__(
        self,
        *,
        model: Annotated[
            str,
            Field(
                description="base: the policy without its adapter; live: the policy itself; ema: its running average; "
                "a folder or hub name, of an adapter or of a model with the same tokenizer; an address http://…/v1; "
                "or a part of the hook rlm_teachers"
            ),
        ] = "base",
        prompt: Annotated[
            str | None,
            Field(description="template of its prompt: {prompt}, columns by name, {group_best}; default: the prompt"),
        ] = None,
        ema: Annotated[float, Field(gt=0, le=1, description="weight of the policy in a step of the average")] = 0.05,
        success: Annotated[float, Field(description="reward of a completion that {group_best} may show")] = 1.0,
        top: Annotated[
            PositiveInt | Literal[0, "all"],
            Field(description="tokens at which it is compared: 0: the sampled one; the k likeliest; or all"),
        ] = 0,
        support: Annotated[
            Literal["teacher", "policy"], Field(description="whose k likeliest tokens: the policy's before the update")
        ] = "teacher",
        options: Annotated[
            dict[str, Any] | None, Field(description="knobs of a part of rlm_teachers, or of an address")
        ] = None,
        same_as: Annotated[
            str | None, Field(description="weights that an address or part must agree with, as for `model`")
        ] = None,
        resident: Annotated[
            bool, Field(description="false: a model's weights are loaded for each generation batch, and freed after it")
        ] = True,
        by: Annotated[str | None, Field(description="column whose value selects the teacher of a row")] = None,
        of: Annotated[dict[str, Any] | None, Field(description="value of that column → model, or keys as here")] = None,
    ) -> None:
        self.model, self.prompt, self.ema, self.success = model, prompt, ema, success
        self.top, self.support, self.options = top, support, options or {}
        self.same_as, self.by, self.resident = same_as, by, resident
        self.part: Bound | None = None
        common = {"prompt": prompt, "ema": ema, "success": success, "resident": resident}
        self.of = {value: Teacher(**{**common, **_entry(value, spec)}) for value, spec in (of or {}).items()}
        if bool(by) != bool(of):
            raise RecipeError("`by` and `of` belong together", where="teacher", hint="{by: COLUMN, of: {VALUE: MODEL}}")
        names = [name for _, name, _, _ in Formatter().parse(prompt or "") if name is not None]
        self.own_columns = [name for name in names if name not in ("prompt", GROUP_BEST)]
        self.reads_group = GROUP_BEST in names
        self.columns = sorted({*([by] if by else []), *(x for one in self.teachers() for x in one.own_columns)})
        of_top = ("teacher_top_ids", "teacher_top_logp", "top_logp") if top != "all" else ("divergence_of",)
        self.provides = ("teacher_logp", "has_teacher", *(of_top if top else ()))

    def teachers(self) -> list[Teacher]:
        """Return the teachers: those of `of`, or this one alone."""
        return list(self.of.values()) or [self]

    def find_parts(self, registry: Registry, where: str) -> None:
        """Find the part of the hook `rlm_teachers` that `model` names, or the endpoint at that address."""
        for one in self.teachers():
            is_address = one.model.startswith(("http://", "https://"))
            name = "endpoint" if is_address else one.model
            if one.model not in ON_POLICY_BASE and registry.offers("rlm_teachers", name):
                knobs = {**({"url": one.model} if is_address else {}), **one.options}
                one.part = registry.find("rlm_teachers", name).bind(knobs, where=f"{where}.options")

    def settings(self, stage: Any, args: Any) -> Mapping[str, Any]:
        for one in self.teachers():
            one.check_model(stage)
            if self.top and one.part is not None:
                problem = f"`{one.model}` scores the sampled tokens only"
                raise RecipeError(problem, where="teacher.top", hint="leave `top` out, or give local weights")
        if self.top == "all" and not self.resident:
            problem = "the head of the teacher is needed in every update of `top: all`"
            raise RecipeError(problem, where="teacher.resident", hint="leave it out, or set a number of tokens")
        if self.top == "all" and self.of:
            problem = "the whole vocabulary is compared with one teacher only"
            raise RecipeError(problem, where="teacher.top", hint="set a number of tokens: `top: 32`")
        data = stage.environment_spec.train
        example: Mapping[str, Any] = next(iter(data), {})
        missing = [name for name in self.columns if name not in example]
        if missing:
            allowed = ", ".join(["prompt", GROUP_BEST, *(name for name in example if name != "prompt")])
            raise RecipeError(f"the data has no column '{missing[0]}'", where="teacher.prompt", allowed=allowed)
        values = {str(row[self.by]) for row in data} if self.by and hasattr(data, "__len__") else set()
        if lacking := sorted(values - {*self.of}):
            problem = f"the column '{self.by}' has the value '{lacking[0]}', for which there is no teacher"
            raise RecipeError(problem, where="teacher.of", allowed=", ".join(self.of))
        return {}

    def check_model(self, stage: Any) -> None:
        """Check that the policy is an adapter where the teacher is its base."""
        if self.part is None and self.options:
            raise RecipeError(f"`{self.model}` has no options", where="teacher.options", hint="leave it out")
        if stage.lora is None and self.model in ("base", "ema"):
            problem = f"`model: {self.model}` is the policy's base with another adapter, but all weights are trained"
            raise RecipeError(problem, where="teacher.model", hint=TRAIN_ADAPTER)
        if self.model == "ema" and stage.lora.get("use_dora"):
            problem = "the average of DoRA adapters is not supported"
            raise RecipeError(problem, where="teacher.model", hint="use_dora: false")

    def warnings(self, stage: Any) -> Sequence[str]:
        """Return a line if no part reads the teacher, and one on memory that the estimate leaves out."""
        return list(self._warnings(stage))

    def _warnings(self, stage: Any) -> Iterator[str]:
        if not any(stage.equation.requires(name) for name in self.provides):
            yield "teacher: no part of the algorithm reads it; it only costs time"
        for one in self.teachers():
            if one.model == "live" and one.prompt is None:
                yield "teacher: the policy with its own prompt is no teacher: every log-ratio is 0 before an update"
            if one.weights(stage) is None:
                yield f"teacher: the weights of {one.model} are not part of the memory estimate"
            elif not one.resident and one.weights(stage):
                yield f"teacher: {one.weights(stage) or 0:,} bytes of {one.model} are in memory while it scores"

    def memory_bytes(self, stage: Any) -> int:
        """Return the bytes beside the policy during the whole run: weights, and hidden states of `top: all`."""
        weights = sum(one.weights(stage) or 0 for one in self.teachers() if one.resident or is_adapter(one.model))
        if self.top != "all":
            return weights
        from rlm_plugins.trainer.options import arguments

        args, config = arguments(stage), stage.source.config.get_text_config()
        tokens = args.per_device_train_batch_size * args.steps_per_generation * (args.max_completion_length or 0)
        return weights + 4 * int(tokens * config.hidden_size)

    def weights(self, stage: Any) -> int | None:
        """Return the bytes of the weights of this teacher alone; None if its config cannot be read."""
        from rlm_plugins.models.scratch import skeleton, trained_bytes

        config = stage.source.config
        if self.model == "ema":
            return int(trained_bytes(skeleton(config, {**stage.lora, "r": 2 * stage.lora.get("r", 8)})))
        if self.model in ON_POLICY_BASE or self.part is not None:
            return 0
        if is_adapter(self.model):
            return sum(file.stat().st_size for file in Path(self.model).glob("*.safetensors"))
        from transformers import AutoConfig

        try:
            own = AutoConfig.from_pretrained(self.model, trust_remote_code=False)
        except (OSError, ValueError):
            return None
        own.dtype = config.dtype
        return sum(x.numel() * x.element_size() for x in skeleton(own, None).parameters())

    def observers(self, stage: Any) -> Sequence[Any]:
        from rlm_algorithms.teacher_scoring import TeacherScoring

        is_compared = stage.rewards and not stage.environment_spec.multi_turn
        held_out = stage.environment_spec.test if is_compared else ()
        return [TeacherScoring(self, stage.folder / "teacher", [*islice(held_out, HELD_OUT)])]


def _entry(value: str, spec: Any) -> dict[str, Any]:
    """Return an entry of `of` as keys of a teacher."""
    entry = {"model": spec} if isinstance(spec, str) else spec
    allowed = ("model", "prompt", "ema", "success", "options", "same_as", "resident")
    if not isinstance(entry, Mapping) or not {*entry} <= {*allowed}:
        problem = f"the teacher '{value}' is a model, or a mapping"
        raise RecipeError(problem, where=f"teacher.of.{value}", allowed=f"keys {', '.join(allowed)}")
    return dict(entry)


def is_adapter(path: str) -> bool:
    """Return True if PEFT saved an adapter in the folder."""
    return (Path(path) / "adapter_config.json").is_file()
