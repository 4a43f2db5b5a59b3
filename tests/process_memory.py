"""Train a recipe in this process and print the estimated and the measured peak of its memory, as JSON.

Arguments: recipe, run folder, overrides.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from rlm_fast.speed import Memory

from rlm_plugins import recipe
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry
from rlm_plugins.run.train import train
from rlm_plugins.stage import Place
from rlm_plugins.trainer.options import arguments


def peaks(file: Path, folder: Path, overrides: list[str]) -> dict[str, int]:
    """Return the largest estimate of the stages, and the highest resident memory of this process, in bytes."""
    found = recipe.load(file, overrides)
    registry = Registry(found.load)
    stages, estimated = compose(found, registry), 0
    for stage in stages:
        stage = replace(stage, place=Place(folder))
        estimated = max(estimated, Memory().check_data(stage, arguments(stage))["peak"])
    train(found, registry, folder)
    highest = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM"))
    return {"estimated": estimated, "measured": int(highest.split()[1]) * 1024}


if __name__ == "__main__":
    print(json.dumps(peaks(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])))
