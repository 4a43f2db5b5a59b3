"""Checklists, and the environment and reward that train a judge."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rlm_judge import judge_checklist, judge_verdict
from rlm_judge.equivalence import JudgedEquality, answer_pairs
from rlm_judge.fake import Fake, verdict
from rlm_judge.judge_training import judge_pairs
from rlm_judge.spec import ServerSpec

from rlm_plugins.errors import PartError, RecipeError

PAIRS = [{"prompt": f"{n}+1=?", "chosen": str(n + 1), "rejected": str(n)} for n in range(40)]


@pytest.fixture
def pairs(tmp_path: Path) -> str:
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(pair) + "\n" for pair in PAIRS))
    return str(file)


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


def test_each_pair_is_compared_in_both_orders(pairs: str) -> None:
    env = judge_pairs(path=pairs, test_rows=10)
    rows = [*env.train, *env.test]
    assert len(rows) == 80
    assert [row["verdict"] for row in rows[:2]] == ["A", "B"]
    tasks = [{re.findall(r"\d+\+1", row["prompt"][-1]["content"])[0] for row in part} for part in (env.train, env.test)]
    assert tasks[0]
    assert tasks[1]
    assert not tasks[0] & tasks[1]


def test_an_exact_judge_gets_full_reward(pairs: str) -> None:
    """The package's judge of sums answers the prompts of the environment as it answers those of `judge_pairwise`."""
    rows = list(judge_pairs(path=pairs).train)
    verdicts = [verdict(row["prompt"][-1]["content"]) for row in rows]
    columns = {name: [row[name] for row in rows] for name in ("verdict", "mark")}
    assert judge_verdict(verdicts, **columns) == [1.0] * len(rows)
    swapped = {**columns, "verdict": ["B" if x == "A" else "A" for x in columns["verdict"]]}
    assert judge_verdict(verdicts, **swapped, wrong=-1.0) == [-1.0] * len(rows)
    others = {**columns, "mark": ["ffffff"] * len(rows)}
    assert judge_verdict(verdicts, **others, unreadable=-0.5) == [-0.5] * len(rows)


def test_ties_and_open_thinking() -> None:
    texts = ["Verdict-1f: TIE", "<think>Verdict-1f: A", "<think>x</think>Verdict-1f: A", "Verdict-1f: A or B"]
    assert judge_verdict(texts, ["A"] * 4, ["1f"] * 4, tie=0.5, unreadable=-1.0) == [0.5, -1.0, 1.0, -1.0]


def test_missing_columns_are_named(pairs: str) -> None:
    with pytest.raises(RecipeError, match="no column 'better'"):
        judge_pairs(path=pairs, columns={"chosen": "better"})


# ---- checklists

ITEMS = [
    {"requirement": "Is it right?", "importance": 3},
    {"requirement": "Is it short?", "importance": 1, "program": "def verify(text):\n    return len(text) < 3"},
]


def score(reply: Any, texts: list[str], checklist: list[Any], **knobs: Any) -> Any:
    with Fake(reply) as server:
        judge = ServerSpec(url=server.url, model="x", retries=0)
        return asyncio.run(judge_checklist(texts, ["2+2="] * len(texts), checklist, judge=judge, **knobs))


def mark(right: str, short: str) -> Any:
    def reply(system: str, user: str) -> str:
        token = re.findall(r"Verdict-([0-9a-f]+):", user)[-1]
        return f"Verdict-{token}: {right if 'right' in user else short}"

    return reply


def test_items_are_asked_one_by_one_and_weighted() -> None:
    pytest.importorskip("rlm_sandbox")
    found = score(mark("80", "50"), ["4", "four", ":", "4"], [ITEMS, ITEMS, ITEMS, None])
    assert found == pytest.approx([(3 * 0.8 + (0.5 + 1) / 2) / 4, (3 * 0.8 + (0.5 + 0) / 2) / 4, 0.0, None])


def test_items_without_verdict_are_left_out() -> None:
    assert score(mark("none", "40"), ["4"], [[ITEMS[0], {"requirement": "short", "importance": 2}]]) == [0.4]
    assert score(mark("none", "none"), ["4"], [ITEMS[:1]]) == [None]
    assert score(mark("101", "0"), ["4"], [ITEMS[:1]]) == [None]


@pytest.mark.parametrize("item", [{"importance": 1}, {"requirement": ""}, {"requirement": "a", "importance": -1}, "a"])
def test_malformed_items_are_named(item: Any) -> None:
    with pytest.raises(PartError, match="sample 0: malformed checklist item"):
        score(mark("1", "1"), ["4"], [[item]])


def test_failing_programs_count_as_zero() -> None:
    pytest.importorskip("rlm_sandbox")
    item = {"requirement": "right", "importance": 1, "program": "def verify(text):\n    return 1 / 0"}
    assert score(mark("100", "0"), ["4"], [[item]]) == [0.5]
