"""Training on a quantized base on the CPU, with each package that is installed; none is required."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from rlm_lab.evaluate import Sampler
from rlm_lab.export import export
from safetensors.torch import load_file

import rlm_plugins as rlm
from rlm_plugins.errors import RlmError
from rlm_plugins.registry import Registry

METHODS: list[tuple[str, dict[str, Any], float]] = [
    ("bitsandbytes", {"load_in_4bit": True}, 1e-2),
    ("bitsandbytes", {"quantization": {"method": "bitsandbytes_8bit"}}, 1e-2),
    ("optimum.quanto", {"quantization": {"method": "quanto", "weights": "int8"}}, 1e-5),
    ("optimum.quanto", {"quantization": {"method": "quanto", "weights": "int4"}}, 1e-5),
]
"""Module, keys of `model`, and the relative difference of gradients that its compute type explains (bfloat16: 2⁻⁸)."""
REWARD = "def spread(completions, **columns):\n    return [sum(map(ord, str(text))) % 7 / 7 for text in completions]\n"


def is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.full
@pytest.mark.parametrize(("module", "keys", "tolerance"), METHODS, ids=lambda value: str(value))
def test_an_adapter_on_quantized_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, keys: dict[str, Any], tolerance: float
) -> None:
    """The optimizations keep the gradient; the trained model can be sampled from and exported."""
    if not is_installed(module):
        pytest.skip(f"{module} is not installed")
    monkeypatch.setenv("RLM_TRUST", "1")
    sizes = {"hidden": 64, "heads": 2, "intermediate": 128}
    base = Registry().find("rlm_models", "scratch").bind(sizes).call({})
    base.load().save_pretrained(tmp_path / "base")
    base.tokenizer().save_pretrained(tmp_path / "base")
    (tmp_path / "reward.py").write_text(REWARD)
    steps = {"max_steps": 2, "num_generations": 4, "per_device_train_batch_size": 8, "max_completion_length": 6}
    rule = {"optim": "sgd", "learning_rate": 0.5, "max_grad_norm": 0.0}  # the change of the weights is the gradient
    recipe = {
        "model": {"name": str(tmp_path / "base"), "lora": {"r": 2, "target_modules": "all-linear"}, **keys},
        "environment": {"name": "addition", "digits": 2, "test_rows": 4},
        "rewards": ["./reward.py:spread"],
        "algorithm": "dr_grpo",
        "trainer": {**steps, **rule},
        "evaluation": None,
    }
    runs: list[rlm.Run] = []
    for speed in ({}, {"speed": "none"}):
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe | speed))
        runs.append(rlm.train(tmp_path / "recipe.yaml", out=tmp_path / f"run{len(runs)}"))
    fast, plain = (weights_of(run) for run in runs)
    assert plain.norm() > 0
    assert ((fast - plain).norm() / plain.norm()).item() < tolerance
    completions = [[json.loads(line)["completion"] for line in lines_of(run)] for run in runs]
    assert completions[0] == completions[1]
    quantized = {type(layer).__name__ for layer in runs[0].model()[0].modules()}
    assert quantized & {"Linear4bit", "Linear8bitLt", "QLinear"}
    assert len(Sampler(runs[0].folder).complete("1+1=?", count=2)) == 2
    export(runs[0].folder, str(tmp_path / "adapter"))
    if module == "optimum.quanto":
        with pytest.raises(RlmError, match="cannot be saved"):
            export(runs[0].folder, str(tmp_path / "merged"), merge=True)
    else:
        export(runs[0].folder, str(tmp_path / "merged"), merge=True)


def weights_of(run: rlm.Run) -> torch.Tensor:
    """Return the second factors of the adapter, which begin at zero."""
    found = load_file(run.folder / "01-dr_grpo" / "adapter" / "adapter_model.safetensors")
    return torch.cat([x.flatten() for name, x in sorted(found.items()) if "lora_B" in name])


def lines_of(run: rlm.Run) -> list[str]:
    return (run.folder / "samples.jsonl").read_text().splitlines()
