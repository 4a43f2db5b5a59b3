"""``rlm train`` and ``rlm export``: the folder of a run, its training, and its result for transformers and PEFT."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import transformers

from rlm_plugins.cli.recipe_argument import read
from rlm_plugins.durable.files import make_folder, whole
from rlm_plugins.durable.lock import locked
from rlm_plugins.durable.stop_signals import current
from rlm_plugins.errors import RlmError, nearest
from rlm_plugins.models.pretrained import CARD
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry
from rlm_plugins.report.objective_text import change_line, changes, objective, slots_of
from rlm_plugins.report.text_layout import plain
from rlm_plugins.run import stage_result
from rlm_plugins.run.folder import EVALUATIONS, Run, folder_to_resume, fresh_folder
from rlm_plugins.run.manifest import check_links, check_resumable
from rlm_plugins.run.report import change_line as score_line
from rlm_plugins.run.report import sampled_of
from rlm_plugins.run.stage_result import NOT_UPLOADED, write_model_card
from rlm_plugins.run.train import train
from rlm_plugins.stage import Stage
from rlm_plugins.trainer.checkpoint import saving
from rlm_plugins.workers.distributed import from_main_process, shutdown


def finished_stage(folder: Path, stages: Sequence[Stage], name: str | None) -> Stage:
    """Return a finished stage of a run, with its result as its model; arguments and errors of `trained_stage`."""
    trained = trained_stage(folder, stages, name)
    return replace(trained, source=replace(stage_result.result_of(trained), origin=str(trained.output)))


def trained_stage(folder: Path, stages: Sequence[Stage], name: str | None) -> Stage:
    """Return a finished stage of a run, with its initial model.

    Args:
        folder: The folder of the run.
        stages: Its composed stages.
        name: Name of a stage (``02-grpo`` or ``grpo``); None: the last finished one.

    Raises:
        RlmError: The stage is unknown or unfinished, or no stage is finished.
    """
    run = Run(folder, main=False)
    finished = [stage for stage in stage_result.connected(stages, folder) if run.finished(stage)]
    if not finished:
        raise RlmError(
            "no stage of this run is finished",
            where=str(folder),
            hint=f"resume it: `rlm train {folder} --resume`, or evaluate its start: "
            f"`rlm eval {folder / 'recipe.yaml'}`",
        )
    return named_stage(finished, name) or finished[-1]


def named_stage(stages: Sequence[Stage], name: str | None) -> Stage | None:
    """Return the stage of that name; None without a name.

    Raises:
        RlmError: No stage has that name.
    """
    if name is None:
        return None
    names = {key: stage for stage in stages for key in (stage.name, stage.name[3:])}
    if name not in names:
        allowed = ", ".join(stage.name for stage in stages)
        raise RlmError(f"unknown or unfinished stage '{name}'", allowed=allowed, hint=nearest(name, names))
    return names[name]


RUNS = Path("runs")


def launch(
    source: Path,
    overrides: Sequence[str],
    *,
    name: str | None = None,
    out: Path | None = None,
    resume: bool = False,
    allow_changed: Collection[str] = (),
) -> Run:
    """Train a recipe, or resume a run of it.

    Args:
        source: A recipe, or the folder of a run.
        overrides: ``key=value``.
        name: Name of the run; by default the recipe's.
        out: Run folder; by default ``runs/NAME``, or ``runs/NAME-2``, … if that exists.
        resume: Resume `out`, or `source` if it is a run, or the newest unfinished run of that name.
        allow_changed: Keys that may differ from the start of the run.

    Raises:
        RlmError: The recipe is invalid, or there is no run to resume.
    """
    recipe, registry = read(source, overrides, allow_changed)
    with ExitStack() as context:
        context.callback(shutdown)

        def folder() -> Path:
            if not resume:
                return _new_folder(out or RUNS / _checked(name or recipe.name), context)
            run = out or (source if source.is_dir() else folder_to_resume(RUNS, name or recipe.name))
            if not (run / "recipe.yaml").is_file():
                raise RlmError("there is no run to resume", where=str(run), hint="leave --resume out to start one")
            check_links(run)
            current().folder = run
            context.enter_context(locked(run))
            check_resumable(run, recipe, registry, allow_changed=allow_changed)
            return run

        return train(recipe, registry, from_main_process(folder), resume=resume, allow_changed=allow_changed)


def _new_folder(preferred: Path, context: ExitStack) -> Path:
    """Create and lock a folder without a run; another process may create one at the same time."""
    while True:
        folder = fresh_folder(preferred)
        make_folder(folder)
        context.enter_context(locked(folder))
        if not (folder / "recipe.yaml").exists():
            return folder


def _checked(name: str) -> str:
    """Return the name of a run.

    Raises:
        RlmError: It is not the name of a folder.
    """
    if name != Path(name).name or name in (".", ".."):
        raise RlmError(f"'{name}' is not the name of a folder", where="--name", hint="a path is set with --out")
    return name


def training_section(run: Path, stage: Stage, registry: Registry) -> str:
    """Return data, objective, differences from the published algorithm, scores, command, seed and versions.

    Args:
        run: The folder of the run.
        stage: The stage whose model is exported.
        registry: Has the published algorithm.
    """
    lines = [
        "",
        "## Training",
        "",
        f"- Data: {_named(stage.body['environment'])}",
        f"- Settings: {_settings(stage)}",
        "",
    ]
    lines += _objective(stage, registry)
    lines += ["", "## Result", "", *_result(Run(run, main=False), stage), ""]
    command = "rlm train recipe.yaml" + (" --trust" if (run / "plugins").is_dir() else "")
    lines += ["## Reproduce", "", "```bash", command, "```", ""]
    versions = json.loads((run / "manifest.json").read_text(encoding="utf-8")).get("packages", {})
    seed = (stage.body.get("trainer") or {}).get("seed", "the default, 42")
    lines += [f"Seed: {seed}. Versions: {', '.join(f'{name} {version}' for name, version in versions.items())}.", ""]
    return "\n".join(lines)


def _named(part: Mapping[str, Any]) -> str:
    """Return a part of the recipe with the knobs that are set."""
    knobs = [
        f"{name}: {plain(value)}" for name, value in part.items() if name != "name" and value not in (None, "", {})
    ]
    return f"`{part['name']}`" + (f" ({', '.join(knobs)})" if knobs else "")


def _settings(stage: Stage) -> str:
    return ", ".join(f"{name} {plain(value)}" for name, value in stage.settings.items()) or "those of TRL"


def _objective(stage: Stage, registry: Registry) -> list[str]:
    """Return the formula, and its differences from that of the published algorithm; empty without an equation."""
    if stage.equation is None:
        return []
    algorithm = stage.body["algorithm"]["name"]
    published = slots_of(registry.find("rlm_algorithms", algorithm).target, registry)
    changed = [change_line(change) for change in changes(published, vars(stage.equation))]
    title = f"Differences from `{algorithm}`:" if changed else f"No difference from `{algorithm}`."
    listed = [f"- {where}: {before} → {after}" for _, where, before, after in changed]
    return ["```text", objective(vars(stage.equation)), "```", "", title, *([""] if listed else []), *listed]


def _result(run: Run, stage: Stage) -> Iterator[str]:
    """Yield lines on the held-out scores of the stage."""
    label = f"held_out/{stage.evaluation.metric}" if stage.evaluation else ""
    scores = [r for r in run.records() if r.get("stage") == stage.name and r.get(label) is not None]
    if not scores:
        yield "No held-out score was measured."
        return
    first, last = scores[0], scores[-1]
    low, high = last["held_out/low"], last["held_out/high"]
    assert stage.evaluation is not None
    score = f"{last[label]:.4g} (95 % interval {low:.4g} to {high:.4g}, {last['held_out/rows']} examples)"
    yield f"Held-out `{stage.evaluation.metric}`, greedy: {score}; before training {first[label]:.4g}."
    if (kept_step := last.get("held_out/kept_step")) is not None:
        yield f"The model is that of step {kept_step}: the evaluation with the best lower end of the interval."
    records = [record for record in run.records(EVALUATIONS) if record.get("stage") == stage.name]
    if sampled := sampled_of(records):
        yield f"\n{score_line(*sampled[1:], sampled[0], share=False).strip()}"


HUB = "hub:"
"""Prefix of a target that is a repository of the Hugging Face hub."""


def export(run: Path, target: str, *, merge: bool = False, stage: str | None = None) -> str:
    """Write the result of a run: weights, tokenizer, resolved recipe and model card.

    Args:
        run: The folder of a run.
        target: A folder that is new or empty, or ``hub:OWNER/NAME``.
        merge: Merge the adapter into its base and write the whole model.
        stage: Name of a stage (default: the last finished one).

    Returns:
        The folder, or the address of the repository.

    Raises:
        RlmError: No stage is finished, the target is in use, the base of an adapter is in the run folder, or the hub
            refuses the upload.
    """
    transformers.utils.logging.disable_progress_bar()
    recipe, registry = read(run, ())
    trained = finished_stage(run, compose(recipe, registry), stage)
    if target.startswith(HUB):
        repository = target.removeprefix(HUB)
        with TemporaryDirectory() as temporary:
            _write(run, trained, Path(temporary), registry, merge, repository)
            return _upload(Path(temporary), repository)
    folder = Path(target)
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise RlmError("expected a new or empty folder", where=target, hint="choose another --to")
    with saving(folder), whole(folder) as staged:
        _write(run, trained, staged, registry, merge, folder.name)
    return target


def _write(run: Path, stage: Stage, folder: Path, registry: Registry, merge: bool, address: str) -> None:
    base = ""
    if stage.lora is not None and not merge:
        base = _base_of(stage)
        shutil.copytree(stage.output, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*NOT_UPLOADED))
    else:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            stage.source.load().save_pretrained(folder)
        except ValueError as error:  # transformers cannot write the weights of some quantizations
            hint = "leave --merge out: the adapter is exported, and its base quantized when it is loaded"
            raise RlmError(f"the model cannot be saved: {error}", where=str(folder), hint=hint) from None
        stage.source.processing_class().save_pretrained(folder)
    shutil.copy(run / "recipe.yaml", folder / "recipe.yaml")
    if (run / "plugins").is_dir():  # the recipe loads them from there
        shutil.copytree(run / "plugins", folder / "plugins", ignore=shutil.ignore_patterns("__pycache__"))
    write_model_card(stage, folder, base, is_adapter=bool(base), address=address)
    with (folder / CARD).open("a", encoding="utf-8") as card:
        card.write(training_section(run, stage, registry))


def _base_of(stage: Stage) -> str:
    """Return the base of an adapter: a name or a path outside the run.

    Raises:
        RlmError: The base was made by this run, so the adapter alone cannot be loaded elsewhere.
    """
    config = json.loads((stage.output / "adapter_config.json").read_text())
    base = config["base_model_name_or_path"] or ""
    run = stage.folder.parent.resolve()
    if not base or Path(base).resolve().is_relative_to(run):
        problem = "the base of this adapter was made by the run itself"
        raise RlmError(problem, where=str(stage.output), hint="--merge writes adapter and base as one model")
    return base


def _upload(folder: Path, repository: str) -> str:
    from huggingface_hub import HfApi

    try:
        api = HfApi()
        api.create_repo(repository, exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=folder, commit_message="Model from rlm export")
    except Exception as error:  # the HTTP client of huggingface_hub has exceptions of its own
        reason = (str(error).strip() or "no reason given").splitlines()[0]
        problem = f"the upload failed: {type(error).__name__}: {reason}"
        hint = "log in with `hf auth login`; without a network, export to a folder"
        raise RlmError(problem, where=HUB + repository, hint=hint) from None
    return f"{api.endpoint}/{repository}"
