"""The benchmark of the algorithms and the turns from GRPO to PPO: each is measured once and reported."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import paper_packages
import pytest
import rows as benchmark
import torch
import turns
import yaml
from eight_bits import logprobs, rounded
from row_settings import LEFT_OUT, NOTES, OWN
from transformers import LlamaConfig, LlamaForCausalLM

from rlm_plugins import recipe
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import BUILTIN, Registry
from rlm_plugins.report.objective_text import objective
from rlm_plugins.stage import Stage


def lesson(algorithm: str, **trainer: Any) -> str:
    """Return the recipe of a lesson as YAML.

    Args:
        algorithm: The row.
        **trainer: Of its stage, beside what keeps it small.
    """
    first: dict[str, Any] = {"max_steps": 1, "per_device_train_batch_size": 4, "save_strategy": "no"}
    then = {"per_device_train_batch_size": 8, "max_completion_length": 4}
    small = {"layers": 1, "hidden": 16, "heads": 2, "intermediate": 16}
    return yaml.safe_dump(
        {
            "environment": {"name": "addition", "digits": 2, "train_rows": 32, "test_rows": 4},
            "rewards": ["accuracy", {"name": "format", "weight": 0.2}],
            "evaluation": {"metric": "accuracy", "every": 1, "batch_size": 4, "max_new_tokens": 4},
            "stages": [
                {"name": "sft", "model": {"name": "scratch", **small}, "algorithm": "sft", "trainer": first},
                {
                    "name": "row",
                    "model": {"lora": {"r": 2, "target_modules": "all-linear"}},
                    "algorithm": algorithm,
                    "trainer": {**then, **trainer},
                },
            ],
        },
        sort_keys=False,
    )


LESSON = lesson("dapo", max_steps=9, num_generations=4, learning_rate=1e-3)


def run(folder: Path, *more: str) -> list[dict[str, Any]]:
    (folder / "lesson.yaml").write_text(LESSON)
    where = ["--lesson", str(folder / "lesson.yaml"), "--out", str(folder / "out"), "--workers", "1"]
    assert benchmark.main([*where, "--steps", "1", *more]) == 0
    return benchmark.read(folder / "out")


def test_each_algorithm_is_measured_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (sft,) = run(tmp_path, "--rows", "sft", "--seeds", "0")
    with (tmp_path / "out/rows.jsonl").open("a") as file:
        file.write('{"row": "grpo", "se')  # killed inside a write
    records = run(tmp_path, "--rows", "grpo,sft", "--seeds", "0", "1")
    assert [(r["row"], r["seed"]) for r in records] == [("grpo", 0), ("grpo", 1), ("sft", 0), ("sft", 1)]
    assert records[2] == sft, "what has been measured is not measured again"
    for record in records:
        assert record["held_out_rows"] == 4
        assert [step for step, _ in record["curve"]] == [0, 1]
        assert (record["before"], record["after"]) == (record["curve"][0][1], record["curve"][-1][1])
        assert 0 < record["length"] <= 4
        assert record["entropy"] > 1, "weights that hardly left their random start"
        assert record["seconds"] > 0
        assert record["stage"]["trainer"]["max_steps"] == 1
        assert record["stage"]["trainer"]["learning_rate"] == 1e-3
        assert record["stage"]["algorithm"]["name"] == record["row"]
        assert str(tmp_path) not in json.dumps(record), "the same on every machine"
    assert records[2]["stage"]["environment"]["slip"] == 0
    printed = capsys.readouterr().out
    table = (tmp_path / "out/rows.md").read_text()
    assert table in printed
    assert [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")] == ["grpo", "sft"]
    assert OWN["sft"].why in table
    assert (tmp_path / "out/rows.png").stat().st_size > 0


def test_replay_uses_an_earlier_run_of_its_seed(tmp_path: Path) -> None:
    ends = ("--set", "trainer.max_completion_length=64")
    pays_for_any_end = ("--set", "rewards=[{name: accuracy}, {name: length, limit: 1, weight: -1}]")
    (record,) = run(tmp_path, "--rows", "rlep", "--seeds", "0", *ends, *pays_for_any_end)
    (source,) = record["stage"]["algorithm"]["rollouts"]
    assert source["path"] == "the pool of this seed"
    runs = tmp_path / "out/runs"
    pool = [json.loads(line) for line in (runs / "pool-0-1/successes.jsonl").read_text().splitlines()]
    steps = [json.loads(line) for line in (runs / "rlep-0/metrics.jsonl").read_text().splitlines()]
    prompts = len({json.dumps(entry["prompt"]) for entry in pool})
    (share,) = [step["sources/replay/share"] for step in steps if "sources/replay/share" in step]
    assert prompts / 8 <= share <= 2 * prompts / 8, "8 rows: it met the same problems, and each had one or two to draw"


def test_inference_engine_reports_logprobs_of_rounded_weights() -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=11, initializer_range=1.0, **sizes)).eval()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    prompts, rows = [[1, 2, 3], [4]], [[5, 6], [7, 8, 9, 10]]
    exact = logprobs(model, prompts, rows, 2.0)
    with rounded(model), torch.no_grad():
        coarse = logprobs(model, prompts, rows, 2.0)
        for prompt, row, logprob in zip(prompts, rows, coarse, strict=True):
            logp = (model(torch.tensor([prompt + row])).logits[0] / 2.0).log_softmax(-1)
            expected = [logp[len(prompt) + t - 1, token].item() for t, token in enumerate(row)]
            assert logprob == pytest.approx(expected, abs=1e-5)
        assert len(model.lm_head.weight.unique()) < 256, "eight bits"
    gap = max(abs(a - b) for one, other in zip(exact, coarse, strict=True) for a, b in zip(one, other, strict=True))
    assert 1e-3 < gap < 1, "not quite the policy"
    assert all(weight.equal(before[name]) for name, weight in model.state_dict().items()), "and then itself again"


def test_every_algorithm_is_measured_or_excluded_for_a_reason() -> None:
    ours = (BUILTIN, *benchmark.PACKAGES)
    known = [p.name for p in Registry() if p.hook == "rlm_algorithms" and p.plugin in ours and "@" not in p.name]
    assert benchmark.rows_of(Registry()) == [name for name in known if name not in LEFT_OUT]
    of_packages = {name for package in paper_packages.PACKAGES for name in getattr(package, "rlm_algorithms", dict)()}
    for name in (*OWN, *LEFT_OUT, *NOTES):
        assert name in {*known, *of_packages}, name


TURNED = {
    "2-no-std": {"advantage"},
    "3-leave-one-out": {"advantage"},
    "4-critic": {"advantage", "penalties", "critic"},
    "5-whitened": {"advantage"},
    "6-lambda": {"advantage"},
    "7-ppo": {"shapers"},
    "8-one-answer": {"num_generations"},
}
"""A critic comes with the term that teaches it."""


def last(file: Path) -> Stage:
    return compose(recipe.load(file), Registry(), build_environment=False)[-1]


def symbols(stage: Stage) -> dict[str, Any]:
    """Return the settings of a stage without its name, model and algorithm name."""
    body = json.loads(json.dumps(stage.body))
    rest = {key: x for key, x in body.items() if key not in ("name", "algorithm", "trainer", "model")}
    return {**rest, **body["trainer"], **{key: x for key, x in body["algorithm"].items() if key != "name"}}


def test_every_recipe_changes_one_symbol() -> None:
    files = turns.turns(turns.LESSON)
    assert [file.stem for file in files[1:]] == list(TURNED)
    for before, after in pairwise(files):
        one, other = symbols(last(before)), symbols(last(after))
        turned = {key for key in {*one, *other} if one.get(key) != other.get(key)}
        assert turned == TURNED[after.stem], after.stem


def test_turns_start_with_grpo_and_end_with_ppo() -> None:
    first, *_, ppo = (last(file) for file in turns.turns(turns.LESSON)[:-1])
    assert first.equation is not None
    assert first.equation.advantage.part.name == "group_relative"
    assert ppo.body["algorithm"]["name"] == "ppo"
    assert ppo.equation is not None
    assert objective(vars(ppo.equation)).startswith("loss = Σ [ −min(w Â, clip(w, 1−0.2, 1+0.2) Â)")


def test_the_curves_are_those_of_the_recipes() -> None:
    records = turns.read(turns.LESSON / turns.FILE)
    files = [file.stem for file in turns.turns(turns.LESSON)]
    found = turns.curves(records)
    assert list(found) == files
    steps = last(turns.turns(turns.LESSON)[0]).settings["max_steps"]
    for points in found.values():
        assert (points[0][0], points[-1][0]) == (0, steps)
    assert turns.table(records) in (turns.LESSON / "README.md").read_text()


@pytest.mark.slow
def test_each_turn_trains_from_its_own_start(tmp_path: Path) -> None:
    (tmp_path / "1-a.yaml").write_text(lesson("ppo", max_steps=1, num_generations=1, save_strategy="no"))
    assert turns.main(["--lesson", str(tmp_path), "--runs", str(tmp_path), "--seeds", "0"]) == 0
    (record,) = turns.read(tmp_path / turns.FILE)
    assert (record["recipe"], record["seed"], [step for step, _ in record["curve"]]) == ("1-a", 0, [0, 1])
    assert (tmp_path / "curves.png").stat().st_size > 0
    before = (tmp_path / turns.FILE).read_text()
    assert turns.main(["--lesson", str(tmp_path), "--runs", str(tmp_path), "--seeds", "0"]) == 0
    assert (tmp_path / turns.FILE).read_text() == before, "what has been measured is not measured again"
