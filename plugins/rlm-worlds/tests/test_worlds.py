"""Worlds: each puzzle has exactly one solution, and no constant or parroting answer is rewarded."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

import pytest
from rlm_testing import conformance
from rlm_worlds import countdown, knights, maze, search_facts, world_score
from rlm_worlds.bm25 import Index
from rlm_worlds.countdown_numbers import value
from rlm_worlds.environments import WORLDS

from rlm_plugins.specs import EnvironmentSpec

SMALL = {"train_rows": 60, "test_rows": 12}
test_knights = conformance("rlm_environments", knights, knobs=SMALL)
test_countdown = conformance("rlm_environments", countdown, knobs=SMALL)
test_maze = conformance("rlm_environments", maze, knobs=SMALL)
test_search = conformance("rlm_environments", search_facts, knobs={"people": 64, "train_rows": 40, "test_rows": 8})
GRIDS = [json.dumps({"grid": grid}) for grid in ("#####\n#S.G#\n#####", "#####\n#G.S#\n#####")]
test_reward = conformance(
    "rlm_rewards",
    world_score,
    columns={"world": ["maze", None], "task": GRIDS, "completions": ["<answer>R</answer>", "L", "R", ""]},
)


def rows(spec: EnvironmentSpec) -> list[dict[str, str]]:
    return [dict(row) for row in (*spec.train, *spec.test)]


@pytest.mark.parametrize("environment", [knights, countdown, maze])
@pytest.mark.parametrize("size", [2, 3, 5])
def test_each_answer_solves_its_puzzle_and_test_questions_are_held_out(environment: object, size: int) -> None:
    name = {"knights": "people", "countdown": "numbers", "maze": "size"}[environment.__name__]  # type: ignore[attr-defined]
    spec = environment(**{name: size}, train_rows=80, test_rows=20)  # type: ignore[operator]
    found = rows(spec)
    scores = world_score([f"<answer>{row['answer']}</answer>" for row in found], *columns(found))
    assert scores == [1.0] * len(found)
    assert len({row["question"] for row in found}) == len(found)
    other = environment(**{name: size}, train_rows=80, test_rows=20, seed=1)  # type: ignore[operator]
    assert [row["question"] for row in other.test] == [row["question"] for row in spec.test]


def columns(found: Sequence[dict[str, str]]) -> tuple[list[str], list[str]]:
    return [row["world"] for row in found], [row["task"] for row in found]


def test_knights_have_one_solution() -> None:
    """Count the solutions of the question's text with a reader of its own."""
    for row in rows(knights(people=3, train_rows=40, test_rows=0)):
        statements = [line.split('"')[1] for line in row["question"].splitlines() if "says" in line]
        actual = [
            kinds
            for kinds in range(8)
            if all(holds(text, kinds) == bool(kinds >> i & 1) for i, text in enumerate(statements))
        ]
        (kinds,) = actual
        expected = ", ".join(f"{'ABC'[i]}: {'knight' if kinds >> i & 1 else 'knave'}" for i in range(3))
        assert row["answer"] == expected


def holds(text: str, kinds: int) -> bool:
    words = text.rstrip(".").split()
    is_knight = {name: bool(kinds >> i & 1) for i, name in enumerate("ABC")}
    if words[0] == "Exactly":
        return sum(is_knight.values()) == int(words[1])
    if words[1] == "and":
        return is_knight[words[0]] == is_knight[words[2]]
    return is_knight[words[0]] == (words[-1] == "knight")


@pytest.mark.parametrize(
    ("world", "task", "right", "wrong"),
    [
        (
            "countdown",
            {"numbers": [2, 3, 3], "target": 15},
            ("3 * (2 + 3)", "(2+3)*3", "(2 + 3) * 3 = 15"),
            ("15", "5 * 3", "3 * 2 + 3 * 3", "3 * 5", "2 + 3 * 3 = 15", "(2 + 3) * 3 = 16",
             "3**2+3+3", "7.5*2", "33//2", "True+14", "1_5", "x", "(2+3)*3#"),
        ),
        (
            "knights",
            {"kinds": [1, 0]},
            ("A: knight, B: knave", "B is a knave and A is a knight.", "a: KNIGHT; b: knave"),
            ("A: knight", "A: knave, B: knight", "A: knight, B: knave, B: knight", "A: knight, B: knave or knight",
             "not A: knight, B: knave", "A: knight, B: knave, C: knave"),
        ),
        (
            "maze",
            {"grid": "#####\n#S..#\n###.#\n#G..#\n#####"},
            ("RDL", "r d l", "R, D, L", "R -> D -> L"),
            ("D", "RDLL", "RLRDL", "RD", "DRL", "RDL!", "R D L or D"),
        ),
    ],
)  # fmt: skip
def test_answers(world: str, task: dict[str, object], right: Sequence[str], wrong: Sequence[str]) -> None:
    texts = [*right, *wrong]
    scores = world_score(texts, [world] * len(texts), [json.dumps(task)] * len(texts))
    assert dict(zip(texts, scores, strict=True)) == {**dict.fromkeys(right, 1.0), **dict.fromkeys(wrong, 0.0)}


def test_expressions_are_not_executed() -> None:
    assert value("9**9**9") is None
    assert value("__import__('os')") is None
    assert value("(" * 150 + "1" + ")" * 150) is None
    assert value("2 - 3 - 4") == -5


def test_search_finds_the_facts_of_every_question() -> None:
    spec = search_facts(people=64, hops=2, train_rows=64, test_rows=8)
    (search,) = spec.tools
    for row in rows(spec):
        name = row["question"].split()[-2]
        company = next(line for line in search(name).splitlines() if line.startswith(name)).rstrip(".").split()[-1]
        fact = next(
            line for line in search(f"{company} founded").splitlines() if line.startswith(f"{company} was founded")
        )
        assert fact.rstrip(".").split()[-1] == row["answer"]
    assert not {row["question"] for row in spec.train} & {row["question"] for row in spec.test}
    assert search("") == "nothing found"


def test_bm25_agrees_with_its_formula() -> None:
    index = Index(["a b b", "a c", "d d d d"])
    assert index.search("b", 3) == ["a b b"]
    assert index.search("a", 3) == ["a c", "a b b"]  # the shorter text first
    assert index.search("a d", 3)[0] == "d d d d"


def test_no_constant_and_no_near_miss_is_paid() -> None:
    pytest.importorskip("rlm_audit", reason="needs rlm-audit")
    from rlm_audit import Case
    from rlm_audit.audit import Audit
    from rlm_worlds.audit_cases import FAMILY

    def score(cases: Sequence[Case], completions: Sequence[str]) -> list[float | None]:
        return world_score(completions, *columns([dict(case.columns) for case in cases]))

    report = Audit(score, FAMILY).report(40 * len(FAMILY.generators))
    assert [each["examples"] for each in report["classes"] if each["examples"]] == []
    assert [each["class"] for each in report["classes"] if each["cases"] < 20] == []


@pytest.mark.parametrize("world", WORLDS)
def test_constants_are_paid_no_more_than_chance(world: str) -> None:
    rng, counts = random.Random(0), dict[str, int]()
    for _ in range(400):
        puzzle = WORLDS[world].generate(rng, 3)
        if puzzle is not None:
            counts[puzzle.answer] = counts.get(puzzle.answer, 0) + 1
    assert max(counts.values()) / sum(counts.values()) < {"knights": 1 / 4, "countdown": 0.05, "maze": 0.15}[world]
