"""Memory of a race against one run: peak resident memory of a process each, `python benchmarks/race_memory.py`.

The runs of a race share the weights of one frozen base; each has its own adapter, optimizer and activations in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

SETTINGS = {
    "environment": {"name": "addition", "digits": 2, "test_rows": 4},
    "rewards": [{"name": "length", "limit": 8, "as": "accuracy"}],
    "algorithm": "grpo",
    "evaluation": {"every": 0},
    "trainer": {
        "max_steps": 2,
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": 8,
        "gradient_checkpointing": False,
        "save_strategy": "no",
    },
}
ARMS = {"one run": ["grpo"], "race of 3": ["grpo", "dapo", "cispo"]}


def recipe(hidden: int, layers: int) -> dict[str, object]:
    """Return a recipe whose memory is mostly the frozen base."""
    sizes = {"hidden": hidden, "layers": layers, "heads": 8, "intermediate": 4 * hidden}
    return {**SETTINGS, "model": {"name": "scratch", **sizes, "lora": {"r": 8, "target_modules": "all-linear"}}}


def race_here(algorithms: Sequence[str], file: Path, out: Path) -> int:
    """Run a race in this process, and return its peak resident memory in bytes."""
    from rlm_lab.race import race

    race(algorithms, [], file, 1, out, lambda line: None)
    highest = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM"))
    return int(highest.split()[1]) * 1024


def measure(hidden: int, layers: int) -> dict[str, float]:
    """Return the peak of each arm in megabytes, and their ratio."""
    with TemporaryDirectory() as name:
        file = Path(name, "recipe.yaml")
        file.write_text(yaml.safe_dump(recipe(hidden, layers)))
        peaks: dict[str, float] = {}
        for arm, algorithms in ARMS.items():
            program = [sys.executable, __file__, "--arm", arm, str(file), str(Path(name, algorithms[-1]))]
            done = subprocess.run(program, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
            if done.returncode:
                raise SystemExit(done.stderr[-2000:])
            peaks[arm] = round(int(done.stdout.splitlines()[-1]) / 1e6)
    return {**peaks, "ratio": round(peaks["race of 3"] / peaks["one run"], 3)}


def main() -> None:
    """Measure, or run one arm."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--arm", choices=[*ARMS])
    parser.add_argument("paths", nargs="*", type=Path)
    options = parser.parse_args()
    if options.arm:
        print(race_here(ARMS[options.arm], *options.paths))
    else:
        print(json.dumps(measure(options.hidden, options.layers)))


if __name__ == "__main__":
    main()
