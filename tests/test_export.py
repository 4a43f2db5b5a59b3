"""``rlm export`` and ``rlm sample``: folders that transformers and PEFT load, the hub, completions of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from fixtures_hub import hub  # noqa: F401
from peft import PeftModel
from rlm_lab.evaluate import Sampler, chat
from rlm_lab.export import export
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlm_plugins.errors import RlmError
from rlm_plugins.recipe.compose import compose
from rlm_plugins.run.launch import finished_stage
from rlm_plugins.run.recipe_argument import read
from rlm_plugins.run.train import train

RECIPE = """
environment: {name: addition, digits: 2, test_rows: 4}
rewards: [accuracy]
evaluation: {max_new_tokens: 4}
algorithm: {name: grpo, policy_loss: {epsilon: 0.3}, penalties: []}
trainer: {max_steps: 1, per_device_train_batch_size: 4, num_generations: 4, max_completion_length: 4,
          learning_rate: 1e-2, save_strategy: "no"}
"""


def trained(folder: Path, model: str) -> Path:
    """Train one step and return the folder of the run."""
    (folder / "recipe.yaml").write_text(f"model: {model}\n{RECIPE}")
    train(*read(folder / "recipe.yaml", ()), folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    run = trained(folder, "{name: scratch, hidden: 16, layers: 1, heads: 2, intermediate: 16}")
    return run / "01-grpo" / "model"


@pytest.fixture(scope="module")
def run(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run that trained an adapter on a checkpoint outside the run."""
    return trained(tmp_path_factory.mktemp("adapter"), json.dumps({"name": str(base), "lora": {"r": 2}}))


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.arange(5, 15).unsqueeze(0)).logits


def expected(run: Path) -> torch.Tensor:
    recipe, registry = read(run, ())
    return logits(finished_stage(run, compose(recipe, registry), None).source.load().eval())


def test_adapter_loads_with_peft(run: Path, base: Path, tmp_path: Path) -> None:
    export(run, str(tmp_path / "out"))
    plain = AutoModelForCausalLM.from_pretrained(base)
    model = PeftModel.from_pretrained(plain, tmp_path / "out").merge_and_unload().eval()
    torch.testing.assert_close(logits(model), expected(run))
    assert not [*(tmp_path / "out").glob("*.bin"), *(tmp_path / "out").glob("checksums.json")]


def test_merged_model_loads_with_transformers(run: Path, tmp_path: Path) -> None:
    export(run, str(tmp_path / "out"), merge=True)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    torch.testing.assert_close(logits(model), expected(run))
    assert AutoTokenizer.from_pretrained(tmp_path / "out")("1+1=?").input_ids


def test_model_card_has_objective_differences_score_and_command(run: Path, tmp_path: Path) -> None:
    export(run, str(tmp_path / "my-model"), merge=True)
    card = (tmp_path / "my-model" / "README.md").read_text()
    assert "# my-model" in card
    assert "clip(w, 1−0.3, 1+0.3)" in card
    assert "- clip.epsilon: 0.2 → 0.3" in card
    assert "on 4 examples" in card or "4 examples)" in card
    assert "rlm train recipe.yaml" in card
    assert "[None]" not in card
    assert "More Information Needed" not in card
    assert (tmp_path / "my-model" / "recipe.yaml").exists()


def test_base_inside_the_run_requires_merge(tmp_path: Path) -> None:
    run = trained(tmp_path, "{name: scratch, hidden: 16, layers: 1, heads: 2, intermediate: 16, lora: {r: 2}}")
    with pytest.raises(RlmError, match="made by the run itself") as error:
        export(run, str(tmp_path / "out"))
    assert "--merge" in error.value.hint
    assert not (tmp_path / "out").exists()


def test_target_in_use_is_not_overwritten(run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(RlmError, match="expected a new or empty folder"):
        export(run, str(tmp_path))


def test_hub(run: Path, hub: dict[str, Any]) -> None:  # noqa: F811
    assert export(run, "hub:me/model", merge=True).endswith("/me/model")
    assert hub["created"] == ["model"]
    assert {"README.md", "config.json", "recipe.yaml"} <= {*hub["files"]}


def test_sample(run: Path) -> None:
    sampler = Sampler(run)
    first = sampler.complete("1+1=?", temperature=0.0)
    assert first == sampler.complete("1+1=?", temperature=0.0)
    assert len(sampler.complete("1+1=?", count=3)) == 3


def test_chat_answers_each_line(run: Path) -> None:
    lines = iter(["1+1=?", "", "2+2=?"])

    def ask() -> str:
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    assert len(list(chat(Sampler(run), ask, temperature=0.0))) == 2
