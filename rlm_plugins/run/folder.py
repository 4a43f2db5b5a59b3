"""A run folder: everything needed to read a run, to judge it and to go on with it.

::

    runs/demo/
      recipe.yaml      the resolved recipe: every knob of every part; it runs again as it stands
      manifest.json    versions of Python, of the packages and of the plugins the run used
      metrics.jsonl    one line per logged step: {"stage", "step", …}
      samples.jsonl    completions with every reward's share
      faults.jsonl     samples on which a reward failed: what it said, or raised
      successes.jsonl  every good completion, where the callback `keep_successes` keeps them: a pool to replay
      curve.png        held-out score and reward over the steps
      summary.json     held-out score before and after, seconds
      02-grpo/         a stage: checkpoints while it runs, then its adapter (or model)
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
LEDGERS = {"metrics.jsonl": "held_out/rows", "samples.jsonl": "completion", "successes.jsonl": "completion"}
"""Ledger → a key of the lines that are written before the step they are of is done."""


@dataclass
class Run:
    """One run and its folder. Only the main process writes.

    Args:
        folder: Where it lies.
        main: Whether this process writes.
        held_out: The latest held-out score of each reward, on every process.
        observers: Are shown every scored generation batch, on every process: (stage, step, prompts, completions,
            batch), the rows being those of the process.
    """

    folder: Path
    main: bool = True
    held_out: dict[str, float] = field(default_factory=dict)
    observers: list[Callable[..., None]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name it is known by: that of its folder."""
        return self.folder.name

    def open(self, document: Mapping[str, Any], plugins: Mapping[str, str], files: Sequence[Path] = ()) -> None:
        """Starts the folder: the resolved recipe, the single files it loads, the manifest.

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
        """Appends one line to metrics.jsonl."""
        self.append("metrics.jsonl", record)

    def observe(
        self, stage: Stage, step: int, prompts: Sequence[Any], completions: Sequence[Any], batch: Batch
    ) -> None:
        """Appends the first completions of a generation batch to samples.jsonl, each reward's share beside it."""
        for observer in self.observers:
            observer(stage, step, prompts, completions, batch)
        weights = {reward.label: reward.weight for reward in stage.rewards}
        for row in range(min(SAMPLES_PER_STEP, len(completions))):
            raw = {label: batch.named_rewards[label][row].item() for label in weights}
            self.append(
                "samples.jsonl",
                {
                    "stage": stage.name,
                    "step": step,
                    "prompt": text_of(prompts[row]),
                    "completion": text_of(completions[row]),
                    "rewards": raw,
                    "shares": {label: raw[label] * weight for label, weight in weights.items()},
                    "reward": batch.rewards[row].item(),
                    "advantage": batch.advantages[row].mean().item(),
                },
            )

    def note(self, stage: Stage, faults: Sequence[Mapping[str, Any]]) -> None:
        """Appends samples on which a reward failed to faults.jsonl."""
        for fault in faults:
            self.append("faults.jsonl", {"stage": stage.name, **fault})

    def records(self, file: str = "metrics.jsonl") -> list[dict[str, Any]]:
        """The lines of a ledger, oldest first; one that a killed process left half written is passed over."""
        path = self.folder / file
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def rewind(self, stage: Stage, step: int) -> None:
        """Takes out of the ledgers what a stage wrote after its checkpoint at `step`: it will happen again."""
        if not self.main:
            return
        for file, again in LEDGERS.items():
            old = self.records(file)
            kept = [r for r in old if r["stage"] != stage.name or r["step"] < step + (again not in r)]
            if kept != old:
                (self.folder / file).write_text(
                    "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in kept), "utf-8"
                )

    def finish(self, stage: Stage) -> None:
        """Notes that a stage is complete, so that a resumed run passes it by."""
        if self.main:
            (self.folder / stage.name / "done").touch()

    def finished(self, stage: Stage) -> bool:
        """Whether the stage has been completed before."""
        return (self.folder / stage.name / "done").exists()

    def summarise(self, **figures: Any) -> None:
        """Writes summary.json."""
        if self.main:
            (self.folder / "summary.json").write_text(json.dumps(_plain(figures), indent=2, ensure_ascii=False) + "\n")

    def append(self, file: str, record: Mapping[str, Any]) -> None:
        """Appends one line to a ledger; only the main process writes."""
        if self.main:
            with (self.folder / file).open("a", encoding="utf-8") as handle:
                handle.write(json.dumps(_plain(record), ensure_ascii=False) + "\n")


def fresh_folder(wanted: Path) -> Path:
    """`wanted`, or `wanted-2`, … : a folder that holds no run yet, so that nothing is ever written over.

    Raises:
        RlmError: `wanted` is a file.
    """
    if wanted.is_file():
        raise RlmError("a run needs a folder, and this is a file", where=str(wanted), hint="choose another --out")
    folder, number = wanted, 1
    while folder.exists() and any(folder.iterdir()):
        number += 1
        folder = wanted.with_name(f"{wanted.name}-{number}")
    return folder


def _plain(value: Any) -> Any:
    """JSON has neither NaN nor infinity: what is no number becomes null."""
    if isinstance(value, Mapping):
        return {name: _plain(x) for name, x in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(x) for x in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
