"""``rlm export``: the result of a run as a folder or a repository for transformers and PEFT."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import transformers

from rlm_lab.part_changes import change_line, changes
from rlm_plugins.durable.files import whole
from rlm_plugins.errors import RlmError
from rlm_plugins.models.pretrained import CARD
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry
from rlm_plugins.report.objective_text import objective, slots_of
from rlm_plugins.report.text_layout import plain
from rlm_plugins.run.folder import EVALUATIONS, Run
from rlm_plugins.run.launch import finished_stage
from rlm_plugins.run.recipe_argument import read
from rlm_plugins.run.report import change_line as score_line
from rlm_plugins.run.report import sampled_of
from rlm_plugins.run.stage_result import NOT_UPLOADED, write_model_card
from rlm_plugins.stage import Stage
from rlm_plugins.trainer.checkpoint import saving


def training_section(run: Path, stage: Stage, registry: Registry) -> str:
    """Return data, objective, differences from the published algorithm, scores, command, seed and versions.

    Args:
        run: The folder of the run.
        stage: The stage whose model is exported.
        registry: Has the published algorithm.
    """
    settings = ", ".join(f"{name} {plain(value)}" for name, value in stage.settings.items()) or "those of TRL"
    lines = ["", "## Training", "", f"- Data: {_named(stage.body['environment'])}"]
    lines += [f"- Settings: {settings}", "", *_objective(stage, registry)]
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
    """Return the base of an adapter: a name or a path outside the run."""
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
