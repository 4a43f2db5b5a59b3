"""The batch arithmetic, held against the trainers that carry it out."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
from trl import GRPOConfig, SFTConfig, SFTTrainer

from rlm_plugins.cli.batch_plan import Schedule, schedule
from rlm_plugins.recipe.batch_arithmetic import Generation


def planned(problems: int | None, folder: Path, **settings: Any) -> Schedule:
    said = {"per_device_train_batch_size": 4, "num_generations": 4, "num_train_epochs": 2, **settings}
    args = GRPOConfig(**tiny.settings(output_dir=str(folder), **{"max_steps": -1, **said}))
    return schedule(args, problems, said)


def test_one_generation_is_one_step(tmp_path: Path) -> None:
    found = planned(16, tmp_path, per_device_train_batch_size=8)
    assert found.words() == [
        "2 problems × 4 answers = 8 completions "
        "(per_device_train_batch_size 8 × gradient_accumulation_steps 1 × 1 process)",
        "8 completions = 1 micro-batch of 8 = 1 optimiser step",
        "16 optimiser steps = 16 generations = 32 problems: 2 epochs of 16",
    ]


def test_micro_batches_and_passes(tmp_path: Path) -> None:
    said = {"gradient_accumulation_steps": 2, "steps_per_generation": 4, "num_iterations": 2, "num_train_epochs": 1}
    found = planned(9, tmp_path, **said)
    assert found.words() == [
        "4 problems × 4 answers = 16 completions (per_device_train_batch_size 4 × steps_per_generation 4 × 1 process)",
        "16 completions = 4 micro-batches of 4, learned from 2 times = 4 optimiser steps",
        "8 optimiser steps = 2 generations = 8 problems: 1 epoch of 9",
    ]


def test_a_generation_that_may_be_left_early() -> None:
    plan = Generation(4, 1, 2, 4, "gradient_accumulation_steps")
    found = Schedule(4, 1, 2, 100, 1.0, 0, plan, pieces=2, passes=3, target_kl=0.02)
    told = "8 completions = 2 micro-batches of 4, learned from 3 times = 3 optimiser steps, or fewer (target_kl 0.02)"
    assert found.words()[1] == told


def test_several_generations_in_one_step(tmp_path: Path) -> None:
    found = planned(16, tmp_path, gradient_accumulation_steps=4, steps_per_generation=1, max_steps=3)
    assert found.words()[1:] == [
        "4 completions = 1 micro-batch of 4 = 1/4 optimiser step",
        "3 optimiser steps = 12 generations = 12 problems: 0.75 epochs of 16",
    ]


def test_a_generation_said_as_a_whole(tmp_path: Path) -> None:
    found = planned(64, tmp_path, generation_batch_size=16, max_steps=1)
    assert found.words()[0] == "4 problems × 4 answers = 16 completions (generation_batch_size 16)"
    assert found.pieces == 4


def test_processes() -> None:
    plan = Generation(4, 2, 3, 4, "gradient_accumulation_steps")
    found = Schedule(4, 2, 3, 100, 1.0, 0, plan, pieces=3)
    assert found.words()[1] == "24 completions = 3 micro-batches of 4 on each of 2 processes = 1 optimiser step"
    assert Schedule(4, 2, 3, 100, 1.0, 5).words() == [
        "3 micro-batches of 4 × 2 processes = 24 rows per optimiser step",
        "5 optimiser steps = 120 problems: 1 epoch of 100",
    ]


def test_a_stream_has_no_epochs() -> None:
    assert Schedule(4, 1, 1, None, 1.0, 0).words()[-1] == "no end: the data are a stream; set `max_steps`"
    assert Schedule(4, 1, 1, None, 1.0, 7).words()[-1] == "7 optimiser steps = 28 problems"


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
def test_as_many_steps_as_the_trainer_takes(tmp_path: Path, problems: int, settings: dict[str, Any]) -> None:
    from trainers import trainer

    found = planned(problems, tmp_path, **{"per_device_train_batch_size": 16, **settings})
    quick = {
        "per_device_train_batch_size": 16,
        "max_steps": -1,
        "num_train_epochs": 2,
        "max_completion_length": 2,
        "save_strategy": "no",
    }
    made = trainer(tmp_path, **{**quick, **settings})
    made.train_dataset = tiny.problems(problems)
    made.train()
    assert made.state.global_step == found.steps


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"gradient_accumulation_steps": 3}, {"max_steps": 2}])
def test_supervised_too(tmp_path: Path, settings: dict[str, Any]) -> None:
    said = {"per_device_train_batch_size": 4, "num_train_epochs": 2, **settings}
    quiet = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "bf16": False, "save_strategy": "no"}
    args = SFTConfig(output_dir=str(tmp_path), **said, **quiet)
    rows = tiny.problems(22).map(lambda row: {"completion": row["answer"]}, remove_columns=["answer"])
    made = SFTTrainer(model=tiny.model(), args=args, train_dataset=rows, processing_class=tiny.tokenizer())
    made.train()
    assert made.state.global_step == schedule(args, 22, said).steps


def test_what_the_recipe_did_not_say_is_not_called_said() -> None:
    args = SimpleNamespace(
        per_device_train_batch_size=2,
        world_size=1,
        gradient_accumulation_steps=2,
        num_train_epochs=1,
        max_steps=1,
        num_generations=2,
        num_iterations=1,
        steps_per_generation=2,
        generation_batch_size=4,
    )
    assert "gradient_accumulation_steps 2" in schedule(args, 8, {}).words()[0]
    assert "steps_per_generation 2" in schedule(args, 8, {"steps_per_generation": 2}).words()[0]
