"""Ballots: what frozen models said is a column of the data set, and the reward reads it."""

from __future__ import annotations

import json
from pathlib import Path

from rlm_intrinsic import frozen_voters
from rlm_intrinsic.voters import main

from rlm_plugins.builtin.models import scratch


def test_models_vote_once_and_the_reward_hears_them(tmp_path: Path) -> None:
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
    assert [[len(said) for said in row["ballots"]] for row in voted] == [[4, 4]] * 3
    assert len({text for row in voted for said in row["ballots"] for text in said}) > 3
    before = ballots.read_text()
    main([str(questions), str(ballots), *models, "--votes", "4", "--longest", "3"])
    assert ballots.read_text() == before
    prompts = [row["prompt"] for row in voted]
    scores = frozen_voters(prompts, ["7"] * 3, [[["7", "7"], ["7", "8"]]] + [row["ballots"] for row in voted[1:]])
    assert scores[0] == 1.0
