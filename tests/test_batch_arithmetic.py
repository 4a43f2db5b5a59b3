"""The batch arithmetic, compared with the trainers that use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
from fixtures_trainer import trainer
from trl import GRPOConfig, SFTConfig, SFTTrainer

from rlm_plugins.recipe.ranges import Generation
from rlm_plugins.report.check_report import BatchPlan, batch_plan


def planned(problems: int | None, folder: Path, **settings: Any) -> BatchPlan:
    settings = {"per_device_train_batch_size": 4, "num_generations": 4, "num_train_epochs": 2} | settings
    args = GRPOConfig(**tiny.settings(output_dir=str(folder), **{"max_steps": -1, **settings}))
    return batch_plan(args, problems, settings)


def test_one_generation_is_one_step(tmp_path: Path) -> None:
    plan = planned(16, tmp_path, per_device_train_batch_size=8)
    assert plan.lines() == [
        "2 prompts × 4 = 8 completions (per_device_train_batch_size 8 × gradient_accumulation_steps 1 × 1 process)",
        "8 completions = 1 micro-batch of 8 = 1 optimizer step",
        "16 optimizer steps = 16 generation batches = 32 prompts: 2 epochs of 16",
    ]


def test_micro_batches_and_passes(tmp_path: Path) -> None:
    settings = {"gradient_accumulation_steps": 2, "steps_per_generation": 4, "num_iterations": 2, "num_train_epochs": 1}
    plan = planned(9, tmp_path, **settings)
    assert plan.lines() == [
        "4 prompts × 4 = 16 completions (per_device_train_batch_size 4 × steps_per_generation 4 × 1 process)",
        "16 completions = 4 micro-batches of 4, 2 iterations = 4 optimizer steps",
        "8 optimizer steps = 2 generation batches = 8 prompts: 1 epoch of 9",
    ]


def test_generation_with_target_kl() -> None:
    generation = Generation(4, 1, 2, 4, "gradient_accumulation_steps")
    plan = BatchPlan(4, 1, 2, 100, 1.0, 0, generation, splits=2, iterations=3, target_kl=0.02)
    line = "8 completions = 2 micro-batches of 4, 3 iterations = 3 optimizer steps, or fewer (target_kl 0.02)"
    assert plan.lines()[1] == line


def test_several_generations_in_one_step(tmp_path: Path) -> None:
    plan = planned(16, tmp_path, gradient_accumulation_steps=4, steps_per_generation=1, max_steps=3)
    assert plan.lines()[1:] == [
        "4 completions = 1 micro-batch of 4 = 1/4 optimizer step",
        "3 optimizer steps = 12 generation batches = 12 prompts: 0.75 epochs of 16",
    ]


def test_generation_batch_size_is_accepted(tmp_path: Path) -> None:
    plan = planned(64, tmp_path, generation_batch_size=16, max_steps=1)
    assert plan.lines()[0] == "4 prompts × 4 = 16 completions (generation_batch_size 16)"
    assert plan.splits == 4


def test_processes() -> None:
    generation = Generation(4, 2, 3, 4, "gradient_accumulation_steps")
    plan = BatchPlan(4, 2, 3, 100, 1.0, 0, generation, splits=3)
    assert plan.lines()[1] == "24 completions = 3 micro-batches of 4 on each of 2 processes = 1 optimizer step"
    assert BatchPlan(4, 2, 3, 100, 1.0, 5).lines() == [
        "3 micro-batches of 4 × 2 processes = 24 examples per optimizer step",
        "5 optimizer steps = 120 examples: 1 epoch of 100",
    ]


def test_streamed_data_have_no_epochs() -> None:
    assert BatchPlan(4, 1, 1, None, 1.0, 0).lines()[-1] == "unbounded: the training data is a stream; set `max_steps`"
    assert BatchPlan(4, 1, 1, None, 1.0, 7).lines()[-1] == "7 optimizer steps = 28 examples"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problems", "settings"),
    [
        (14, {}),
        (27, {"gradient_accumulation_steps": 2}),
        (27, {"gradient_accumulation_steps": 2, "num_iterations": 3, "num_train_epochs": 1}),
        (27, {"gradient_accumulation_steps": 4, "steps_per_generation": 2, "num_train_epochs": 2.5}),
        (32, {"gradient_accumulation_steps": 3, "steps_per_generation": 1, "num_train_epochs": 1}),
        (14, {"max_steps": 3}),
    ],
)
def test_step_count_equals_the_trainers(tmp_path: Path, problems: int, settings: dict[str, Any]) -> None:
    plan = planned(problems, tmp_path, **{"per_device_train_batch_size": 16, **settings})
    quick = {"per_device_train_batch_size": 16, "max_steps": -1, "num_train_epochs": 2, "max_completion_length": 2}
    equation_trainer = trainer(tmp_path, **{**quick, **settings})
    equation_trainer.train_dataset = tiny.problems(problems)
    equation_trainer.train()
    assert equation_trainer.state.global_step == plan.steps


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"gradient_accumulation_steps": 3}, {"max_steps": 2}])
def test_supervised_too(tmp_path: Path, settings: dict[str, Any]) -> None:
    settings = {"per_device_train_batch_size": 4, "num_train_epochs": 2, **settings}
    quiet = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "bf16": False, "save_strategy": "no"}
    args = SFTConfig(output_dir=str(tmp_path), **settings, **quiet)
    rows = tiny.problems(22).map(lambda row: {"completion": row["answer"]}, remove_columns=["answer"])
    equation_trainer = SFTTrainer(model=tiny.model(), args=args, train_dataset=rows, processing_class=tiny.tokenizer())
    equation_trainer.train()
    assert equation_trainer.state.global_step == batch_plan(args, 22, settings).steps
