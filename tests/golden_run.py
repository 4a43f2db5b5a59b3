"""Record or compare a golden run: hashes of everything that short trainings leave on disk.

::

    python tests/golden_run.py record FILE.json     train every job, write the hashes
    python tests/golden_run.py compare FILE.json    train every job, list what differs

The jobs are all recipes of the repository, cut down to two steps a stage, on one process; papers with two seeds.
Papers, lessons and pipelines run on two processes too. ``GOLDEN_ONLY=papers-ppo,lessons`` selects some by the start of
their names. Hashes cover final weights, optimizer state, the state of parts, and metrics and samples without timings.
Bits depend on the processor and on the versions of packages: compare on the machine that recorded.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CANNED = ROOT / "tests" / "fake_rollouts.py"
PAPERS = sorted((ROOT / "recipes" / "papers").glob("*.yaml"))
OTHERS = sorted(path for folder in ("lessons", "pipelines") for path in (ROOT / "recipes" / folder).rglob("*.yaml"))
FURTHER = sorted([*ROOT.glob("recipes/survey/*.yaml"), *ROOT.glob("plugins/*/recipe.yaml")])
FURTHER += sorted(ROOT.glob("plugins/*/recipes/**/*.yaml"))
SEEDS = (11, 12)
CLOCK = ("runtime", "per_second", "seconds", "step_time", "total_flos", "memory")
SIZE = {"layers": 1, "hidden": 16, "heads": 2, "intermediate": 32}
MODEL = "{name: scratch, layers: 1, hidden: 16, heads: 2, intermediate: 32, lora: {r: 2, target_modules: all-linear}}"
WORLD = {"digits": 1, "train_rows": 16, "test_rows": 0}
TINY = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "steps_per_generation": 2,
    "num_generations": 8,
    "max_completion_length": 4,
    "warmup_steps": 0,
    "learning_rate": 0.01,
    "use_vllm": False,
}
ALWAYS = {"max_steps": 2, "gradient_checkpointing": False, "save_strategy": "steps", "save_steps": 2}


def paper(file: Path, body: dict[str, Any]) -> list[str]:
    """Return the overrides that cut a paper's recipe down, its `algorithm:` untouched."""
    from_logprobs = file.stem in ("flash_rl", "reinforce_pp_baseline", "mopd")
    changes = [f"plugins={{load: [{CANNED}]}}", f"model={MODEL}"]
    if file.stem == "reward_model":
        changes += ["environment={name: gist, train_rows: 16, test_rows: 0}"]
    else:
        changes += [f"environment={json.dumps({'name': 'addition', **WORLD})}"]
    changes += [f"trainer.{key}={json.dumps(value)}" for key, value in TINY.items() if key in body["trainer"]]
    changes += [f"trainer.{key}={json.dumps(value)}" for key, value in ALWAYS.items()]
    if (body.get("critic") or {}).get("warmup_steps"):
        changes += ["critic.warmup_steps=1"]
    if body.get("rewards"):
        changes += ["rewards=[{name: coin, as: accuracy}]"]
    if body.get("teacher"):
        changes += [f"teacher={json.dumps(small_teacher(file, body))}"]
    if from_logprobs:
        changes += ["algorithm.rollouts=[{name: canned, logprob: -4.5}]"]
    return changes


def small_teacher(file: Path, body: dict[str, Any]) -> dict[str, Any]:
    """Return the section `teacher:` of a paper's recipe with the policy's own weights and another prompt."""
    known = {key: value for key, value in body["teacher"].items() if key in ("top", "support", "ema")}
    model = body["teacher"].get("model", "base")
    prompt = "{prompt}{group_best}" if file.stem == "sdpo" else "{prompt}{answer}"
    return {"model": model if model in ("live", "ema") else "base", "prompt": prompt, **known}


def cut_down(recipe: Any) -> list[str]:
    """Return the overrides that cut every stage of a lesson, a pipeline or the recipe of a package down."""
    changes = []
    for stage_path, body in zip(recipe.stage_paths, recipe.bodies, strict=True):
        at = "".join(f"{step}." for step in stage_path)
        if (body["environment"] or {})["name"] == "dataset":
            changes += [f"plugins={{load: [{CANNED}]}}", f"{at}rewards=[{{name: coin, as: accuracy}}]"]
            changes += [f"{at}environment={json.dumps({'name': 'addition', **WORLD})}"]
        changes += [f"{at}model{change}" for change in _small_model(body.get("model") or {})]
        trainer = body.get("trainer") or {}
        settings = {key: value for key, value in TINY.items() if key in trainer}
        if trainer.get("num_generations") == 1:
            settings["num_generations"] = 1
        settings |= {**ALWAYS, "seed": SEEDS[0]}
        changes += [f"{at}trainer.{key}={json.dumps(value)}" for key, value in settings.items()]
        if (body.get("critic") or {}).get("warmup_steps"):
            changes += [f"{at}critic.warmup_steps=1"]
        if body.get("evaluation"):
            changes += [f"{at}evaluation.{key}=8" for key in ("rows", "max_new_tokens")]
    return changes


def _small_model(model: dict[str, Any]) -> list[str]:
    """Return the overrides of `model:`, each without that key: a model of one layer, with the recipe's adapter."""
    if model.get("name") == "scratch":
        return [f".{key}={value}" for key, value in SIZE.items()]
    if "name" not in model:
        return []
    adapter = {"lora": model["lora"]} if model.get("lora") else {}
    return [f"={json.dumps({'name': 'scratch', **SIZE, **adapter})}"]


