"""Results of stages: each starts from the previous one, and `Run.model()` returns the weights that `rlm eval` loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fixtures_reward_model as rlhf
import pytest
import tiny
import torch
from huggingface_hub import ModelCard
from peft import get_peft_model
from rlm_judge.reward_files import load_with_own_base
from rlm_lab.evaluate import model_of
from rlm_lab.export import export

import rlm_plugins as rlm
from rlm_plugins.durable.files import seal
from rlm_plugins.errors import RlmError
from rlm_plugins.models.pretrained import WeightsNotice, notice_of
from rlm_plugins.run.stage_result import result_of, write_model_card
from rlm_plugins.specs import EnvironmentSpec, ModelSpec
from rlm_plugins.stage import Place, Stage

LORA = {"r": 2, "target_modules": "all-linear"}
SCRATCH = {"name": "scratch", "hidden": 16, "heads": 2, "intermediate": 16}
STEPS = {"max_steps": 1, "per_device_train_batch_size": 4, "learning_rate": 5e-2}
SFT = {"algorithm": "sft", "rewards": [], "trainer": STEPS}
GRPO = {"algorithm": "dr_grpo", "trainer": {**STEPS, "num_generations": 2, "max_completion_length": 4}}


def spread(completions: list[str], **columns: Any) -> list[float]:
    """Return scores that differ between most completions, for gradients from the first step on."""
    return [sum(map(ord, str(text))) % 7 / 7 for text in completions]


def recipe(model: Any, *stages: dict[str, Any]) -> dict[str, Any]:
    environment = {"name": "addition", "digits": 2, "test_rows": 4}
    return {"model": model, "environment": environment, "rewards": [spread], "stages": [*stages]}


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(input_ids=torch.tensor([[5, 6, 7]])).logits


def judged(run: rlm.Run, stage: str | None = None) -> torch.Tensor:
    """Return logits of the merged model, as `rlm eval` loads it."""
    return logits(model_of(run.folder, stage, ())[0].load())


def test_an_adapter_on_weights_from_scratch(tmp_path: Path) -> None:
    run = rlm.train(recipe({**SCRATCH, "lora": LORA}, SFT), out=tmp_path / "run")
    model, _ = run.model()
    assert any("lora" in name for name, _ in model.named_parameters())
    torch.testing.assert_close(logits(model), judged(run))
    torch.testing.assert_close(logits(rlm.Run(run.folder).model()[0]), judged(run))


def test_each_of_two_adapters_is_on_its_own_base(tmp_path: Path) -> None:
    """The second adapter's base is the merged model of the first, never the initial checkpoint."""
    base = rlm.train(recipe(SCRATCH, SFT), out=tmp_path / "base")
    start = {"name": str(base.folder / "01-sft" / "model"), "lora": LORA}
    plain = recipe(start, SFT, SFT) | {"rewards": []}
    run = rlm.train(plain, out=tmp_path / "run")
    first, second = run.model("01-sft")[0], run.model()[0]
    torch.testing.assert_close(logits(second), judged(run))
    torch.testing.assert_close(logits(first), judged(run, "01-sft"))
    assert (logits(first) - logits(second)).abs().max() > 1e-3
    with pytest.raises(RlmError, match="does not name its base"):
        model_of(run.folder / "02-sft" / "adapter", None, ())
    with pytest.raises(RlmError, match="made by the run itself"):
        export(run.folder, str(tmp_path / "exported"))
    with pytest.raises(RlmError, match="unknown or unfinished stage 'grpo'"):
        run.model("grpo")


def test_supervised_reward_model_and_critic(tmp_path: Path) -> None:
    run = rlm.Run(rlhf.run(tmp_path / "run").folder)
    torch.testing.assert_close(logits(run.model()[0]), judged(run))
    torch.testing.assert_close(logits(run.model("sft")[0]), judged(run, "sft"))
    classifier, tokenizer = run.model("02-reward")
    scored = load_with_own_base(run.folder / "02-reward" / "adapter", "cpu")
    ids = tokenizer("12+30=?")["input_ids"]
    with torch.no_grad():
        score = classifier.eval()(input_ids=torch.tensor([ids])).logits.item()
    assert score == pytest.approx(scored.scores([ids], 1)[0], abs=1e-6)
    assert score != 0


