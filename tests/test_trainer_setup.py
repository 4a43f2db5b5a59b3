"""What one stage leaves is what the next one starts from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tiny
import torch
from peft import get_peft_model

from rlm_plugins.run import trainer_setup as engine
from rlm_plugins.specs import EnvironmentSpec, ModelSpec
from rlm_plugins.stage import Stage


def test_a_merged_adapter_is_in_the_weights_and_all_of_them_can_be_trained(tmp_path: Path) -> None:
    base = tiny.model()
    adapted: Any = get_peft_model(tiny.model(), tiny.lora())
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight)
    source = ModelSpec(config=base.config, tokenizer=tiny.tokenizer, load=tiny.model)
    stage = Stage("01-x", {}, None, {}, EnvironmentSpec(train=()), source, lora={"r": 8}, folder=tmp_path)
    adapted.save_pretrained(stage.output)
    merged = engine.result_of(stage).load()
    ids = torch.tensor([[3, 4, 5]])
    torch.testing.assert_close(merged(ids).logits, adapted(ids).logits)
    assert not torch.allclose(merged(ids).logits, base(ids).logits)
    assert all(weight.requires_grad for weight in merged.parameters())
