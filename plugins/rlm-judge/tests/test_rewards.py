"""The rewards: contract, formulas by hand, and failures of the judge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any

import pytest
from faulty_server import FaultyServer, completion, http
from rlm_judge import judge_pairwise, judge_rubric, judge_score, judge_verify
from rlm_judge.fake import Fake, verdict
from rlm_judge.spec import ServerSpec
from rlm_testing import conformance

from rlm_plugins.errors import PartError, RecipeError
from rlm_plugins.registry.part import Part

SUMS = Fake().start()
"""A server for all tests of the module; its thread ends with the process."""
SPEC = {"url": SUMS.url, "model": "sums"}
TASKS, TEXTS = ["2+2=", "12+30="], ["<answer>4</answer>", "5", "42", "<think>4</think>44", "<think>", ":"]
CRITERIA = {"It is right": 3.0, "It is short": 1.0, "It is rude": -1.0}
RUBRICS = [None, {"right": 2, "polite": 1.5}, [{"criterion": "right", "points": 1}], {}]
known: dict[str, Any] = {"prompts": TASKS, "completions": TEXTS}

test_score_laws = conformance("rlm_rewards", judge_score, knobs={"judge": SPEC}, columns=known)
test_verify_laws = conformance(
    "rlm_rewards", judge_verify, knobs={"judge": SPEC}, columns={**known, "answer": ["4", 42, None, ""]}
)
test_rubric_laws = conformance(
    "rlm_rewards", judge_rubric, knobs={"judge": SPEC, "criteria": CRITERIA}, columns={**known, "rubric": RUBRICS}
)
test_pairwise_laws = conformance("rlm_rewards", judge_pairwise, knobs={"judge": SPEC}, columns=known)
test_ring_laws = conformance("rlm_rewards", judge_pairwise, knobs={"judge": SPEC, "opponents": 1}, columns=known)
test_reference_laws = conformance(
    "rlm_rewards",
    judge_pairwise,
    knobs={"judge": SPEC, "against": "reference"},
    columns={**known, "reference": ["4", None, "it is 42"]},
)


def score(reward: Callable[..., Any], texts: Sequence[str], *, task: str = "2+2=", **more: Any) -> Any:
    """Return a reward's scores of answers to one task; columns and knobs by name."""
    judge = ServerSpec(**{**SPEC, "retries": 0, **more.pop("server", {})})
    return asyncio.run(reward(list(texts), [task] * len(texts), judge=judge, **more))


def test_score_is_rescaled_to_unit_interval() -> None:
    assert score(judge_score, ["4", "5", ":"]) == [1.0, 0.0, 0.0]
    assert score(judge_score, ["42", "12"], task="12+30=", scale="raw") == [10.0, 3.0]  # 1 + round(9 · ½ · ½)
    with Fake(lambda system, user: "3") as three:
        reply_text = {"template": "{answer}?", "lowest": 0, "highest": 4}
        assert score(judge_score, ["4"], server={"url": three.url}, **reply_text) == [0.75]


def test_mean_of_valid_votes() -> None:
    replies = [http(200, completion(text)) for text in ("8", "6", "hm")]
    with FaultyServer(*replies) as rude:
        server = {"url": rude.url, "temperature": 1.0, "concurrency": 1}
        assert score(judge_score, ["4"], server=server, votes=3, template="{answer}", scale="raw") == [7.0]
        assert [request.get("seed") for request in rude.requests] == [None, 1, 2]
    with pytest.raises(PartError, match="3 votes of a deterministic judge"):
        score(judge_score, ["4"], votes=3)


def test_judge_verify() -> None:
    assert score(judge_verify, ["so 4", "so 5", "", "4"], answer=["4", "4", "4", None]) == [1.0, 0.0, 0.0, None]


@pytest.mark.parametrize(
    ("reply_text", "expected"),
    [
        ('{"1": true, "2": true, "3": false}', 1.0),
        ('{"1": false, "2": true, "3": false}', 0.25),
        ('{"1": 0.5, "2": 1, "3": true}', (1.5 + 1 - 1) / 4),
        ('```json\n{"1": {"why": "{}", "met": true}, "2": {"score": 0}, "3": false}\n```\nHope this helps!', 0.75),
        ('{"1": true, "2": true}', None),
        ('{"1": 2, "2": true, "3": false}', None),
        ('{"1": true, "2": true, "3": fal', None),
        ("[" * 9999 + "{" * 9999, None),
        ("I cannot judge this.", None),
    ],
)
def test_rubric_is_a_weighted_mean(reply_text: str, expected: float | None) -> None:
    with Fake(lambda system, user: reply_text) as one:
        knobs: dict[str, Any] = {"criteria": CRITERIA, "template": "{answer}\n{ask}", "server": {"url": one.url}}
        assert score(judge_rubric, ["4"], **knobs) == [expected]


