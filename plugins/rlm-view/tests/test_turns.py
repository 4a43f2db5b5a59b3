"""Runs with episodes of several turns and with capsules: the data of each token on the page."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from headless_browser import HeadlessBrowser, browser_path
from rlm_testing.fake_packages import registered
from rlm_view.capsule import find_capsule, read_capsule
from rlm_view.capsule_data import capsule_data, capsules_data
from rlm_view.page import view
from rlm_view.replay_report import replays

from rlm_plugins.run.launch import launch

RECIPE = """
environment: {name: guess, guesses: 3, highest: 20, test_rows: 4}
rewards: [episode_return]
evaluation: null
stages:
  - name: sft
    environment: {name: guess, guesses: 3, highest: 20, show: moves, skill: 0.4, test_rows: 4}
    model: {name: scratch, hidden: 64, intermediate: 128, characters: "0123456789+- no"}
    algorithm: sft
    trainer: {max_steps: 60, per_device_train_batch_size: 32, learning_rate: 3.0e-3, save_strategy: "no"}
  - name: grpo
    algorithm: dr_grpo
    capsule: {every: 2}
    trainer:
      max_steps: 2
      per_device_train_batch_size: 16
      num_generations: 8
      max_completion_length: 32
      learning_rate: 1.0e-3
      save_strategy: "no"
"""
_registered = registered("worlds")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("turns")


@pytest.fixture
def run(site: Path, _registered: None) -> Path:
    """Train with the capsule of step 2, and return the run folder."""
    torch.set_num_threads(1)
    if not (site / "run").exists():
        (site / "turns.yaml").write_text(RECIPE)
        launch(site / "turns.yaml", [], out=site / "run")
    return site / "run"


def logged(run: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [record for record in records if record["stage"] == "02-grpo" and "grad_norm" in record]


@pytest.mark.slow
def test_turns_and_observations_are_marked(run: Path) -> None:
    (capsule,) = capsules_data(run, print)
    assert capsule["note"] == ""
    rows = capsule["completions"]
    assert any(len(row["turns"]) > 1 for row in rows)
    mean = sum(len(row["turns"]) for row in rows) / len(rows)
    assert mean == pytest.approx(logged(run)[-1]["episodes/turns"])
    for row in rows:
        assert len(row["tokens"]) == len(row["mask"]) == len(row["values"]["advantage"])
        assert row["turns"][-1] < len(row["tokens"])
        for end in row["turns"]:
            assert row["mask"][end] == "1", "a turn ends with a token of the policy"
        for end in row["turns"][:-1]:
            observed = row["mask"].index("1", end + 1)
            assert "".join(row["tokens"][end + 1 : observed]) in ("<|user|>+<|assistant|>", "<|user|>-<|assistant|>")
        gradient = row["values"]["share of the gradient"]
        assert all(x == 0 for x, trained in zip(gradient, row["mask"], strict=True) if trained == "0")


@pytest.mark.skipif(browser_path() is None, reason="no Chromium is installed (apt-get install chromium)")
def test_turns_are_drawn(run: Path, tmp_path: Path) -> None:
    page = view([run], tmp_path / "view.html", print)
    (capsule,) = capsules_data(run, print)
    path = browser_path()
    assert path is not None
    with HeadlessBrowser(path) as browser:
        browser.open(page, "Steps")
        drawn = browser.evaluate(
            "[...document.querySelectorAll('.completion')].map((x) => x.querySelectorAll('.turn').length)"
        )
        shown = [row for row in capsule["completions"] if row["advantage"] != 0]  # the page opens on those
        assert 0 < len(shown) < len(capsule["completions"])
        assert sorted(drawn) == sorted(len(row["turns"]) for row in shown)
        masked = browser.evaluate("document.querySelectorAll('.token.masked').length")
        assert masked == sum(row["mask"].count("0") for row in shown)
        assert browser.problems() == []
        browser.screenshot(tmp_path / "turns.png")
    assert (tmp_path / "turns.png").stat().st_size > 10_000


CAPSULES = """
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
def single_turns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train with capsules of steps 2 and 4, and return the run folder."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("view")
    (folder / "tiny.yaml").write_text(CAPSULES)
    launch(folder / "tiny.yaml", [], out=folder / "run")
    return folder / "run"


def test_numbers_of_a_token_are_those_of_the_replay(single_turns: Path) -> None:
    path = find_capsule(single_turns, 4)
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


def test_large_run_keeps_first_and_last(single_turns: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlm_view.capsule_data.TOKENS", 1)
    warnings: list[str] = []
    assert [entry["step"] for entry in capsules_data(single_turns, warnings.append)] == [4]
    assert warnings == [f"{single_turns}: 1 of 2 capsules are left out, a page has 1 tokens at most"]


def test_damaged_capsule_is_reported(single_turns: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(single_turns, tmp_path / "run")
    (find_capsule(copy, 2) / "step.json").write_text("{}")
    warnings: list[str] = []
    assert [entry["step"] for entry in capsules_data(copy, warnings.append)] == [4]
    assert "the capsule is damaged" in warnings[0]


def test_step_that_cannot_be_replayed_shows_what_is_stored(single_turns: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlm_plugins.errors import RlmError

    def refuse(*_: object) -> None:
        raise RlmError("unknown part 'gone'", where="algorithm")

    monkeypatch.setattr("rlm_view.capsule_data.replays", refuse)
    entry = capsule_data(find_capsule(single_turns, 2))
    assert entry["note"] == "algorithm: unknown part 'gone'"
    assert all(row["tokens"] and row["advantage"] is not None for row in entry["completions"])
