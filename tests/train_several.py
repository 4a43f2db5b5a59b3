"""Train several recipes, one after another, in the present processes: `train_several.py JOBS.json`.

A process takes longer to start than a tiny run to train, so tests that compare runs on one and two processes start
them once.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from rlm_plugins.run.recipe_argument import read
from rlm_plugins.run.train import train
from rlm_plugins.workers.distributed import shutdown

Job = tuple[str, str, Sequence[str]]
"""A recipe, the folder of its run, overrides."""


def train_all(jobs: Iterable[Job]) -> None:
    """Train one recipe after another; resume a run whose folder exists."""
    for recipe, folder, overrides in jobs:
        train(*read(Path(recipe), overrides), Path(folder), resume=Path(folder).exists())


def main() -> None:
    """Train the jobs of the file that the command line names."""
    from rlm_plugins import trainer  # noqa: F401  # what is imported stays: see conftest.py

    gc.freeze()
    try:
        train_all(json.loads(Path(sys.argv[1]).read_text()))
    finally:
        shutdown()


if __name__ == "__main__":
    main()
