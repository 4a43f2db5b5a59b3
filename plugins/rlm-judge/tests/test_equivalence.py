"""The reward with a trained model where the rule cannot read, and the pairs that train it."""

from __future__ import annotations

import re

import pytest
from rlm_judge.equivalence import JudgedEquality, answer_pairs


def test_the_trained_model_is_asked_only_where_the_rule_cannot_read(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def rule(completions: list[str], answer: list[str]) -> list[float | None]:
        return [None if "at" in gold else float(gold in text) for text, gold in zip(completions, answer, strict=True)]

    def probability(self: JudgedEquality, reference: str, answer: str) -> float:
        asked.append((reference, answer))
        return 0.9 if "7" in answer else 0.2

    monkeypatch.setattr(JudgedEquality, "_load", lambda self: (rule, None, None))
    monkeypatch.setattr(JudgedEquality, "probability", probability)
    texts, golds = (
        [r"\boxed{5}", r"\boxed{6}", r"\boxed{7 for 2}", r"\boxed{1 for 2}", "7"],
        ["5", "5", *["2 at 7"] * 3],
    )
    assert JudgedEquality(path="unused")(texts, golds) == [1.0, 0.0, 1.0, 0.0, 0.0]
    assert asked == [("2 at 7", "7 for 2"), ("2 at 7", "1 for 2")]


def test_answer_pairs_have_known_verdicts_and_unseen_references() -> None:
    spec = answer_pairs(train_rows=500)
    facts = [
        [sorted(re.findall("[0-9A-H]", side)) for side in row["prompt"][0]["content"].split("~")] for row in spec.train
    ]
    assert all(one == two for (one, two), row in zip(facts, spec.train, strict=True) if row["answer"] == "+")
    assert 0.4 < sum(row["answer"] == "+" for row in spec.train) / 500 < 0.6
    references = [{row["prompt"][0]["content"].partition("~")[0] for row in rows} for rows in (spec.train, spec.test)]
    assert not references[0] & references[1]