def test_an_adapter_on_a_model_in_memory(tmp_path: Path) -> None:
    objects = {"model": tiny.model(), "tokenizer": tiny.tokenizer(), "train_dataset": tiny.problems()}
    objects["test_dataset"] = tiny.problems(4)
    base = logits(objects["model"])
    run = rlm.train(GRPO | {"model": {"lora": LORA}, "rewards": [spread]}, out=tmp_path / "run", **objects)
    model, _ = run.model()
    torch.testing.assert_close(logits(model), logits(run.model()[0]))
    assert not torch.equal(logits(model), base)
    with model.disable_adapter():
        torch.testing.assert_close(logits(model), base)
    assert run.resume() is run, "nothing is left to train"
    assert rlm.evaluate(run)["score"] == run.score, "of the same model"
    with pytest.raises(RlmError, match=r"(?s)python/.*an object of the Python process that trained"):
        rlm.Run(run.folder).model()


def test_merged_adapter_leaves_all_weights_trainable(tmp_path: Path) -> None:
    base = tiny.model()
    adapted: Any = get_peft_model(tiny.model(), tiny.lora())
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight)
    source = ModelSpec(config=base.config, tokenizer=tiny.tokenizer, load=tiny.model)
    stage = Stage("01-x", {}, None, {}, EnvironmentSpec(train=()), source, lora={"r": 8}, place=Place(tmp_path))
    adapted.save_pretrained(stage.output)
    seal(stage.output)
    merged = result_of(stage).load()
    ids = torch.tensor([[3, 4, 5]])
    torch.testing.assert_close(merged(ids).logits, adapted(ids).logits)
    assert not torch.allclose(merged(ids).logits, base(ids).logits)
    assert all(weight.requires_grad for weight in merged.parameters())


def test_model_card_has_base_license_and_working_code(tmp_path: Path) -> None:
    base = tmp_path / "base"
    tiny.model().save_pretrained(base)
    tiny.tokenizer().save_pretrained(base)
    notice = WeightsNotice("Tiny", "https://huggingface.co/someone/tiny", "MIT")
    source = ModelSpec(tiny.model().config, tiny.tokenizer, tiny.model, str(base), lambda: notice)
    body = {"algorithm": {"name": "grpo"}, "environment": {"name": "addition"}}
    for lora in ({"r": 8}, None):
        folder = tmp_path / ("full" if lora is None else "lora")
        stage = Stage("01-x", body, None, {}, EnvironmentSpec(train=()), source, lora=lora, place=Place(folder))
        trained = tiny.model() if lora is None else get_peft_model(tiny.model(), tiny.lora())
        trained.save_pretrained(stage.output)
        tiny.tokenizer().save_pretrained(stage.output)
        write_model_card(stage, stage.output, str(base))
        card = ModelCard.load(stage.output / "README.md")
        assert (card.data.license, card.data.base_model) == ("mit", "someone/tiny")
        assert notice_of(stage.output / "README.md", "x").license == "mit"
        assert "Tiny; license: MIT; source: https://huggingface.co/someone/tiny" in card.text
        scope: dict[str, Any] = {}
        exec(card.text.split("```python")[1].split("```")[0], scope)
        ids = torch.tensor([[3, 4, 5]])
        torch.testing.assert_close(scope["model"](ids).logits, tiny.model()(ids).logits)


def test_code_in_the_folder_of_a_result_is_not_run(tmp_path: Path) -> None:
    """Without a question on the terminal, as transformers has it if `trust_remote_code` is not set."""
    source = ModelSpec(config=tiny.model().config, tokenizer=tiny.tokenizer, load=tiny.model)
    stage = Stage("01-x", {}, None, {}, EnvironmentSpec(train=()), source, place=Place(tmp_path))
    tiny.model().save_pretrained(stage.output)
    tiny.tokenizer().save_pretrained(stage.output)
    (stage.output / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    for name, key in (("config.json", "AutoModelForCausalLM"), ("tokenizer_config.json", "AutoTokenizer")):
        settings = json.loads((stage.output / name).read_text())
        value = "code.Model" if name == "config.json" else ["code.Tokenizer", None]
        (stage.output / name).write_text(json.dumps({**settings, "auto_map": {key: value}}))
    seal(stage.output)
    result = result_of(stage)
    result.tokenizer(), result.load()
    assert not (tmp_path / "ran").exists()
