"""The engine `vllm_server` with a server of the standard library, which has the true log-probs of a local copy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from engine_runs import LORA, saved_base, train
from openai_server import Server
from rlm_engines import vllm_server

from rlm_plugins.errors import RlmError


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_base(tmp_path_factory.mktemp("base"))


def run(folder: Path, base: Path, url: str, **changes: Any) -> list[dict[str, Any]]:
    engine = {"name": "vllm_server", "url": url, **changes.pop("engine", {})}
    return train(
        folder,
        engine,
        model={"name": str(base), "dtype": "float32", "lora": LORA, **changes.pop("model", {})},
        **changes,
    )


def test_a_server_samples_from_the_policy_of_each_step(tmp_path: Path, base: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    with Server(base) as at:
        lines = run(tmp_path, base, at.url, engine={"folder": str(shared)}, trainer={"temperature": 0.8})
        assert [line["versions"] for line in lines] == [[0] * 4, [1] * 4]
        assert max(line["max"] for line in lines) < 2e-6
        assert len({*at.loaded}) == len(at.loaded) >= 4, "a new name per sync"
        assert not at.adapters, "the last adapter is unloaded at the end"
    assert not list(shared.iterdir())


@pytest.mark.parametrize(
    ("faults", "problem"),
    [
        (["ignores"], "keeps the weights of an earlier sync"),
        (["raw"], "log-probs are those before temperature"),
        (["fixed"], "loads no adapters while it runs"),
        (["without_lora"], "refuses the adapter (500): LoRA is not enabled"),
        (["several"], "expected one base, got base, other"),
    ],
)
def test_a_fault_of_a_server_is_named(tmp_path: Path, base: Path, faults: list[str], problem: str) -> None:
    with Server(base, *faults) as at, pytest.raises(RlmError, match=re.escape(problem)):
        run(tmp_path, base, at.url)


def test_a_server_of_another_base_is_named(tmp_path: Path, base: Path) -> None:
    other = saved_base(tmp_path / "other", seed=1)
    with Server(other) as at, pytest.raises(RlmError, match="does not sample from the policy"):
        run(tmp_path, base, at.url)


def test_a_server_that_cannot_be_reached_is_an_error_before_the_weights(tmp_path: Path, base: Path) -> None:
    with pytest.raises(RlmError, match=r"does not answer \(URLError.*refused") as caught:
        run(tmp_path, base, "http://127.0.0.1:9/v1")
    assert "vllm serve" in str(caught.value)
    with Server(base) as at, pytest.raises(RlmError, match="is the address that of a vLLM server"):
        run(tmp_path, base, at.url.removesuffix("/v1"))
    with Server(base) as at, pytest.raises(RlmError, match="a server gets adapters, but all weights are trained"):
        run(tmp_path, base, at.url, model={"lora": None})


def test_a_folder_that_the_server_cannot_read(tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_server, "WAITS", (0.0,))
    with Server(base) as at, pytest.raises(RlmError, match="No adapter found") as caught:
        run(tmp_path, base, at.url, engine={"server_folder": "/elsewhere"})
    assert "can it read `/elsewhere/" in str(caught.value)


def test_a_server_that_ends_stops_the_run_and_the_last_step_is_saved(tmp_path: Path, base: Path) -> None:
    with Server(base, ends_after=20) as at:
        with pytest.raises(RlmError, match="does not answer"):
            run(tmp_path, base, at.url, trainer={"max_steps": 9, "save_strategy": "steps", "save_steps": 100})
        assert list((tmp_path / "run").rglob("checkpoint-*/trainer_state.json"))
