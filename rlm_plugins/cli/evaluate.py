"""``rlm eval``: held-out scores of a run, an adapter or a model, on its own or on other examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlm_plugins.cli.judged_model import is_recipe_or_run, model_of
from rlm_plugins.cli.recipe_argument import read
from rlm_plugins.cli.run_result import finished_stage, named_stage
from rlm_plugins.distributed import processes
from rlm_plugins.errors import RlmError
from rlm_plugins.evaluation.held_out import evaluate_stage
from rlm_plugins.evaluation.held_out_report import Report
from rlm_plugins.evaluation.sampled import SampledReport, evaluate_sampled
from rlm_plugins.evaluation.vllm_model import VllmModel
from rlm_plugins.models.auto_class import tokenizer_of
from rlm_plugins.recipe import Recipe, yaml_strict
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry
from rlm_plugins.registry.protocols import Evaluates
from rlm_plugins.specs import ModelSpec
from rlm_plugins.stage import Stage

INHERITED = ("max_completion_length", "chat_template_kwargs", "temperature", "top_p", "top_k", "min_p")
"""Settings of the trainer that a recipe of `on` takes from the run that is judged."""


@dataclass(frozen=True)
class Judgement:
    """Scores of a model on one held-out set.

    Args:
        name: Name of the set.
        stage: Stage with the examples and rewards.
        report: Greedy completions.
        sampled: Sampled completions; None: none were asked for.
    """

    name: str
    stage: Stage
    report: Report
    sampled: SampledReport | None


def evaluate(
    source: Path,
    overrides: Sequence[str] = (),
    *,
    rows: int | None = None,
    stage: str | None = None,
    k: int = 0,
    on: Sequence[Path] = (),
    prepare: Callable[[Sequence[str]], tuple[Recipe, Registry]] | None = None,
) -> list[Judgement]:
    """Evaluate a model on held-out examples; no training examples are required.

    Args:
        source: The folder of a run, for the result of its last finished stage; a recipe, for its initial model; an
            adapter, a model or a hub name, with `on`.
        overrides: ``key=value``, of the recipe that has the examples.
        rows: Maximum number of held-out examples of a set; 0: all; None: as in the recipe.
        stage: Name of another stage (``02-grpo`` or ``grpo``).
        k: Completions sampled per example, for pass@k and majority@k; 0: none.
        on: Recipes whose examples and rewards are used in place of those of `source`.
        prepare: Returns recipe and registry of a run that was given Python objects, for overrides.

    Returns:
        One entry per held-out set: the one of each recipe, then those of its `evaluation.suite`.

    Raises:
        RlmError: The stage is unknown or unfinished, or it has no evaluation.
    """
    judgements: list[Judgement] = []
    loaded: tuple[Any, Any] | None = None
    stages = (
        _stages(source, overrides, stage, on) if prepare is None else _judged_stage(source, prepare(overrides), stage)
    )
    for judged_stage in stages:
        if isinstance(judged_stage.trainer, Evaluates):
            report = judged_stage.trainer.evaluate(judged_stage, _examples(judged_stage, rows))
            judgements.append(Judgement(judged_stage.name, judged_stage, report, None))
            continue
        loaded = loaded or _load(judged_stage)
        sets = {judged_stage.name: judged_stage.environment_spec, **judged_stage.suite}
        for name, environment_spec in sets.items():
            set_stage = replace(judged_stage, environment_spec=environment_spec)
            examples = _examples(set_stage, rows)
            report = evaluate_stage(set_stage, examples, *loaded)
            sampled = evaluate_sampled(set_stage, examples, *loaded, k) if k else None
            judgements.append(Judgement(name, set_stage, report, sampled))
    return judgements


def _stages(source: Path, overrides: Sequence[str], stage: str | None, on: Sequence[Path]) -> list[Stage]:
    """Return a stage per recipe with examples, each with the model that is judged."""
    if not on and not is_recipe_or_run(source):
        if not (source / "recipe.yaml").is_file():
            hint = "`--on RECIPE` names a recipe with `environment` and `rewards`"
            raise RlmError("a model has no held-out examples of its own", where=str(source), hint=hint)
        on = [source / "recipe.yaml"]  # written by `rlm export`
    if on:
        model, trained = model_of(source, stage, ())
        return [_checked(_stage_on(recipe, overrides, model, trained), recipe) for recipe in on]
    return _judged_stage(source, read(source, overrides), stage)


def _judged_stage(source: Path, loaded: tuple[Recipe, Registry], stage: str | None) -> list[Stage]:
    """Return the stage of a run or a recipe that is judged on its own examples."""
    stages = compose(*loaded, held_out_only=True)
    judged_stage = (
        finished_stage(source, stages, stage) if source.is_dir() else named_stage(stages, stage) or stages[-1]
    )
    return [_checked(judged_stage, source)]


def _stage_on(recipe: Path, overrides: Sequence[str], model: ModelSpec, trained: Stage | None) -> Stage:
    """Return the last stage of a recipe that can be evaluated, with a model in place of its own."""
    document = yaml_strict.read(recipe).data
    body = document if isinstance(document, dict) else {}
    defaults = {"model": "scratch", "algorithm": "grpo"}
    added = [f"{key}={value}" for key, value in defaults.items() if key not in body and "stages" not in body]
    stages = compose(*read(recipe, [*added, *overrides]), held_out_only=True, source=model)
    stage = next((s for s in reversed(stages) if s.evaluation is not None), stages[-1])
    settings = trained.settings if trained is not None else {}
    inherited = {name: settings[name] for name in INHERITED if name in settings}
    return replace(stage, name=recipe.stem, settings={**inherited, **stage.settings})


def _checked(stage: Stage, source: Path) -> Stage:
    if stage.evaluation is None:
        raise RlmError(
            f"stage {stage.name} cannot be evaluated: no held-out examples, no rewards, or `evaluation: null`",
            where=str(source),
        )
    return stage


def _examples(stage: Stage, rows: int | None) -> list[Any]:
    assert stage.evaluation is not None
    return list(stage.environment_spec.test)[: (stage.evaluation.rows if rows is None else rows) or None]


def _load(stage: Stage) -> tuple[Any, Any]:
    """Return model and tokenizer; the model is vLLM's with `generator: vllm`."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    processing_class = stage.source.processing_class()
    if stage.settings.get("use_vllm") and stage.source.processor is not None:
        hint = "trainer.use_vllm=false"
        raise RlmError("vLLM judges models of text alone here", where="trainer.use_vllm", hint=hint)
    if stage.settings.get("use_vllm"):
        return VllmModel(stage.source.load(), tokenizer_of(processing_class)), processing_class
    return stage.source.load().to(processes().device), processing_class
