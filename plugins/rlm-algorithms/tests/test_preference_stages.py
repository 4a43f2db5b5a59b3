"""Stages `dpo` and `kto` between supervised and reinforcement learning, and their loss against the formula."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from rlm_plugins import recipe
from rlm_plugins.errors import RecipeError
from rlm_plugins.models.adapters import sequence_logprobs
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry
from rlm_plugins.run.train import train
from rlm_plugins.stage import RunState

TRAINER = {"max_steps": 3, "per_device_train_batch_size": 4, "learning_rate": 0.01, "save_strategy": "no"}
PAIRS = [
    {"prompt": f"{a}+{b}=", "answer": str(a + b), "chosen": str(a + b), "rejected": str((a + b + 1) % 10)}
    for a in range(4)
    for b in range(4)
]


def three(folder: Path, rows: list[dict[str, Any]], algorithm: str, only: bool = False, **trainer: Any) -> Any:
    """Return a recipe of SFT, preferences and GRPO on one file, or of the second stage only."""
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    lora = {"r": 2, "target_modules": "all-linear"}
    sampling = {"num_generations": 4, "max_completion_length": 4}
    stages = [
        {"algorithm": "sft", "trainer": TRAINER},
        {"algorithm": algorithm, "model": {"lora": lora}, "trainer": {**TRAINER, **trainer}},
        {"algorithm": "grpo", "model": {"lora": lora}, "rewards": ["accuracy"], "trainer": {**TRAINER, **sampling}},
    ]
    common = {
        "model": {"name": "scratch", "hidden": 16, "layers": 1},
        "environment": {"name": "dataset", "path": str(folder / "rows.jsonl")},
    }
    return recipe.of_mapping({**common, **stages[1], **common} if only else {**common, "stages": stages}, [])


@pytest.mark.parametrize("algorithm", ["dpo", "kto"])
def test_one_recipe_from_demonstrations_over_preferences_to_rewards(
    tmp_path: Path, algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLM_CACHE", str(tmp_path / "cache"))
    result = train(three(tmp_path, PAIRS, algorithm, max_steps=40, learning_rate=0.02), Registry(), tmp_path / "run")
    lines = [line for line in result.records() if "loss" in line]
    by_stage = [[line for line in lines if line["stage"].endswith(name)] for name in ("sft", algorithm, "grpo")]
    assert [len(rows) for rows in by_stage] == [3, 40, 3]
    if algorithm == "dpo":
        assert by_stage[1][0]["loss"] == pytest.approx(math.log(2), abs=1e-4), "policy and reference are equal"
        assert by_stage[1][39]["rewards/margins"] > 0.01


@pytest.mark.parametrize("lora", [True, False])
def test_the_loss_is_that_of_the_paper(tmp_path: Path, lora: bool) -> None:
    """After a step, on a whole batch: log-probs of end tokens included, the reference is the start of the stage."""
    loaded = three(tmp_path, PAIRS[:4], "dpo", only=True, beta=0.3)
    loaded.bodies[0]["model"] |= {"lora": {"r": 2, "target_modules": "all-linear"}} if lora else {}
    (stage,) = compose(loaded, Registry())
    trainer = stage.trainer.build(stage, RunState())
    before = {name: x.detach().clone() for name, x in trainer.model.named_parameters()}
    trainer.train()
    batch = next(iter(trainer.get_train_dataloader()))
    with torch.no_grad():
        found = trainer.compute_loss(trainer.model, batch)
    rows = [ids[mask.bool()].tolist() for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)]
    starts = [int(mask.int().argmax()) for mask in batch["completion_mask"]]
    policy = _sums(trainer.model, rows, starts)
    with torch.no_grad():
        for name, x in trainer.model.named_parameters():
            x.copy_(before[name])
    ratios = policy - _sums(trainer.model, rows, starts)
    expected = -torch.nn.functional.logsigmoid(0.3 * (ratios[:4] - ratios[4:])).mean()
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)
    assert ratios.abs().max() > 1e-3


def _sums(model: Any, rows: list[list[int]], starts: list[int]) -> torch.Tensor:
    logp = sequence_logprobs(model, rows)
    return torch.stack([x[start - 1 :].sum() for x, start in zip(logp, starts, strict=True)])


def test_labels_of_completions_train_kto_and_other_columns_are_refused(tmp_path: Path) -> None:
    labeled = [
        {"prompt": row["prompt"], "completion": row["chosen"], "label": n % 2 == 0} for n, row in enumerate(PAIRS)
    ]
    (stage,) = compose(three(tmp_path, labeled, "kto", only=True), Registry())
    assert len(stage.trainer.build(stage, RunState()).train_dataset) == len(PAIRS)
    with pytest.raises(RecipeError, match="chosen"):
        compose(three(tmp_path, labeled, "dpo", only=True), Registry())
