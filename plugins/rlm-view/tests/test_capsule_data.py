"""A run with capsules: the data of each token on the page."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from rlm_view.capsule import find_capsule, read_capsule
from rlm_view.capsule_data import capsule_data, capsules_data
from rlm_view.replay_report import replays

from rlm_plugins.run.launch import launch

RECIPE = """
environment: {name: addition, digits: 2, train_rows: 32, test_rows: 8}
rewards: [{name: length, target: 3, limit: 4}, {name: format, weight: 0.5}]
evaluation: {max_new_tokens: 4, every: 2}
model: {name: scratch, layers: 1, hidden: 16, heads: 2, intermediate: 32}
algorithm: {name: grpo, penalties: [{name: kl, beta: 0.1}]}
capsule: {every: 2}
trainer:
  max_steps: 4
  per_device_train_batch_size: 8
  num_generations: 4
  max_completion_length: 6
  learning_rate: 1.0e-2
  save_strategy: "no"
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train with capsules of steps 2 and 4, and return the run folder."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("view")
    (folder / "tiny.yaml").write_text(RECIPE)
    launch(folder / "tiny.yaml", [], out=folder / "run")
    return folder / "run"


def test_numbers_of_a_token_are_those_of_the_replay(run: Path) -> None:
    path = find_capsule(run, 4)
    entry, result = capsule_data(path), replays(path, []).recorded
    assert (entry["step"], entry["fault"], entry["note"]) == (4, "", "")
    assert len(entry["completions"]) == 8
    batch = read_capsule(path).batch
    for row, completion in enumerate(entry["completions"]):
        count = len(completion["tokens"])
        assert count == len(batch.completion_ids[row])  # type: ignore[union-attr]
        shown = torch.tensor(completion["values"]["share of the gradient"])
        torch.testing.assert_close(shown, result.tokens["gradient"][row, :count], rtol=1e-3, atol=1e-9)
        assert set(completion["rewards"]) == {"length", "format"}
        assert completion["prompt"].endswith("=?")
        assert eval(completion["prompt"][:-2]) == int(completion["columns"]["answer"])
    names = set(entry["quantities"])
    assert {"share of the gradient", "advantage", "ratio", "clipped", "entropy", "KL to the reference"} <= names
    json.dumps(entry, allow_nan=False)


def test_large_run_keeps_first_and_last(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlm_view.capsule_data.TOKENS", 1)
    warnings: list[str] = []
    assert [entry["step"] for entry in capsules_data(run, warnings.append)] == [4]
    assert warnings == [f"{run}: 1 of 2 capsules are left out, a page has 1 tokens at most"]


def test_damaged_capsule_is_reported(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    (find_capsule(copy, 2) / "step.json").write_text("{}")
    warnings: list[str] = []
    assert [entry["step"] for entry in capsules_data(copy, warnings.append)] == [4]
    assert "the capsule is damaged" in warnings[0]


def test_step_that_cannot_be_replayed_shows_what_is_stored(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlm_plugins.errors import RlmError

    def refuse(*_: object) -> None:
        raise RlmError("unknown part 'gone'", where="algorithm")

    monkeypatch.setattr("rlm_view.capsule_data.replays", refuse)
    entry = capsule_data(find_capsule(run, 2))
    assert entry["note"] == "algorithm: unknown part 'gone'"
    assert all(row["tokens"] and row["advantage"] is not None for row in entry["completions"])
