"""The folder of a run: recipe, versions, logs, checkpoints and results.

::

    runs/demo/
      recipe.yaml      the resolved recipe: every knob of every part; it reproduces the run.
      manifest.json    versions of Python, of the packages and of the plugins.
      metrics.jsonl    one line per logged step: {"stage", "step", …}.
      samples.jsonl    completions with every reward's share.
      faults.jsonl     samples on which a reward failed, with its output or error.
      successes.jsonl  successful completions for `replay`, if the callback `keep_successes` is in the recipe.
      curve.png        held-out score and reward over the steps.
      summary.json     held-out score before and after, seconds.
      02-grpo/         a stage: its checkpoints, then its adapter (or model).
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import platform
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlm_plugins.errors import RlmError
from rlm_plugins.rewards.columns import text_of

if TYPE_CHECKING:
    from rlm_plugins.batch import Batch
    from rlm_plugins.stage import Stage
from rlm_plugins.recipe.yaml_scalars import dump

PACKAGES = ("rlm-plugins", "torch", "trl", "transformers", "peft", "accelerate", "datasets")
SAMPLES_PER_STEP = 4
LOGS = {"metrics.jsonl": "held_out/rows", "samples.jsonl": "completion", "successes.jsonl": "completion"}
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
    """

    folder: Path
    main: bool = True
    held_out: dict[str, float] = field(default_factory=dict)
    observers: list[Callable[..., None]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Name of the run: that of its folder."""
        return self.folder.name

    def open(self, document: Mapping[str, Any], plugins: Mapping[str, str], files: Sequence[Path] = ()) -> None:
        """Create the folder with the resolved recipe, its single-file plugins and the manifest.

        Args:
            document: The resolved recipe.
            plugins: Plugin name → distribution and version, of the plugins in use.
            files: Single-file plugins, copied beside the recipe.
        """
        if not self.main:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            (self.folder / "plugins").mkdir(exist_ok=True)
            shutil.copy(file, self.folder / "plugins" / file.name)
        (self.folder / "recipe.yaml").write_text(dump(dict(document)), encoding="utf-8")
        manifest = {
            "python": sys.version.split()[0],
            "platform": platform.platform(),
            "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
            "plugins": dict(plugins),
        }
        (self.folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")

    def log(self, **record: Any) -> None:
        """Append one line to metrics.jsonl."""
        self.append("metrics.jsonl", record)

    def observe(
        self, stage: Stage, step: int, prompts: Sequence[Any], completions: Sequence[Any], batch: Batch
    ) -> None:
        """Append the first completions of a generation batch to samples.jsonl, with the share of each reward."""
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
                    "rewards": raw,
                    "shares": {label: raw[label] * weight for label, weight in weights.items()},
                    "reward": batch.rewards[number].item(),
                    "advantage": batch.advantages[number].mean().item(),
                },
            )

    def note(self, stage: Stage, faults: Sequence[Mapping[str, Any]]) -> None:
        """Append samples on which a reward failed to faults.jsonl."""
        for fault in faults:
            self.append("faults.jsonl", {"stage": stage.name, **fault})

    def records(self, file: str = "metrics.jsonl") -> list[dict[str, Any]]:
        """Return the lines of a log, oldest first; a line that a killed process left incomplete is skipped."""
        path = self.folder / file
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def rewind(self, stage: Stage, step: int) -> None:
        """Remove from the logs the lines that a stage wrote after its checkpoint at `step`."""
        if not self.main:
            return
        for file, early_key in LOGS.items():
            old = self.records(file)
            # A line that is written before its step is complete is repeated at `step` itself, all others after it.
            kept = [r for r in old if r["stage"] != stage.name or r["step"] < step + (early_key not in r)]
            if kept != old:
                lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in kept)
                (self.folder / file).write_text("".join(lines), "utf-8")

    def finish(self, stage: Stage) -> None:
        """Mark a stage as complete: a resumed run skips it."""
        if self.main:
            (self.folder / stage.name / "done").touch()

    def finished(self, stage: Stage) -> bool:
        """Return True if the stage is complete."""
        return (self.folder / stage.name / "done").exists()

    def summarize(self, **figures: Any) -> None:
        """Write summary.json."""
        if self.main:
            (self.folder / "summary.json").write_text(json.dumps(_plain(figures), indent=2, ensure_ascii=False) + "\n")

    def append(self, file: str, record: Mapping[str, Any]) -> None:
        """Append one line to a log; only the main process writes."""
        if self.main:
            with (self.folder / file).open("a", encoding="utf-8") as handle:
                handle.write(json.dumps(_plain(record), ensure_ascii=False) + "\n")


def fresh_folder(path: Path) -> Path:
    """Return `path`, or `path-2`, … : a folder without a run, so that no run is ever overwritten.

    Raises:
        RlmError: `path` is a file.
    """
    if path.is_file():
        raise RlmError("expected a folder, got a file", where=str(path), hint="choose another --out")
    folder, number = path, 1
    while folder.exists() and any(folder.iterdir()):
        number += 1
        folder = path.with_name(f"{path.name}-{number}")
    return folder


def _plain(value: Any) -> Any:
    """Return a value with null for NaN and infinity, which JSON lacks."""
    if isinstance(value, Mapping):
        return {name: _plain(x) for name, x in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(x) for x in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
