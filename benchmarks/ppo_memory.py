"""Memory and time of PPO beside GRPO: ``python benchmarks/ppo_memory.py``.

Four arms on one transformer of 36 million random parameters with LoRA: the algorithm `grpo`, and `ppo` with each kind
of critic. Their recipes differ in nothing else. Bytes are measured in one process per arm, with and without gradient
checkpointing; seconds in one process, in rotating order. For comparison, the four models of classic PPO are measured
too. `ppo_memory_arm.py` documents how each number is measured.

::

    benchmarks/results/
      ppo_memory.json   every number and setting
      ppo_memory.md     the table
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", "65536")  # freed tensors return to the system: RSS is what is in use
os.environ.setdefault("MALLOC_TRIM_THRESHOLD_", "0")

from ppo_memory_report import report

from rlm_plugins.models.scratch import CHARACTERS

Record = dict[str, Any]
ROOT = Path(__file__).resolve().parents[1]
ARMS: dict[str, Record] = {
    "grpo": {"algorithm": "grpo"},
    "ppo, shared": {"algorithm": "ppo", "critic": {"kind": "shared"}},
    "ppo, head": {"algorithm": "ppo", "critic": {"kind": "head"}},
    "ppo, separate": {"algorithm": "ppo", "critic": {"kind": "separate"}},
}
SIZES = {"hidden": 512, "layers": 8, "heads": 8, "intermediate": 1536}
VOCABULARY = 8192
LORA = {"r": 16, "lora_alpha": 32, "target_modules": "all-linear"}
TRAINER = {
    "max_steps": 3,
    "per_device_train_batch_size": 8,
    "num_generations": 4,
    "max_completion_length": 96,
    "learning_rate": 1e-4,
    "save_strategy": "no",
}
TIMED = {"max_steps": 2, "max_completion_length": 48}
"""Overrides for timing; the second step is timed."""


AS_TRL = {
    "generator": "transformers",
    "speed": dict.fromkeys(
        (
            "padding_free",
            "skip_zero_advantage",
            "group_micro_batches",
            "reuse_old_logprobs",
            "merge_micro_batches",
            "fused_lora",
        ),
        False,
    ),
}
"""The settings of the measurement: padded forward passes and `transformers.generate`, for every arm."""


def document(
    arm: str, checkpointing: bool, sizes: Record = SIZES, vocabulary: int = VOCABULARY, **trainer: Any
) -> Record:
    """Return the recipe of an arm."""
    words = CHARACTERS + "".join(map(chr, range(0x4E00, 0x4E00 + vocabulary)))
    return {
        "model": {"name": "scratch", **sizes, "characters": words[: vocabulary - 9], "lora": LORA},  # 9 special tokens
        "environment": {"name": "addition", "digits": 3, "train_rows": 64, "test_rows": 4},
        "rewards": ["accuracy", {"name": "format", "weight": 0.2}],
        "trainer": {**TRAINER, "gradient_checkpointing": checkpointing, **trainer},
        **AS_TRL,
        **ARMS[arm],
    }


def _bytes_of(recipe: Record) -> Record:
    from ppo_memory_arm import bytes_of

    return bytes_of(recipe)


def _four(recipe: Record) -> Record:
    from ppo_memory_four import four_models

    return four_models(recipe["model"])


def apart(task: Callable[[Record], Record], recipe: Record) -> Record:
    """Run a task in its own process and return its result."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(task, (recipe,))


def timed(rounds: int, checkpointing: bool, **model: Any) -> dict[str, list[float]]:
    """Return arm → seconds of each round."""
    from ppo_memory_arm import seconds_of

    seconds: dict[str, list[float]] = {arm: [] for arm in ARMS}
    names = list(ARMS)
    for number in range(rounds):
        for arm in names[number % len(names) :] + names[: number % len(names)]:
            seconds[arm].append(seconds_of(document(arm, checkpointing, **TIMED, **model)))
            print(f"round {number + 1}, {arm}: {seconds[arm][-1]:.2f} s per step", flush=True)
    return seconds


def bytes_of_arms(checkpointing: bool, **model: Any) -> dict[str, Record]:
    """Return arm → its bytes, each measured in its own process."""
    sizes = {}
    for arm in ARMS:
        sizes[arm] = apart(_bytes_of, document(arm, checkpointing, **model))
        print(f"{arm}: peak {sizes[arm]['peak'] / 2**20:.0f} MiB", flush=True)
    return sizes


PARTS: dict[str, Callable[[int], Record]] = {
    "plain": lambda _: bytes_of_arms(False),
    "checkpointing": lambda _: bytes_of_arms(True),
    "four models": lambda _: apart(_four, document("ppo, shared", False)),
    "rounds": lambda rounds: timed(rounds, False),
}
"""Name → measurement; the argument is the number of rounds."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write both files."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=2, help="rounds of the timing (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results", help="folder of the results")
    parser.add_argument("--part", choices=PARTS, action="append", help="measure only this part and keep the others")
    options = parser.parse_args(arguments)
    file = options.out / "ppo_memory.json"
    measured = {part: PARTS[part](options.rounds) for part in options.part or PARTS}
    settings = {"model": {**SIZES, "vocabulary": VOCABULARY, "lora": LORA}, "trainer": TRAINER, "timed": TIMED}
    packages = {name: version(name) for name in ("torch", "transformers", "trl", "peft")}
    kept = json.loads(file.read_text()) if options.part and file.exists() else {}
    record = {**kept, "settings": settings, "packages": packages, **measured}
    options.out.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(record, indent=1) + "\n")
    if all(part in record for part in PARTS):
        (options.out / "ppo_memory.md").write_text(report(record))
        print(report(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
