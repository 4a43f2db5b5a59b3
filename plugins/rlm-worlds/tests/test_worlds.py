"""Mazes have one solution, and no constant or parroting answer is rewarded."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from rlm_testing import conformance
from rlm_worlds import maze, world_score

from rlm_plugins.specs import EnvironmentSpec

SMALL = {"train_rows": 60, "test_rows": 12}
test_maze = conformance("rlm_environments", maze, knobs=SMALL)
GRIDS = [json.dumps({"grid": grid}) for grid in ("#####\n#S.G#\n#####", "#####\n#G.S#\n#####")]
test_reward = conformance(
    "rlm_rewards",
    world_score,
    columns={"task": [*GRIDS, None], "completions": ["<answer>R</answer>", "L", "R", ""]},
)


def rows(spec: EnvironmentSpec) -> list[dict[str, str]]:
    return [dict(row) for row in (*spec.train, *spec.test)]


@pytest.mark.parametrize("size", [2, 3, 5])
def test_each_answer_solves_its_maze_and_test_questions_are_held_out(size: int) -> None:
    spec = maze(size=size, train_rows=80, test_rows=20)
    found = rows(spec)
    scores = world_score([f"<answer>{row['answer']}</answer>" for row in found], [row["task"] for row in found])
    assert scores == [1.0] * len(found)
    assert len({row["question"] for row in found}) == len(found)
    other = maze(size=size, train_rows=80, test_rows=20, seed=1)
    assert [row["question"] for row in other.test] == [row["question"] for row in spec.test]


def test_answers() -> None:
    task = json.dumps({"grid": "#####\n#S..#\n###.#\n#G..#\n#####"})
    right = ("RDL", "r d l", "R, D, L", "R -> D -> L")
    texts = [*right, "D", "RDLL", "RLRDL", "RD", "DRL", "RDL!", "R D L or D"]
    assert world_score(texts, [task] * len(texts)) == [float(text in right) for text in texts]


def test_no_constant_and_no_near_miss_is_paid() -> None:
    pytest.importorskip("rlm_audit", reason="needs rlm-audit")
    from rlm_audit import Case
    from rlm_audit.audit import Audit
    from rlm_worlds.audit_cases import FAMILY

    def score(cases: Sequence[Case], completions: Sequence[str]) -> list[float | None]:
        return world_score(completions, [case.columns["task"] for case in cases])

    report = Audit(score, FAMILY).report(40 * len(FAMILY.generators))
    assert [each["examples"] for each in report["classes"] if each["examples"]] == []
    assert [each["class"] for each in report["classes"] if each["cases"] < 20] == []
