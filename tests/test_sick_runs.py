"""Diagnosis of runs with one fault each: the right cause comes first, on recorded metrics and in real runs.

``RLM_TRUST=1 python tests/test_sick_runs.py`` trains the runs of ``data/sick_runs.yaml`` and records their metrics.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from rlm_lab.quantities import StageSettings
from rlm_lab.rules import RULES, diagnose
from rlm_lab.why import why

from rlm_plugins.durable.files import write_file
from rlm_plugins.errors import RlmError
from rlm_plugins.recipe.compose import compose
from rlm_plugins.report.check_report import examine
from rlm_plugins.run.recipe_argument import read
from rlm_plugins.run.train import train

DATA = Path(__file__).parent / "data"
RUNS: dict[str, dict[str, Any]] = yaml.safe_load((DATA / "sick_runs.yaml").read_text())
RECORDED = DATA / "sick_runs.json"
PARTS = """
import random
import time
from functools import partial

from rlm_plugins import hookimpl
from rlm_plugins.builtin.environments import addition


def constant(completions):
    return [0.0 for _ in completions]


def brief(completion_ids):
    return [-len(ids) / 10 for ids in completion_ids]


def solved(completions):
    return [1.0 for _ in completions]


def plain(completions, answer):
    return [float(f">{right}<" in completion) for completion, right in zip(completions, answer)]


def offset(completions, answer):
    return [3 + score for score in plain(completions, answer)]


def broken(completions):
    raise ValueError("no answer found")


def boxed(completions, answer):
    return [float("boxed{%s}" % right in text) for text, right in zip(completions, answer)]


def rounded(completions, answer):
    return [float(int(0.3 * (f">{right}<" in text))) for text, right in zip(completions, answer)]


def messages(completions, answer):
    return [float(right in [{"content": text}]) for text, right in zip(completions, answer)]


def inverted(completions, answer):
    return [float(f">{right}<" not in text) for text, right in zip(completions, answer)]


def noise(completions):
    return [(37 * i + 13 * sum(map(ord, text))) % 97 / 97 for i, text in enumerate(completions)]


def long(completions):
    return [2 * min(len(text) / 60, 1) for text in completions]


def half(completions):
    return [float("nan") if i % 2 else float(i % 4) for i, _ in enumerate(completions)]


def neighbor(completions, answer):
    return plain(completions, answer[1:] + answer[:1])


def rare(completions, answer):
    return [score * (sum(map(ord, text)) % 12 == 0) for score, text in zip(plain(completions, answer), completions)]


def judge(completions, answer):
    return [float(score != (random.random() < 0.4)) for score in plain(completions, answer)]


def last(completions, answer):
    scores, last.scores = getattr(last, "scores", []), plain(completions, answer)
    return (scores + [0.0] * len(answer))[: len(answer)]


def steps_written(completions):
    return [float(min(text.count("="), 1)) for text in completions]


def clock(completions):
    return [time.time() for _ in completions]


def fraction(completions):
    return [time.time() % 1 for _ in completions]


def minus(completions):
    return [-1.0 for _ in completions]


def odd(completions, answer):
    return [score * (int(right) % 2) for score, right in zip(plain(completions, answer), answer)]