def train_job(file: Path, seed: int, folder: Path) -> None:
    """Train one recipe, cut down, into a folder; a failure is left there as text."""
    from rlm_plugins import recipe
    from rlm_plugins.registry import Registry
    from rlm_plugins.run.train import train

    loaded = recipe.load(file)
    changes = [*paper(file, loaded.bodies[0]), f"trainer.seed={seed}"] if file in PAPERS else cut_down(loaded)
    try:
        document = recipe.load(file, changes)
        with contextlib.redirect_stdout(io.StringIO()):
            train(document, Registry(document.load, document.block), folder)
    except Exception as error:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"FAILED{os.environ.get('RANK', '')}").write_text(type(error).__name__)
        print(name_of(file), "".join(traceback.format_exception(error))[-1500:], file=sys.stderr)


def name_of(file: Path) -> str:
    """Return the name of a recipe's runs: its path in the repository without ``recipes`` and ``recipe.yaml``."""
    words = file.relative_to(ROOT).with_suffix("").parts
    return "-".join(word for word in words if word not in ("recipes", "plugins", "recipe"))


def write_pool(path: Path) -> None:
    """Write the pool of good completions that the recipe `rlep` replays."""
    from rlm_plugins.builtin.environments import addition

    examples = addition(**WORLD).train
    entries = [{"prompt": example["prompt"], "completion": "2", "reward": 1.0} for example in examples]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def train_all(folder: Path) -> None:
    """Train every job in the processes that are there."""
    import torch

    torch.set_num_threads(1)
    gc.freeze()
    os.chdir(folder)
    write_pool(Path("successes.jsonl"))
    is_single = os.environ.get("WORLD_SIZE", "1") == "1"
    for file in [*PAPERS, *OTHERS, *(FURTHER if is_single else ())]:
        if is_chosen(name_of(file)):
            for seed in SEEDS if file in PAPERS and is_single else SEEDS[:1]:
                train_job(file, seed, folder / f"{name_of(file)}-{seed}")


def is_chosen(name: str) -> bool:
    """Return True if a recipe or run begins with one of the words of `GOLDEN_ONLY`."""
    return name.startswith(tuple(os.environ.get("GOLDEN_ONLY", "").split(",")))


def tensors(value: Any, at: str = "") -> Iterator[tuple[str, str]]:
    """Yield (place, hash) of every tensor and number of a nested state."""
    import torch

    if isinstance(value, dict):
        for key in sorted(value, key=str):
            yield from tensors(value[key], f"{at}/{key}")
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from tensors(each, f"{at}/{number}")
    elif isinstance(value, torch.Tensor):
        data = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        yield at, hashlib.sha256(data).hexdigest()
    else:
        yield at, repr(value)


def digest(value: Any) -> str:
    """Return one hash of a nested state."""
    return hashlib.sha256(json.dumps(list(tensors(value))).encode()).hexdigest()[:16]


def read_lines(path: Path) -> dict[str, str]:
    """Return key of a JSON-lines file → hash of its values, line by line, without timings."""
    columns = defaultdict(list)
    for number, line in enumerate(path.read_text().splitlines()):
        for key, value in json.loads(line).items():
            if not any(word in key for word in CLOCK):
                columns[key].append((number, value))
    return {f"{path.name}:{key}": digest(values) for key, values in columns.items()}


def hashes(folder: Path) -> dict[str, str]:
    """Return file, or key of a file → hash, of everything under a run's folder that does not depend on the clock."""
    import torch
    from safetensors.torch import load_file

    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix == ".safetensors":
            found[name] = digest(load_file(path))
        elif path.name in ("optimizer.pt", "parts.pt"):
            found[name] = digest(torch.load(path, weights_only=True))
        elif path.name in ("metrics.jsonl", "samples.jsonl", "faults.jsonl"):
            found |= read_lines(path)
        elif path.name.startswith("FAILED"):
            found[path.name] = path.read_text()
    return found


def measure() -> dict[str, dict[str, str]]:
    """Train every job on one process and on two; return run → hashes."""
    found = {}
    with tempfile.TemporaryDirectory() as home:
        folders = {processes: Path(home) / str(processes) for processes in (1, 2)}
        started = []
        for processes, folder in folders.items():
            command = [sys.executable]
            if processes > 1:
                command += ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", str(processes)]
                command += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
                command += ["--main_process_port", "0"]
            folder.mkdir()
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
            with (folder / "log").open("w") as log:
                started.append(
                    subprocess.run(
                        [*command, __file__, "train", str(folder)], env=environment, stdout=log, stderr=log, check=False
                    )
                )
            if log := os.environ.get("GOLDEN_LOG"):
                shutil.copy(folder / "log", f"{log}.{processes}")
        for processes, folder in folders.items():
            for run in sorted(path for path in folder.iterdir() if path.is_dir()):
                found[f"{run.name} on {processes}"] = hashes(run)
    return found


def main() -> int:
    """Run the command line; return 1 where anything differs."""
    mode, path = sys.argv[1], Path(sys.argv[2])
    if mode == "train":
        train_all(path)
        return 0
    actual = measure()
    if mode == "record":
        path.write_text(json.dumps(actual, indent=1, sort_keys=True) + "\n")
        print(f"{len(actual)} runs, {sum(map(len, actual.values()))} hashes recorded")
        return 0
    expected = json.loads(path.read_text())
    expected = {run: names for run, names in expected.items() if is_chosen(run)}
    recorded = [(run, name) for run, names in sorted(expected.items()) for name in sorted(names)]
    different = [key for key in recorded if actual.get(key[0], {}).get(key[1]) != expected[key[0]][key[1]]]
    print("\n".join(map(": ".join, different[:200])))
    new = sum(map(len, actual.values())) - len(recorded)
    count = f"{len(different)} of {len(recorded)} hashes differ, {new} are new"
    print(f"{len(actual)} runs, {len(expected)} recorded: {count}")
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())
