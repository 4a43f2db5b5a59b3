"""A run of an environment of several turns: its episodes on the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from headless_browser import HeadlessBrowser, browser_path
from rlm_testing.fake_packages import registered
from rlm_view.capsule_data import capsules_data
from rlm_view.page import view

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


@pytest.mark.full
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
