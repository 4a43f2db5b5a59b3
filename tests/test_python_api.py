"""Functions of the Python API on a tiny model: load, check, train, evaluate, explain, part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import trl
from datasets import Dataset

import rlm_plugins as rlm
from rlm_plugins.errors import RlmError

TRAINER = {
    "max_steps": 1,
    "per_device_train_batch_size": 4,
    "num_generations": 2,
    "max_completion_length": 4,
    "seed": 3,
}


def recipe(**changes: Any) -> dict[str, Any]:
    return {"environment": "addition", "rewards": [letters], "algorithm": "dr_grpo", "trainer": TRAINER} | changes


def letters(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    """Return the share of the answer's characters in each completion."""
    return [sum(c in text for c in right) / len(right) for text, right in zip(completions, answer, strict=True)]


def half(rewards: Any, group: Any) -> Any:
    """Compute Â = (r − mean) / 2."""
    return rewards / 2 - rewards.mean() / 2


def test_every_public_name_exists_and_is_documented() -> None:
    page = (Path(__file__).parents[1] / "docs" / "python.md").read_text()
    for name in rlm.__all__:
        value = getattr(rlm, name)
        assert isinstance(value, str) or value.__doc__, name
        assert name in ("__version__", "hookimpl") or name in page, name


def test_load_takes_a_mapping_and_overrides() -> None:
    loaded = rlm.load(
        recipe(model="scratch", rewards=["accuracy"]), {"trainer.seed": 7, "algorithm.policy_loss.epsilon": 0.3}
    )
    assert loaded.bodies[0]["trainer"]["seed"] == 7
    with pytest.raises(RlmError, match=r"unknown key 'rewrads'"):
        rlm.load(recipe(model="scratch", rewards=["accuracy"], rewrads=[]))
    for part in ({"advantages": max}, {"policy_loss": {"function": max}}):
        with pytest.raises(
            RlmError, match=r"(?s)unknown slot 'advantages'.*'advantage'\?|a function is the name of its"
        ):
            rlm.check(recipe(algorithm={"name": "grpo", **part}))
    with pytest.raises(RlmError, match="expected plain data"):
        rlm.load(recipe(model=object(), rewards=["accuracy"]))


@pytest.mark.slow
def test_train_with_objects_in_the_place_of_sections(tmp_path: Path) -> None:
    data = tiny.problems()
    sections = {
        "model": tiny.model(),
        "tokenizer": tiny.tokenizer(),
        "train_dataset": data,
        "test_dataset": data.select(range(4)),
    }
    run = rlm.train(
        recipe(algorithm={"name": "dr_grpo", "advantage": half}, evaluation={"max_new_tokens": 4}),
        out=tmp_path / "run",
        **sections,
    )
    assert run.score is not None
    assert "letters" in repr(run)
    assert {"rewards/letters/mean", "loss"} <= set(rows(run.metrics)[1])
    assert len(rows(run.samples)) == 4
    model, tokenizer = run.model()
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in tiny.model().parameters())
    assert len(tokenizer) == len(tiny.tokenizer())
    assert rlm.Run(tmp_path / "run").score == run.score
    with pytest.raises(RlmError, match="there is no run"):
        rlm.Run(tmp_path)


def rows(table: Any) -> list[dict[str, Any]]:
    return table if isinstance(table, list) else table.to_dict("records")


def test_check_and_evaluate_need_no_files_of_their_own(tmp_path: Path) -> None:
    found = rlm.check(recipe(model="scratch"), {"trainer.max_steps": 2})
    assert found[0]["objective"].startswith("loss =")
    assert "objective" in found._repr_html_()
    with pytest.raises(RlmError, match="requires the column 'answer'"):
        rlm.check(recipe(model="scratch"), train_dataset=Dataset.from_dict({"prompt": ["1+1="] * 8}))
    with pytest.raises(RlmError, match="its `tokenizer` is required"):
        rlm.check(recipe(), model=tiny.model())
    with pytest.raises(RlmError, match="unknown argument 'dataset'"):
        rlm.check(recipe(model="scratch"), dataset=1)


def test_parts_and_tables() -> None:
    gae = rlm.part("advantage", "group_relative", scale="none")
    assert gae(rewards=torch.tensor([2.0, 0.0]), group=torch.tensor([0, 0])).tolist() == [1.0, -1.0]
    with pytest.raises(RlmError, match="unknown knob 'scal'"):
        rlm.part("advantage", "group_relative", scal="none")
    with pytest.raises(RlmError, match="unknown slot 'advantages'"):
        rlm.part("advantages", "gae")
    assert "dapo" in str(rlm.algorithms())
    assert "vespo" in str(rlm.explain("loss_type"))
    assert rlm.Equation.__name__ == "Equation"


@pytest.mark.slow
def test_supervised_trainers_have_trls_weights(tmp_path: Path) -> None:
    data = Dataset.from_dict({"prompt": ["1+1=", "2+3="] * 4, "completion": ["2", "5"] * 4})

    def trained(kind: Any, **extra: Any) -> torch.Tensor:
        keep = {"max_steps", "learning_rate", "seed", "use_cpu", "bf16", "report_to", "disable_tqdm", "save_strategy"}
        settings = {k: v for k, v in tiny.settings(output_dir=str(tmp_path)).items() if k in keep | {"output_dir"}}
        loss = {"loss_type": extra.pop("loss_type")} if "loss_type" in extra else {}
        trainer = kind(
            model=tiny.model(),
            args=trl.SFTConfig(**settings, **loss),
            train_dataset=data,
            processing_class=tiny.tokenizer(),
            **extra,
        )
        trainer.train()
        return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])

    assert torch.equal(trained(rlm.SFTTrainer), trained(trl.SFTTrainer))
    assert torch.equal(trained(rlm.SFTTrainer, algorithm="dft"), trained(trl.SFTTrainer, loss_type="dft"))
    with pytest.raises(RlmError, match="allowed: sft, dft"):
        rlm.SFTTrainer("model", algorithm="grpo")
