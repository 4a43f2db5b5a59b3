"""Trackers, the hub, DeepSpeed and optional packages: checked by name, tested for real, never a traceback."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from fixtures_hub import hub  # noqa: F401
from huggingface_hub.utils import validate_repo_id
from transformers import AutoModelForCausalLM, TrainerCallback
from transformers.integrations import integration_utils

import rlm_plugins as rlm
from rlm_plugins.errors import RecipeError, RlmError
from rlm_plugins.trainer import options as integration_errors_module
from rlm_plugins.trainer.options import integration_errors


def recipe(**trainer: Any) -> dict[str, Any]:
    return tiny.recipe(**{"max_steps": 2, **trainer})


@pytest.mark.parametrize(
    ("name", "hint"),
    [("wandbb", "'wandb'"), ("tensorbord", "'tensorboard'"), ("trackoi", "'trackio'"), ("zzz", "none")],
)
def test_a_misspelt_tracker_is_no_package(name: str, hint: str) -> None:
    with pytest.raises(RecipeError, match=f"(?s)trainer.report_to.*unknown tracker '{name}'.*hint: .*{hint}") as caught:
        rlm.check(recipe(report_to=name))
    assert "pip install" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"deepspeed": {"zero_optimization": {"stage": 2}}}, "trainer.deepspeed.*deepspeed is not installed"),
        ({"use_liger_kernel": True}, "trainer.use_liger_kernel.*liger-kernel is not installed"),
        ({"use_vllm": True}, "engine.*trainer.use_vllm.*vLLM is not installed"),
    ],
)
def test_a_missing_package_is_found_by_check(
    changes: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    absent = ("deepspeed", "liger_kernel", "vllm")
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None if name in absent else found(name, *rest))
    with pytest.raises(RecipeError, match=f"(?s){message}.*pip install"):
        rlm.check(recipe(**changes))


def test_an_error_that_passes_through_an_integration_names_its_setting() -> None:
    message = r"(?s)trainer\.push_to_hub.*hub failed: HFValidationError.*hf auth login"
    with pytest.raises(RecipeError, match=message), integration_errors("01-grpo"):
        validate_repo_id("no such//name")
    with pytest.raises(ZeroDivisionError), integration_errors("01-grpo"):
        _ = 1 / 0
    with pytest.raises(RlmError, match=r"^own$"), integration_errors("01-grpo"):
        raise RlmError("own")


def test_a_tracker_that_fails_ends_the_run_in_our_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(TrainerCallback):  # type: ignore[misc]
        """Tracker whose server is unreachable."""

        def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
            raise ConnectionError("no route")

    tracker, *others = integration_errors_module.INTEGRATIONS
    here = tracker._replace(modules=(__name__,))
    monkeypatch.setattr(integration_errors_module, "INTEGRATIONS", (here, *others))
    monkeypatch.setitem(integration_utils.INTEGRATION_TO_CALLBACK, "tensorboard", Failing)
    monkeypatch.setattr("transformers.integrations.get_available_reporting_integrations", lambda: ["tensorboard"])
    with pytest.raises(RecipeError, match=r"(?s)trainer\.report_to.*a tracker failed: ConnectionError: no route"):
        rlm.train(recipe(report_to="tensorboard"), out=tmp_path / "run")


@pytest.mark.parametrize("error", ["gated", "absent"])
def test_a_gated_or_absent_model(error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers turns 401, 403 and 404 of the hub into OSError."""
    text = {"gated": "You are trying to access a gated repo.", "absent": "x/y is not a valid model identifier"}[error]

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise OSError(text)

    monkeypatch.setattr("rlm_plugins.data.tables._check_connection", lambda: None)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", refuse)
    with pytest.raises(RlmError, match=f"(?s)config of 'x/y' cannot be loaded: {text[:20]}.*hf auth login"):
        rlm.check(recipe() | {"model": "x/y"})


def test_pushing_to_a_hub_that_is_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(RlmError, match=r"(?s)trainer\.push_to_hub.*hub failed: .*rlm export RUN"):
        rlm.train(recipe(push_to_hub=True, hub_model_id="nobody/nothing"), out=tmp_path / "run")


@pytest.mark.parametrize("is_adapter", [False, True])
def test_the_result_is_pushed_and_nothing_else(hub: dict[str, Any], is_adapter: bool, tmp_path: Path) -> None:  # noqa: F811
    document = recipe(push_to_hub=True, hub_model_id="me/model", save_strategy="steps", save_steps=1)
    document |= {"capsule": {"every": 1}}
    if is_adapter:  # on a base that the run made: it is merged
        document["model"] |= {"lora": {"r": 2, "target_modules": "all-linear"}}
    run = rlm.train(document, out=tmp_path / "run")
    assert hub["created"] == ["model"]
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json"} <= {*hub["files"]}
    others = [name for name in hub["files"] if "/" in name or name.endswith((".bin", ".jsonl", ".pt"))]
    assert others == []
    card = hub["files"]["README.md"].decode()
    assert "from_pretrained('me/model')" in card
    assert not any(word in card for word in (str(tmp_path), "[None]", "More Information Needed"))
    for name, content in hub["files"].items():
        tmp_path.joinpath("downloaded", name).parent.mkdir(exist_ok=True)
        tmp_path.joinpath("downloaded", name).write_bytes(content)
    ids = torch.arange(5, 15).unsqueeze(0)
    with torch.no_grad():
        ours = AutoModelForCausalLM.from_pretrained(tmp_path / "downloaded").eval()(ids).logits
        trained = run.model()[0].eval()(ids).logits
    torch.testing.assert_close(ours, trained)


def test_tensorboard_has_every_number(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    code = f"import rlm_plugins as rlm; rlm.train({recipe(report_to='tensorboard')!r}, out='run')"
    env = {**os.environ, "TENSORBOARD_LOGGING_DIR": str(tmp_path / "logs")}
    done = subprocess.run([sys.executable, "-c", code], env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    numbers = {name for line in lines for name, value in line.items() if isinstance(value, int | float)}
    (events,) = {file.parent for file in tmp_path.rglob("events.out.tfevents.*")}
    tags = {tag.partition("/")[2] for tag in EventAccumulator(str(events)).Reload().Tags()["scalars"]}
    left_out = ("step", "epoch", "train_", "total_flos")
    assert {name for name in numbers if not name.startswith(left_out)} <= tags
