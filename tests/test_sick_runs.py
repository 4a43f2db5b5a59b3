"""Diagnosis of runs with one fault each: the right cause comes first, on recorded metrics and in real runs.

``python tests/test_sick_runs.py`` trains the runs of ``data/sick_runs.yaml`` and records their metrics.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import test_clinic
import yaml
from rlm_lab.quantities import StageSettings
from rlm_lab.rules import RULES, diagnose
from rlm_lab.why import why
from test_clinic import start, train_start  # noqa: F401

from rlm_plugins.durable.files import write_file

DATA = Path(__file__).parent / "data"
RUNS: dict[str, dict[str, Any]] = yaml.safe_load((DATA / "sick_runs.yaml").read_text())
RECORDED = DATA / "sick_runs.json"
PARTS = """

import random
import time
from functools import partial

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


@hookimpl(specname="rlm_environments")
def more_environments():
    changes = {"shifted": shifted, "reworded": reworded, "unasked": unasked, "solutions": solutions}
    return {name: partial(everywhere, x) for name, x in changes.items()} | {"tenfold": tenfold, "shuffled": shuffled}


@hookimpl
def rlm_policy_losses():
    return {"minimized": minimized}


@hookimpl(specname="rlm_rewards")
def more_rewards():
    rewards = (boxed, rounded, messages, inverted, noise, long, half, steps_written, neighbor, rare, judge, last)
    rewards += (clock, fraction, minus, odd, front, cached, ordered, stops)
    return {reward.__name__: reward for reward in rewards} | {"drift": Drift}
"""


def recipe(policy: Path, run: dict[str, Any]) -> dict[str, Any]:
    changes = dict(run.get("changes", {}))
    if own := run.get("own"):
        changes["rewards"] = [own, {"name": "accuracy", "weight": 0.0}]
    evaluation = {"metric": "accuracy", "every": 4, "max_new_tokens": 48, **changes.pop("evaluation", {})}
    trainer = {"max_steps": 14, **changes.pop("trainer", {})}
    stage = {
        "environment": {**test_clinic.ENVIRONMENT, "train_rows": 512, "test_rows": 32},
        **changes,
        "trainer": trainer,
    }
    body = test_clinic.stage(policy, {**stage, "evaluation": evaluation})
    return {**body, "model": {"name": str(policy)}} if run.get("full") else body


def first(report: list[Any]) -> str:
    return next((finding["name"] for entry in report for finding in entry["findings"]), "")


@pytest.mark.parametrize("name", RUNS)
def test_right_cause_comes_first(name: str) -> None:
    recorded = json.loads(RECORDED.read_text())[name]
    rows = zip(*recorded["metrics"].values(), strict=True)
    steps = [{key: x for key, x in zip(recorded["metrics"], row, strict=True) if x != ""} for row in rows]
    settings = StageSettings(recorded["section"], recorded["max_steps"])
    records = [{"stage": "s", **step} for step in steps]
    found, early = ([x.name for x in diagnose(part, "s", settings)] for part in (records, up_to_step(2, records)))
    assert found[:1] == list(filter(None, [RUNS[name].get("first")]))
    assert early[:1] in ([], found[:1]), "after two steps a run is not accused of anything else"


def up_to_step(last: int, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [record for record in records if record["step"] <= last]


@pytest.mark.full
@pytest.mark.parametrize("name", RUNS)
def test_right_cause_comes_first_in_a_run(name: str, start: Path, tmp_path: Path, monkeypatch: Any) -> None:  # noqa: F811
    monkeypatch.setattr(test_clinic, "REWARDS", test_clinic.REWARDS + PARTS)
    assert first(why(test_clinic.run(recipe(start, RUNS[name]), tmp_path / "run"))) == RUNS[name].get("first", "")


def record(folder: Path) -> dict[str, Any]:
    """Return the metrics that rules read, column by column, with three digits, and the section of a run."""
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    section = yaml.safe_load((folder / "recipe.yaml").read_text())
    section["model"].pop("path", None)
    read = [re.escape(name).replace("<label>", ".+") for rule in RULES for name in rule.healthy]
    read += [
        "step",
        "grad_norm",
        "data/.+",
        "held_out/(accuracy|format)",
        "advantage/reward_correlation",
        "rewards/.+/(mean|std|noise|unseen|sum_correlation)",
        "entropy",
    ]
    read += ["reward", "reward_std", "completions/(distinct|mean_length)", "policy_loss/clipped_.+"]
    pattern = re.compile("|".join(read))
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
    test_clinic.REWARDS += PARTS
    recorded = json.loads(RECORDED.read_text()) if sys.argv[1:] else {}
    with tempfile.TemporaryDirectory() as folder:
        initial = train_start(Path(folder))
        for name in sys.argv[1:] or RUNS:
            run = test_clinic.run(recipe(initial, RUNS[name]), Path(folder) / f"run-{len(recorded)}")
            print(f"{name}: {first(why(run))}, expected {RUNS[name].get('first')}", file=sys.stderr)
            recorded[name] = record(run)
    lines = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(entry, separators=(',', ':'))}" for name, entry in recorded.items()
    )
    write_file(RECORDED, f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
