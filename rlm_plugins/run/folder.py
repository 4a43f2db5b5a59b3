"""The folder of a run: recipe, versions, logs, checkpoints and results.

::

    runs/demo/
      recipe.yaml      the resolved recipe: every knob of every part; it reproduces the run.
      manifest.json    its origin: command, commit, versions, hashes; see manifest.py.
      lock             host and process that write at present.
      plugins/         copies of the single-file plugins; the run loads these.
      metrics.jsonl    one line per logged step: {"stage", "step", …}.
      evaluations.jsonl  held-out scores of each prompt, and of its sampled completions.
      samples.jsonl    completions with the other columns of their examples, and every reward's share.
      faults.jsonl     samples on which a reward failed, with its output or error.
      successes.jsonl  successful completions for `replay`, if the callback `keep_successes` is in the recipe.
      console.txt      if the terminal was lost: why, and the warnings and errors after it.
      curve.png        held-out score and reward over the steps.
      pass_at_k.png    pass@k before and after training, if completions were sampled.
      summary.json     held-out score before and after, seconds.
      02-grpo/         a stage: its checkpoints, then its adapter (or model), each with checksums.json; then `done`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlm_plugins.durable.files import JsonLines, file_errors, make_folder, plain, seal_digest, write_file
from rlm_plugins.durable.lock import check_place
from rlm_plugins.errors import RecipeError, RlmError
from rlm_plugins.recipe.yaml_strict import dump
from rlm_plugins.rewards.columns import text_of

if TYPE_CHECKING:
    from rlm_plugins.equation.batch import Batch
    from rlm_plugins.stage import Stage


SAMPLES_PER_STEP = 4
DONE = "done"
MANIFEST = "manifest.json"
SUMMARY = "summary.json"
EVALUATIONS = "evaluations.jsonl"
BASE = {"base": "other base weights", "tokenizer": "another tokenizer or chat template"}
"""Entries of a stage in the manifest that must not change → what differs, for errors."""
LOGS = {
    "metrics.jsonl": "held_out/rows",
    EVALUATIONS: "scores",
    "samples.jsonl": "completion",
    "successes.jsonl": "completion",
}
"""Log file → a key of those lines that are written before their step is complete."""


@dataclass
class Run:
    """One run and its folder. Only the main process writes.

    Args:
        folder: Path of the folder.
        main: True if this process writes.
        held_out: The latest held-out score of each reward, on every process.
        observers: Functions called with every scored generation batch of this process: (stage, step, prompts,
            completions, batch).
        log_line: Called with a line about each damaged log.
        allowed: Keys that may differ from the start of the run.
    """

    folder: Path
    main: bool = True
    held_out: dict[str, float] = field(default_factory=dict)
    observers: list[Callable[..., None]] = field(default_factory=list)
    log_line: Callable[[str], None] = print
    allowed: Collection[str] = ()
    _logs: dict[str, JsonLines] = field(default_factory=dict, init=False, repr=False)

    @property
    def name(self) -> str:
        """Name of the run: that of its folder."""
        return self.folder.name

    def open(self, manifest: Mapping[str, Any], files: Sequence[Path] = ()) -> None:
        """Create the folder with the resolved recipe, its single-file plugins and the manifest."""
        if not self.main:
            return
        make_folder(self.folder)
        for file in files:
            make_folder(self.folder / "plugins")
            with file_errors(file, "read"):
                content = file.read_bytes()
            write_file(self.folder / "plugins" / file.name, content)
        self._write_manifest(manifest)
        write_file(self.folder / "recipe.yaml", dump(dict(manifest["recipe"])))  # last: with it the folder is a run

    def record(self, stage: Stage, **entries: Any) -> None:
        """Write entries about a stage (digests, settings) into the manifest."""
        if not self.main:
            return
        manifest = self.manifest()
        stages = manifest.setdefault("stages", {})
        for kind, difference in BASE.items():
            recorded, current = stages.get(stage.name, {}).get(kind), entries.get(kind)
            key = f"{kind}.{stage.name}"
            if recorded and current and recorded != current and not {key, kind} & set(self.allowed):
                raise RlmError(
                    f"{difference} than at the start of the stage: {recorded[:12]}… then, {current[:12]}… now",
                    where=f"{self.folder}: {stage.name}",
                    hint=f"restore the model of the recipe, or add --allow-changed {key}",
                )
        stages[stage.name] = {**stages.get(stage.name, {}), **json.loads(json.dumps(plain(entries), default=str))}
        self._write_manifest(manifest)

    def _write_manifest(self, manifest: Mapping[str, Any]) -> None:
        write_file(self.folder / MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")

    def log(self, **record: Any) -> None:
        """Append one line to metrics.jsonl."""
        self.append("metrics.jsonl", record)

    def observe(
        self,
        stage: Stage,
        step: int,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        batch: Batch,
        columns: Sequence[Mapping[str, Any]],
    ) -> None:
        """Append the first completions of a generation batch to samples.jsonl, with columns and shares of rewards."""
        for observer in self.observers:
            observer(stage, step, prompts, completions, batch)
        weights = {reward.label: reward.weight for reward in stage.rewards}
        for number in range(min(SAMPLES_PER_STEP, len(completions))):
            raw = {label: batch.named_rewards[label][number].item() for label in weights}
            self.append(
                "samples.jsonl",
                {
                    "stage": stage.name,
                    "step": step,
                    "prompt": text_of(prompts[number]),
                    "completion": text_of(completions[number]),
                    "columns": columns[number],
                    "rewards": raw,
                    "shares": {label: raw[label] * weight for label, weight in weights.items()},
                    "reward": batch.rewards[number].item(),
                    "advantage": batch.advantages[number].mean().item(),
                },
            )

    def log_faults(self, stage: Stage, faults: Sequence[Mapping[str, Any]]) -> None:
        """Append samples on which a reward failed to faults.jsonl."""
        for fault in faults:
            self.append("faults.jsonl", {"stage": stage.name, **fault})

    def records(self, file: str = "metrics.jsonl") -> list[dict[str, Any]]:
        """Return the lines of a log, oldest first; a damaged line is reported with its number and left out."""
        return self._log(file).records()

    def rewind(self, stage: Stage, step: int) -> None:
        """Remove from the logs the lines that a stage wrote after its checkpoint at `step`."""
        if not self.main:
            return
        for file, early_key in LOGS.items():

            def is_final(record: dict[str, Any], early_key: str = early_key) -> bool:
                """Return False for a line that the resumed stage writes again."""
                line_step = record.get("step")
                is_before = not isinstance(line_step, int) or line_step < step + (early_key not in record)
                return record.get("stage") != stage.name or is_before

            self._log(file).keep(is_final)

    def finish(self, stage: Stage) -> None:
        """Mark a stage as complete, with a digest of its result: a resumed run skips it."""
        if self.main:
            self.sync()
            make_folder(self.folder / stage.name)
            result = {"result": seal_digest(stage.output)}
            write_file(self.folder / stage.name / DONE, json.dumps(result) + "\n")

    def finished(self, stage: Stage) -> bool:
        """Return True if the stage is complete."""
        return (self.folder / stage.name / DONE).exists()

    def owner_of(self, stage: Stage) -> str:
        """Return the name under which a stage seals its checkpoints."""
        return f"{self.manifest().get('id')} {stage.name}"

    def manifest(self) -> dict[str, Any]:
        """Return manifest.json."""
        file = self.folder / MANIFEST
        try:
            with file_errors(file, "read"):
                manifest = json.loads(file.read_bytes())
        except (ValueError, RecursionError):
            manifest = None
        sections = ("recipe", "stages", "code", "data", "version", "packages")
        if not isinstance(manifest, dict) or any(not isinstance(manifest.get(key, {}), dict) for key in sections):
            hint = "restore the file from a copy of the run"
            raise RlmError("expected a JSON object of objects", where=str(file), hint=hint)
        return manifest

    def summarize(self, **figures: Any) -> None:
        """Write summary.json."""
        if self.main:
            write_file(self.folder / SUMMARY, json.dumps(plain(figures), indent=2, ensure_ascii=False) + "\n")

    def append(self, file: str, record: Mapping[str, Any]) -> None:
        """Append one line to a log; only the main process writes."""
        if self.main:
            check_place(self.folder)
            self._log(file).append(record)

    def sync(self) -> None:
        """Write the logs to disk."""
        check_place(self.folder)
        for log in self._logs.values():
            log.sync()

    def _log(self, file: str) -> JsonLines:
        if file not in self._logs:
            self._logs[file] = JsonLines(self.folder / file, self.log_line)
        return self._logs[file]


def fresh_folder(path: Path) -> Path:
    """Return `path`, or `path-2`, … : a folder without a run, so that no run is ever overwritten."""
    with file_errors(path, "used"):
        if os.path.lexists(path) and not path.is_dir():
            actual = "a link to nothing" if path.is_symlink() and not path.exists() else "a file"
            raise RlmError(f"expected a folder, got {actual}", where=str(path), hint="choose another --out")
        folder, number = path, 1
        while os.path.lexists(folder) and (not folder.is_dir() or any(folder.iterdir())):
            number += 1
            folder = path.with_name(f"{path.name}-{number}")
    return folder


def folder_to_resume(runs: Path, name: str) -> Path:
    """Return the folder of the newest unfinished run named `name` (or `name-2`, …)."""
    names = re.compile(rf"{re.escape(name)}(-\d+)?")
    folders = [recipe.parent for recipe in runs.glob("*/recipe.yaml") if names.fullmatch(recipe.parent.name)]
    unfinished = [folder for folder in folders if not (folder / SUMMARY).exists()]
    if folders and not unfinished:
        newest = max(folders, key=lambda folder: folder.stat().st_mtime)
        raise RecipeError(
            "nothing to resume: this run is finished", where=str(newest), hint="leave --resume out to start another one"
        )
    if not unfinished:
        raise RecipeError(
            "nothing to resume: no unfinished run of this recipe",
            where=str(runs / name),
            hint="leave --resume out to start one, or name the folder with --out",
        )
    return max(unfinished, key=lambda folder: folder.stat().st_mtime)
