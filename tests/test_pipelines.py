"""recipes/pipelines: consecutive stages with real models, checked without a network."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from golden_run import CANNED, cut_down
from test_papers import test_every_number_has_its_source as check_sources

from rlm_plugins import recipe
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry
from rlm_plugins.run.train import train

FOLDER = Path(__file__).parents[1] / "recipes" / "pipelines"
STAGED = FOLDER / "staged_contexts.yaml"
pipelines = pytest.mark.parametrize("file", sorted(FOLDER.glob("*.yaml")), ids=lambda file: file.stem)


@pipelines
def test_every_number_has_its_source(file: Path) -> None:
    check_sources(file)
    for line in file.read_text().splitlines():
        if product := re.search(r": (\d+) +#.*\((\d+) × (\d+)\)$", line):
            assert int(product[2]) * int(product[3]) == int(product[1])


def test_context_grows_from_stage_to_stage() -> None:
    stages = compose(recipe.load(STAGED), Registry(), build_environment=False)
    assert [stage.settings["max_completion_length"] for stage in stages] == [8 * 1024, 16 * 1024, 24 * 1024]
    assert [stage.settings["num_generations"] for stage in stages] == [8, 16, 16]
    for stage in stages:
        settings: Any = stage.settings
        rows = settings["per_device_train_batch_size"] * settings["steps_per_generation"]
        assert rows == 128 * settings["num_generations"]
        assert settings["steps_per_generation"] == 2 * settings["gradient_accumulation_steps"]


@pytest.mark.slow
def test_each_stage_starts_from_the_previous_one(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    lengths = [f"stages.{number}.trainer.max_completion_length={4 + number}" for number in range(3)]
    changes = [*cut_down(recipe.load(STAGED)), *lengths]
    run = train(recipe.load(STAGED, changes), Registry([CANNED]), tmp_path / "run")
    logged = [record for record in run.records() if "loss" in record]
    assert [(line["stage"], line["step"]) for line in logged] == [
        (f"0{n + 1}-{name}", step) for n, name in enumerate(("8k", "16k", "24k")) for step in (1, 2)
    ]
    assert all(line["penalties/kl"] == 0 for line in logged if line["step"] == 1), (
        "KL is measured from the stage's start"
    )
    assert any(line["penalties/kl"] > 0 for line in logged if line["step"] == 2)


SURVEY = sorted((FOLDER.parent / "survey").glob("*.yaml"))
PACKAGES = Path(__file__).parent / "paper_packages.py"


@pytest.mark.parametrize("file", SURVEY, ids=lambda file: file.stem)
def test_pipeline_of_the_survey_passes_every_check_of_names(file: Path) -> None:
    found = recipe.load(file)
    stages = compose(found, Registry([*found.load, PACKAGES]), build_environment=False)
    assert [stage.name[3:] for stage in stages] == [body["name"] for body in found.bodies]


def test_r1_zero_has_the_template_of_the_paper_in_known_characters() -> None:
    (first, stage, _) = compose(recipe.load(FOLDER.parent / "survey" / "r1_zero.yaml"), Registry())
    text = str(stage.environment_spec.test[0]["prompt"][0]["content"])
    assert text.startswith(
        "A conversation between User and Assistant. The user asks a question, and the Assistant solves it. "
    )
    assert re.search(r"</answer>\. User: \d\d\+\d\d=\?\. Assistant:$", text)
    tokenizer = first.source.tokenizer()
    assert tokenizer.unk_token_id not in tokenizer(text)["input_ids"]


def test_the_student_reads_the_pool_of_the_teacher(tmp_path: Path) -> None:
    pool, prompt = tmp_path / "successes.jsonl", [{"role": "user", "content": "44+48=?"}]
    answer = {"prompt": prompt, "completion": "<answer>92</answer>", "reward": 1.2}
    pool.write_text(json.dumps({"stage": "03-pool", "step": 0, **answer}) + "\n")
    found = recipe.load(FOLDER.parent / "survey" / "r1_student.yaml", [f"environment.path={pool}"])
    (stage,) = compose(found, Registry())
    (row,) = stage.environment_spec.train
    assert (row["prompt"], row["demonstration"]) == (prompt, "<answer>92</answer>")


def test_a_quarter_of_the_demonstrations_of_l1_has_the_length_of_its_budget() -> None:
    found = recipe.load(FOLDER.parent / "survey" / "l1.yaml")
    (stage, *_) = compose(found, Registry(found.load))
    tokenizer = stage.source.tokenizer()
    rows = list(stage.environment_spec.train)[:400]
    distances = [len(tokenizer(row["demonstration"])["input_ids"]) + 1 - row["target_length"] for row in rows]
    assert 0.25 <= distances.count(0) / len(rows) <= 0.35, "a quarter, and those that a random length hits"
    assert {row["target_length"] for row in rows} == {28, 36, 44}


def test_l1_logs_how_much_the_length_follows_the_budget() -> None:
    found = recipe.load(FOLDER.parent / "survey" / "l1.yaml")
    budget_read = Registry(found.load).find("rlm_rewards", "budget_read").target
    logged: dict[str, float] = {}
    lengths, budgets = [3, 5, 4, 9], [28, 44, 28, 44]
    assert budget_read([[0] * n for n in lengths], budgets, logged.__setitem__) == [0.0] * 4
    assert logged == {
        "budget_read/correlation": pytest.approx(float(torch.corrcoef(torch.tensor([lengths, budgets]).float())[0, 1]))
    }
    logged.clear()
    budget_read([[0], [0]], [28, 44], logged.__setitem__)
    assert logged == {}, "one length correlates with nothing"
