"""``rlm signal``: is there anything to learn from the start of a recipe, and what to change if not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rlm_plugins.cli.recipe_argument import read
from rlm_plugins.errors import RlmError
from rlm_plugins.evaluation.held_out_report import score_text
from rlm_plugins.recipe.compose import compose
from rlm_plugins.report.text_layout import columns
from rlm_plugins.run import stage_result
from rlm_plugins.run.folder import Run
from rlm_plugins.run.signal import measure_signal
from rlm_plugins.stage import Stage

FEW = 0.5
"""Share of groups with a signal, and of ended completions, below which the report advises a change."""


def signal(
    source: Path, overrides: Sequence[str] = (), *, prompts: int = 24, stage: str | None = None
) -> dict[str, Any]:
    """Return the signal of the initial policy of a stage, with advice.

    Args:
        source: A recipe; or the folder of a run, for a stage after finished ones.
        overrides: ``key=value``.
        prompts: Number of training prompts.
        stage: Name of the stage (``02-grpo`` or ``grpo``); default: the first one with rewards that can start.

    Raises:
        RlmError: The stage starts from one that is not trained, or samples nothing.
    """
    import transformers

    transformers.utils.logging.disable_progress_bar()
    recipe, registry = read(source, overrides)
    stages = compose(recipe, registry)
    number = _stage_index(stages, stage)
    for index in range(number + 1):
        stages[index].folder = source / stages[index].name
        stage_result.connect(stages[index], stages[:index])
    if number and not (source.is_dir() and Run(source, main=False).finished(stages[number - 1])):
        raise RlmError(
            f"stage {stages[number].name} starts from the result of {stages[number - 1].name}, which is not trained",
            where=str(source),
            hint=f"`rlm train {source}`, then `rlm signal` with the folder of the run",
        )
    figures = measure_signal(stages[number], prompts).figures()
    return {**figures, "advice": list(advice(figures))}


def _stage_index(stages: Sequence[Stage], name: str | None) -> int:
    sampling = [i for i, stage in enumerate(stages) if stage.equation is not None and stage.rewards]
    named = [i for i, stage in enumerate(stages) if name in (stage.name, stage.name[3:])]
    number = (named or [-1])[0] if name is not None else (sampling or [-1])[0]
    if number not in sampling:
        problem = "no stage of this recipe samples completions" if name is None else f"no stage '{name}' that samples"
        raise RlmError(problem, allowed=", ".join(stages[i].name for i in sampling))
    return number


def advice(figures: dict[str, Any]) -> Iterator[str]:
    """Yield what to change, most important first; nothing if there is a signal."""
    prompts, size, nothing = figures["prompts"], figures["group_size"], figures["groups_without_reward"]
    limit = figures["max_tokens"]
    if nothing == prompts:
        yield (
            f"no completion of {prompts} prompts earned anything, so there is nothing to learn from: easier prompts, a "
            "reward that takes more forms of an answer, or a stage of demonstrations first (`algorithm: sft`)"
        )
    elif nothing:
        yield (
            f"{nothing} of {prompts} prompts have no completion with a reward: easier prompts, more completions per "
            f"prompt (trainer.num_generations={2 * size}), or `filters: [{{name: nonzero_std, refill: 4}}]`"
        )
    if alike := figures["groups_alike_otherwise"]:
        yield f"the completions of {alike} of {prompts} prompts earn the same: harder prompts, or a finer reward"
    if figures["ended"] < FEW:
        longer = f"trainer.max_completion_length={4 * limit}" if limit else "a larger `max_completion_length`"
        yield (
            f"{1 - figures['ended']:.0%} of the completions are cut: {longer}, or a prompt that asks for less; "
            "harmless if the reward takes an unfinished completion"
        )
    for label, mean in figures["rewards"].items():
        if mean is None:
            yield f"the reward '{label}' applied to no completion: check the columns that it reads"
        elif mean == 0 and nothing < prompts:
            yield f"the reward '{label}' is 0 for all completions: it has no effect until that changes"


def render(data: dict[str, Any]) -> str:
    """Return the report as text; it ends with what to change."""
    share, size = data["is_share"], data["group_size"]
    means = ", ".join(f"{label} {'–' if mean is None else f'{mean:.3g}'}" for label, mean in data["rewards"].items())
    differ, limit = data["groups_that_differ"], data["max_tokens"]
    best = "–" if data["pass_at_g"] is None else score_text(data["pass_at_g"], share=share)
    seconds = data["seconds_per_step"]
    total = f", {data['steps']} steps take about {data['steps'] * seconds / 60:.1f} min" if data["steps"] > 0 else ""
    signal = f"{differ} of {data['prompts']} groups have completions with different rewards"
    rows = [
        ("reward", f"mean {data['reward']:.3g} ({means})"),
        (f"pass@{size}" if share else f"best of {size}", f"{best} of the prompts" if share else best),
        ("signal", signal if size > 1 else "groups of one: the advantage compares with other prompts"),
        ("ended", f"{data['ended']:.0%} of the completions"),
        ("tokens", f"{data['tokens']:.1f} on average" + (f", at most {limit}" if limit else "")),
        ("seconds a step", f"{seconds:.1f}{total}"),
    ]
    title = (
        f"{data['stage']}: {data['prompts']} prompts × {size} completions of the initial policy; nothing was trained"
    )
    changes = [f"  - {line}" for line in data["advice"]]
    closing = ["to change:", *changes] if changes else ["nothing to change: most groups have a signal"]
    return "\n".join([title, columns(rows), *closing])