def test_column_rubric_has_precedence() -> None:
    rows = [{"a": 1}, [{"criterion": "a", "points": 1}, {"criterion": "b", "points": 2}], None]
    before = len(SUMS.requests)
    assert score(judge_rubric, ["4"] * 3, rubric=rows, criteria={"c": 1.0, "d": 1.0, "e": 1.0}) == [1.0] * 3
    forms = {
        request["messages"][1]["content"].rpartition("Verdict")[2].count("…") for request in SUMS.requests[before:]
    }
    assert forms == {1, 2, 3}
    assert score(judge_rubric, ["4"]) == [None]


@pytest.mark.parametrize(
    ("rubric", "message"),
    [({"a": -1}, "positive weight"), ({"a": "much"}, "malformed rubric"), ([1], "malformed rubric")],
)
def test_malformed_rubric_is_a_part_error(rubric: Any, message: str) -> None:
    with pytest.raises(PartError, match=f"sample 0.*{message}"):
        score(judge_rubric, ["4"], rubric=[rubric])


def pairwise(score_of: Callable[[str, str], float], texts: Sequence[str], **knobs: Any) -> Any:
    logged: dict[str, float] = {}
    with Fake(lambda system, user: verdict(user, score_of)) as judge:
        found = score(judge_pairwise, texts, log_metric=logged.__setitem__, server={"url": judge.url}, **knobs)
    return found, logged


def by_value(task: str, answer: str) -> float:
    return float(answer)


def test_pairwise_compares_all_pairs() -> None:
    found, logged = pairwise(by_value, ["1", "2", "4", "3"])
    assert found == [0.0, 1 / 3, 1.0, 2 / 3]
    assert logged["judge_pairwise/asked"] == 12  # six pairs, both orders
    assert logged["judge_pairwise/contradictions"] == 0


def test_equal_answers_tie_and_count_by_multiplicity() -> None:
    found, logged = pairwise(by_value, ["1", "2", "2", "2"])
    assert found == [0.0, 2 / 3, 2 / 3, 2 / 3]  # beats one, ties with two
    assert logged["judge_pairwise/asked"] == 2
    assert pairwise(by_value, ["1", "1"])[0] == [0.5, 0.5]
    assert pairwise(by_value, ["1"])[0] == [None]
    assert pairwise(by_value, ["1", "…", "…"])[0] == [1.0, 0.25, 0.25]


@pytest.mark.parametrize("favourite", ["A", "B"])
def test_position_bias_cancels(favourite: str) -> None:
    logged: dict[str, float] = {}
    with Fake(lambda system, user: favourite) as judge:
        knobs: dict[str, Any] = {"template": "{first} or {second}?", "server": {"url": judge.url}}
        found = score(judge_pairwise, ["1", "2", "3"], log_metric=logged.__setitem__, **knobs)
    assert found == [0.5] * 3
    assert logged["judge_pairwise/contradictions"] == 1.0


def test_ring_limits_comparisons() -> None:
    texts = [str(number) for number in range(9)]
    found, logged = pairwise(by_value, texts, opponents=4)
    assert logged["judge_pairwise/asked"] == 9 * 4  # 9 · 4 / 2 pairs, both orders
    assert sum(found) == pytest.approx(4.5)
    assert (found[0], found[8]) == (0.0, 1.0)
    for order in list(permutations(range(9)))[999:3000:999]:
        assert pairwise(by_value, [texts[i] for i in order], opponents=4)[0] == [found[i] for i in order]


def test_against_a_reference() -> None:
    found, _ = pairwise(by_value, ["1", "2", "3", "2"], against="reference", reference=["2", "2", "2", None])
    assert found == [0.0, 0.5, 1.0, None]


def test_comparison_with_a_failed_order_is_dropped() -> None:
    def faulty(system: str, user: str) -> str:
        first = user.partition(" or ")[0]
        return "hm" if first == "3" else "B" if first < user.partition(" or ")[2][0] else "A"

    with Fake(faulty) as judge:
        knobs: dict[str, Any] = {"template": "{first} or {second}?", "server": {"url": judge.url}}
        assert score(judge_pairwise, ["1", "2", "3"], **knobs) == [0.0, 1.0, None]


KNOBS: list[tuple[dict[str, Any], str]] = [
    ({}, "requires the knob 'judge'"),
    ({"judge": {"url": "localhost:8000", "model": "m"}}, "judge.url.*an address such as"),
    ({"judge": {"url": "http://h/v1", "model": "m", "api_key_env": "NO_SUCH_KEY"}}, "judge.api_key_env.*is set"),
    ({"judge": {"url": "http://h/v1", "model": "m", "api_key": "sk-x"}}, "judge.api_key: unknown key 'api_key'"),
    ({"judge": {"policy": "old"}}, "judge.policy.*'base' or 'current'"),
]


@pytest.mark.parametrize(("knobs", "message"), KNOBS)
def test_recipe_errors(knobs: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=f"(?s){message}") as error:
        Part("rlm_rewards", "judge_score", "judge", judge_score).bind(knobs)
    assert "sk-x" not in str(error.value)