def front(completions, answer):
    scores = plain(completions, answer)
    return scores[: len(scores) // 2] + [1.0] * (len(scores) - len(scores) // 2)


def cached(prompts, completions, answer):
    scores = plain(completions, answer)
    return [cached.__dict__.setdefault(repr(prompt), score) for prompt, score in zip(prompts, scores)]


def ordered(completions, answer):
    return sorted(plain(completions, answer))


def stops(completions, answer):
    stops.calls = getattr(stops, "calls", 0) + 1
    return [score * (stops.calls < 8) for score in plain(completions, answer)]


def minimized(ratio, advantages):
    return ratio * advantages


class Drift:
    calls = 0

    def __call__(self, completions):
        self.calls += 1
        return [float(self.calls)] * len(completions)


def shifted(row):
    return {"answer": str(int(row["answer"]) + 1000)}


def reworded(row):
    return {"prompt": [{"role": "user", "content": row["prompt"][-1]["content"].replace("=?", "+0+0=?")}]}


def unasked(row):
    return {"prompt": [{"role": "user", "content": "=?"}]}


def solutions(row):
    return {"answer": f"0+{row['answer']}={row['answer']}"}


def tenfold():
    spec = addition(digits=2, train_rows=256, test_rows=32)
    spec.test = [{**row, "answer": f"{row['answer']}0"} for row in spec.test]
    return spec


def shuffled():
    spec = addition(digits=2, train_rows=256, test_rows=32)
    answers = [row["answer"] for row in spec.train]
    spec.train = [{**row, "answer": answer} for row, answer in zip(spec.train, answers[7:] + answers[:7])]
    return spec


def everywhere(change):
    spec = addition(digits=2, train_rows=256, test_rows=32)
    spec.train, spec.test = ([{**row, **change(row)} for row in rows] for rows in (spec.train, spec.test))
    return spec


def spaced():
    spec = addition(digits=2, train_rows=256, test_rows=8)
    spec.train = [{**row, "answer": f" {row['answer']}  "} for row in spec.train]
    return spec


@hookimpl
def rlm_environments():
    changes = {"shifted": shifted, "reworded": reworded, "unasked": unasked, "solutions": solutions}
    environments = {name: partial(everywhere, change) for name, change in changes.items()}
    return environments | {"tenfold": tenfold, "shuffled": shuffled, "spaced": spaced}


@hookimpl
def rlm_policy_losses():
    return {"minimized": minimized}


@hookimpl
def rlm_rewards():
    rewards = (constant, brief, solved, broken, plain, offset, boxed, rounded, messages, inverted, noise, long, half)
    rewards += (steps_written, neighbor, rare, judge, last, clock, fraction, minus, odd, front, cached, ordered, stops)
    return {reward.__name__: reward for reward in rewards} | {"drift": Drift}
"""
ENVIRONMENT = {"name": "addition", "digits": 2, "test_rows": 8}
FORMAT = {"name": "format", "weight": 0.2}
TRAINER = {
    "max_steps": 14,
    "per_device_train_batch_size": 32,
    "num_generations": 8,
    "max_completion_length": 48,
    "learning_rate": 5e-4,
    "lr_scheduler_type": "constant",
    "gradient_checkpointing": False,
    "save_strategy": "no",
}


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a small model that adds two numbers, imperfectly."""
    return train_start(tmp_path_factory.mktemp("start"))


def train_start(folder: Path) -> Path:
    recipe = {
        "model": {"name": "scratch", "layers": 2, "hidden": 64, "heads": 2, "intermediate": 128},
        "environment": {**ENVIRONMENT, "slip": 0.5},
        "algorithm": "sft",
        "trainer": {"max_steps": 200, "per_device_train_batch_size": 32, "learning_rate": 5e-3},
    }
    return run(recipe, folder / "sft").parent / "sft" / "01-sft" / "model"


def run(recipe: Mapping[str, Any], folder: Path) -> Path:
    folder.parent.mkdir(parents=True, exist_ok=True)
    (folder.parent / "faults.py").write_text(PARTS)
    path = folder.parent / f"{folder.name}.yaml"
    path.write_text(yaml.safe_dump({**recipe, "plugins": {"load": ["./faults.py"]}}))
    train(*read(path, ()), folder)
    return folder


def recipe(policy: Path, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recipe of an entry of `RUNS`."""
    changes = dict(entry.get("changes", {}))
    lora = {"r": 8, "target_modules": "all-linear", **changes.pop("lora", {})}
    evaluation = {"metric": "accuracy", "every": 4, "max_new_tokens": 48, **changes.pop("evaluation", {})}
    own = [entry["own"], {"name": "accuracy", "weight": 0.0}] if "own" in entry else ["accuracy", FORMAT]
    return {
        "model": {"name": str(policy), **({} if entry.get("full") else {"lora": lora})},
        "environment": {**ENVIRONMENT, "train_rows": 512, "test_rows": 32},
        "rewards": own,
        "algorithm": {"name": "grpo", "penalties": []},
        "evaluation": evaluation,
        **changes,
        "trainer": {**TRAINER, **changes.get("trainer", {})},
    }


def first(report: list[Any]) -> str:
    return next((finding["name"] for entry in report for finding in entry["findings"]), "")


@pytest.mark.parametrize("name", RUNS)
def test_right_cause_comes_first(name: str) -> None:
    recorded = json.loads(RECORDED.read_text())[name]
    rows = zip(*recorded["metrics"].values(), strict=True)
    steps = [{key: x for key, x in zip(recorded["metrics"], row, strict=True) if x != ""} for row in rows]
    settings = StageSettings(recorded["section"], recorded["max_steps"])
    records = [{"stage": "s", **step} for step in steps]
    parts = records, [record for record in records if record["step"] <= 2]
    found, early = ([x.name for x in diagnose(part, "s", settings)] for part in parts)
    assert found[:1] == list(filter(None, [RUNS[name].get("first")]))
    assert early[:1] in ([], found[:1]), "after two steps a run is not accused of anything else"


@pytest.mark.parametrize("name", [name for name in RUNS if not RUNS[name].get("borderline")])
def test_right_cause_comes_first_in_a_run(name: str, start: Path, tmp_path: Path) -> None:
    assert first(why(run(recipe(start, RUNS[name]), tmp_path / "run"))) == RUNS[name].get("first", "")


def test_rate_of_the_critic_is_named(start: Path, tmp_path: Path) -> None:
    """The run diverges before its metrics could be diagnosed."""
    changes = {"algorithm": "ppo", "critic": {"learning_rate": 10.0}}
    with pytest.raises(RlmError, match=r"(?s)diverged.*critic\.learning_rate"):
        run(recipe(start, {"changes": changes}), tmp_path / "run")
    document, registry = read(tmp_path / "run.yaml", ())
    (checked,) = (examine(each, registry) for each in compose(document, registry))
    assert any(line.startswith("critic_rate_too_large") for line in checked["warnings"])


def record(folder: Path) -> dict[str, Any]:
    """Return the metrics that rules read, column by column, with three digits, and the section of a run."""
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    section = yaml.safe_load((folder / "recipe.yaml").read_text())
    section["model"].pop("path", None)
    patterns = [re.escape(name).replace("<label>", ".+") for rule in RULES for name in rule.healthy]
    patterns += ["step", "grad_norm", "entropy", "reward", "reward_std", "data/.+", "held_out/(accuracy|format)"]
    patterns += ["rewards/.+/(mean|std|noise|unseen|sum_correlation)", "advantage/reward_correlation"]
    patterns += ["critic/.+", "advantage/std", "completions/(distinct|mean_length)", "policy_loss/clipped_.+"]
    pattern = re.compile("|".join(patterns))
    keys = [key for key in dict.fromkeys(chain.from_iterable(records)) if pattern.fullmatch(key)]
    metrics = {key: [_short(record.get(key, "")) for record in records] for key in keys}
    kept = ("model", "rewards", "algorithm", "trainer", "evaluation", "critic")
    return {
        "section": {key: section[key] for key in kept if key in section},
        "max_steps": section["trainer"]["max_steps"],
        "metrics": metrics,
    }


def _short(value: Any) -> Any:
    return float(f"{value:.3g}") if isinstance(value, float) else value


def main() -> None:
    """Train the runs whose names are given (default: all), and record them."""
    recorded = json.loads(RECORDED.read_text()) if sys.argv[1:] else {}
    with tempfile.TemporaryDirectory() as folder:
        initial = train_start(Path(folder))
        for number, name in enumerate(sys.argv[1:] or RUNS):
            trained = run(recipe(initial, RUNS[name]), Path(folder) / f"run-{number}")
            print(f"{name}: {first(why(trained))}, expected {RUNS[name].get('first')}", file=sys.stderr)
            recorded[name] = record(trained)
    lines = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(entry, separators=(',', ':'))}" for name, entry in recorded.items()
    )
    write_file(RECORDED, f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
