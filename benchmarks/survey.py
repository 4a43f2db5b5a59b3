"""The pipelines of recipes/survey, trained whole: ``python benchmarks/survey.py ttrl --seeds 0 1 2``, minutes per seed.

Prints what each pipeline is judged by, before and after. The student of R1-Distill is trained on the pool of its
teacher, and judged on the sums of the teacher's recipe.

::

    benchmarks/results/
      survey.jsonl    one line per recipe and seed; existing lines are not measured again
      runs/survey/    the runs themselves (not in git); a finished one is read, not trained again
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

from rlm_plugins import recipe
from rlm_plugins.registry import Registry

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "recipes" / "survey"
RESULTS = ROOT / "benchmarks" / "results"
Record = dict[str, Any]

DATA = "environment.seed={seed}"
SEEDS: dict[str, Sequence[str]] = {
    "r1_zero": (DATA, "stages.0.environment.seed={seed}"),
    "r1": (DATA,),
    "r1_teacher": (DATA,),
    "r1_student": ("environment.path={runs}/r1_teacher-{seed}/successes.jsonl",),
    "l1": (DATA,),
    "ttrl": (),
    "ettrl": (),
    "rlccf": (DATA,),
}
"""Recipe → overrides of a seed, beside those of model and trainer. TTRL's questions are the same for every seed."""


class Figure(NamedTuple):
    """A column of the table: a score of a stage, before and after it.

    Args:
        title: Its heading.
        stage: Name of the stage.
        score: Name of a held-out score, or a mean over five steps: `correlation`, `length`.
        factor: What the score is multiplied with; 100 for a share, printed in percent.
    """

    title: str
    stage: str
    score: str = "accuracy"
    factor: float = 100.0

    def text(self, record: Record) -> str:
        """Return ``before → after``."""
        before, after = (self.factor * x for x in record["stages"][self.stage][self.score])
        digits, unit = (1, " %") if self.factor == 100.0 else (2, "")
        return f"{before:.{digits}f} → {after:.{digits}f}{unit}"


def _voted(stage: str) -> list[Figure]:
    """Return the columns of test-time training."""
    scores = {"one sample": "mean_at_k", "majority of 8": "majority_at_k", "greedy": "accuracy"}
    return [Figure(title, stage, score) for title, score in scores.items()]


TABLES: dict[str, list[Figure]] = {
    "r1_zero": [
        Figure("greedy", "zero"),
        Figure("one sample", "zero", "mean_at_k"),
        Figure("one of 4", "zero", "pass_at_k"),
    ],
    "r1": [Figure("first RL", "reasoning"), Figure("fine-tuning", "rejection"), Figure("second RL", "all_scenarios")],
    "r1_teacher": [Figure("teacher, RL", "teacher")],
    "r1_student": [Figure("teacher → student", "student")],
    "l1": [
        Figure("Exact: tokens from the budget", "exact", "l1_exact", -20.0),
        Figure("correlation of length and budget", "exact", "correlation", 1.0),
        Figure("accuracy", "exact"),
        Figure("Max: tokens", "max", "length", 1.0),
        Figure("accuracy", "max"),
    ],
    "ttrl": _voted("ttrl"),
    "ettrl": _voted("ettrl"),
    "rlccf": _voted("together"),
}
"""Recipe → columns. The distance to the budget is the score `l1_exact` over its α of 0.05."""


def measured(name: str, seed: int, runs: Path) -> Record:
    """Train a recipe with a seed, unless its run is finished, and return its figures."""
    from rlm_lab.evaluate import evaluate

    from rlm_plugins.run.judgement import as_data
    from rlm_plugins.run.train import train

    teacher = measured("r1_teacher", seed, runs) if name == "r1_student" else None
    changes = [text.format(seed=seed, runs=runs) for text in SEEDS[name]]
    file, folder = FOLDER / f"{name}.yaml", runs / f"{name}-{seed}"
    document = recipe.load(file, [*changes, f"stages.0.model.seed={seed}", f"trainer.seed={seed}"])
    if not (folder / "summary.json").exists():
        with contextlib.redirect_stdout(io.StringIO()):
            train(document, Registry(document.load), folder)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    stages: dict[str, list[Record]] = {}
    for line in lines:
        stages.setdefault(str(line["stage"])[3:], []).append(line)
    record: Record = {"recipe": name, "seed": seed, "stages": {name: _stage(of) for name, of in stages.items()}}
    if teacher:
        taught = teacher["stages"]["teacher"]["accuracy"]
        on = evaluate(folder, on=[FOLDER / "r1_teacher.yaml"])
        record["stages"]["student"] = {"accuracy": [taught[-1], as_data(on, samples=0)["score"]]}
    return record


def _stage(lines: Sequence[Record]) -> Record:
    """Return first and last value of each held-out score, and of the correlation of length and budget."""
    judged = [line for line in lines if "held_out/rows" in line]
    names = sorted({key for line in judged for key in line if key.startswith("held_out/")})
    scores = {key[9:]: [line[key] for line in judged if key in line] for key in names}
    followed = [line["budget_read/correlation"] for line in lines if "budget_read/correlation" in line]
    lengths = [line["completions/mean_length"] for line in lines if "reward" in line]
    ends = {key: [values[0], values[-1]] for key, values in scores.items()}
    logged = {"correlation": followed, "length": lengths}
    means = {name: [fmean(values[:5]), fmean(values[-5:])] for name, values in logged.items() if values}
    return {**ends, **means}


def tables(records: Sequence[Record]) -> str:
    """Return a Markdown table for each recipe, one line per seed."""
    parts = []
    for name, figures in TABLES.items():
        of_recipe = sorted((r for r in records if r["recipe"] == name), key=lambda record: record["seed"])
        head = f"| `{name}`, seed | " + " | ".join(figure.title for figure in figures) + " |"
        rows = [f"| {r['seed']} | " + " | ".join(figure.text(r) for figure in figures) + " |" for r in of_recipe]
        if rows:
            parts.append("\n".join([head, "|---" * (1 + len(figures)) + "|", *rows]))
    return "\n\n".join(parts)


def main() -> None:
    """Measure what is missing, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", default=list(SEEDS), help="a student after its teacher (default: all)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    file = options.out / "survey.jsonl"
    known = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    for seed in options.seeds:
        for name in options.recipes:
            if not any((record["recipe"], record["seed"]) == (name, seed) for record in known):
                known.append(measured(name, seed, options.out.resolve() / "runs" / "survey"))
                with file.open("a") as handle:
                    handle.write(json.dumps(known[-1]) + "\n")
    print(tables(known))


if __name__ == "__main__":
    main()
