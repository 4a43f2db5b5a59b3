"""Each stage starts from the result of the previous one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tiny
import torch
from huggingface_hub import ModelCard
from peft import get_peft_model

from rlm_plugins.durable.files import seal
from rlm_plugins.models.pretrained import WeightsNotice, notice_of
from rlm_plugins.run.stage_result import result_of, write_model_card
from rlm_plugins.specs import EnvironmentSpec, ModelSpec
from rlm_plugins.stage import Place, Stage


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
