"""Collected ballots of frozen models, and their use by the reward."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rlm_intrinsic import collect_ballots, frozen_voters
from rlm_intrinsic.collect_ballots import main

from rlm_plugins.builtin.models import scratch


def test_ballots_contain_extracted_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        "one": ["<think>3+4</think><answer>7.0</answer>", "<answer>1</answer><answer>2</answer>"],
        "two": ["so\n7", ""],
    }
    monkeypatch.setattr(
        collect_ballots, "sample_completions", lambda model, prompts, **how: [texts[model]] * len(prompts)
    )
    (row,) = collect_ballots.with_ballots([{"prompt": "3+4="}], ["one", "two"])
    assert row == {"prompt": "3+4=", "ballots": [["7", ""], ["7", ""]]}
    assert frozen_voters(["3+4="] * 2, ["7", "8"], [row["ballots"]] * 2, policy_votes=False) == [1.0, 0.0]


def test_collected_ballots_are_used_by_the_reward(tmp_path: Path) -> None:
    models = []
    for seed in (1, 2):
        source = scratch(hidden=16, heads=2, intermediate=32, layers=1, seed=seed)
        models.append(str(tmp_path / f"model{seed}"))
        source.load().save_pretrained(models[-1])
        source.tokenizer().save_pretrained(models[-1])
    rows = [{"prompt": [{"role": "user", "content": f"{n}+1=?"}], "answer": str(n + 1)} for n in range(3)]
    questions, ballots = tmp_path / "questions.jsonl", tmp_path / "ballots.jsonl"
    questions.write_text("\n".join(json.dumps(row) for row in rows))
    main([str(questions), str(ballots), *models, "--votes", "4", "--longest", "3"])
    voted = [json.loads(line) for line in ballots.read_text().splitlines()]
    assert [{**row, "ballots": None} for row in voted] == [{**row, "ballots": None} for row in rows]
    assert [[len(texts) for texts in row["ballots"]] for row in voted] == [[4, 4]] * 3
    assert len({text for row in voted for texts in row["ballots"] for text in texts}) > 2
    before = ballots.read_text()
    main([str(questions), str(ballots), *models, "--votes", "4", "--longest", "3"])
    assert ballots.read_text() == before
    prompts = [row["prompt"] for row in voted]
    scores = frozen_voters(prompts, ["7"] * 3, [[["7", "7"], ["7", "8"]]] + [row["ballots"] for row in voted[1:]])
    assert scores[0] == 1.0
