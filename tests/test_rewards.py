"""Rewards: no wrong answer scores, no correct one is rejected for its spelling, and hostile texts are harmless."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest
from hang_guard import hang_guard
from hypothesis import given
from hypothesis import strategies as st
from rlm_algorithms.length_control import l1_exact, l1_max

from rlm_plugins.builtin.rewards import accuracy, format, length, rlm_rewards
from rlm_plugins.errors import PartError, RecipeError
from rlm_plugins.registry.part import Part


def one(text: str, answer: object, **knobs: Any) -> float | None:
    return accuracy([text], [answer], **knobs)[0]


@pytest.mark.parametrize("answer", ["632", 632, 632.0, " 632 ", Decimal(632)])
def test_correct_answer_scores_in_any_notation(answer: object) -> None:
    assert one("<think>7+5+0=12</think><answer>632</answer>", answer) == 1.0


@pytest.mark.parametrize("text", ["632", "632.0", " 632\n", "+632", "1264/2", "6.32e2"])
def test_numbers_are_compared_by_value(text: str) -> None:
    assert one(f"<answer>{text}</answer>", "632") == 1.0
    assert one(f"<answer>{text}</answer>", "632", mode="numeric") == 1.0
    assert one(f"<answer>{text}</answer>", "632", mode="exact") == float(text.strip() == "632")


WRONG = "|<answer>633</answer>|<answer></answer>|<answer>632 or 633</answer>|<answer>632</answer><answer>633</answer>"
WRONG += "|<answer>632</answer><answer>|<answer>632|<think><answer>632</answer></think>|<think>632|The answer is 632."
WRONG += "|<answer>632</answer><think>|<answer>632 cm</answer>|<answer>600+32</answer>|<answer>nan</answer>|632\nor so"


@pytest.mark.parametrize("text", WRONG.split("|"))
@pytest.mark.parametrize("mode", ["auto", "exact", "numeric"])
def test_wrong_answers_score_zero(text: str, mode: Any) -> None:
    assert one(text, "632", mode=mode) == 0.0


def test_equal_answers_given_twice_score() -> None:
    assert one("<answer>1000</answer> that is <answer>1,000</answer>", "1000") == 1.0


def test_without_a_block_the_last_line_must_be_the_answer() -> None:
    assert one("347+285\n632", "632") == 1.0
    assert one("347+285\n632", "632", untagged="wrong") == 0.0
    assert one("So the sum is **632**.", "632", untagged="last_number") == 1.0
    assert one(r"So the sum is $\boxed{632}$.", "632", untagged="boxed") == 1.0
    assert one(r"\boxed{632}, no, \boxed{633}", "632", untagged="boxed") == 0.0


def test_text_answers() -> None:
    assert one("<answer> Paris </answer>", "Paris") == 1.0
    assert one("<answer>paris</answer>", "Paris") == 0.0
    assert one("<answer>paris</answer>", "Paris", casefold=True) == 1.0
    assert one("<answer>True</answer>", True) == 1.0


def test_another_tag() -> None:
    assert one("<result>4</result>", "4", tag="result", untagged="wrong") == 1.0


def test_tolerance() -> None:
    assert one("<answer>3.14</answer>", math.pi, tolerance=0.01) == 1.0
    assert one("<answer>3.1</answer>", math.pi, tolerance=0.01) == 0.0


@pytest.mark.parametrize("answer", [None, "", "  ", math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("mode", ["auto", "exact", "numeric"])
def test_example_without_an_answer_is_not_scored(answer: object, mode: Any) -> None:
    assert one("<answer>nan</answer>", answer, mode=mode) is None
    assert one("<answer></answer>", answer, mode=mode) is None
    assert one("inf", answer, mode=mode) is None


def test_an_answer_that_is_no_number_is_named() -> None:
    with pytest.raises(
        PartError, match=r"sample 1: expected a number as the data set's answer, got '2x'\n  hint: mode: auto"
    ):
        accuracy(["1", "2x"], ["1", "2x"], mode="numeric")


def test_any_of_a_list_of_answers_is_right_and_an_object_is_named() -> None:
    assert accuracy(["4", "four", "5"], [["4", "four", None]] * 3) == [1.0, 1.0, 0.0]
    assert accuracy(["4", "4"], [[], [None]]) == [None, None]
    with pytest.raises(PartError, match="sample 0: the data set's answer is of type dict"):
        accuracy(["4"], [{"value": "4"}])


def test_normalized_is_the_exact_match_of_squad() -> None:
    texts = ["The Beatles!", "beatles", "A", "the", "Beatle"]
    assert accuracy(texts, ["beatles", "The Beatles.", "(a)", "The", "Beatles"], mode="normalized") == [1, 1, 1, 1, 0]


FORMATTED = "<think>a</think><answer>b</answer>|  <think>a\nb</think>\n\n<answer> b </answer>\n"
FORMATTED += "|<think>1 < 2 > 0</think><answer><b>4</b></answer>"
MALFORMED = "<think></think><answer>b</answer>|<think>a</think><answer></answer>|<think>a</think>|<answer>b</answer>"
MALFORMED += "|<think>a<answer>b</answer></think>|<think><answer>b</answer></think><answer>b</answer>"
MALFORMED += "|<think>a<think>b</think><answer>c</answer>|<think>a</think><answer>b</answer><answer>c</answer>"
MALFORMED += "|<answer>b</answer><think>a</think>|<think>a</think> so <answer>b</answer>|<think>a</think><answer>b"
MALFORMED += "|<think>a</think><answer>b</answer> done|<Think>a</Think><answer>b</answer>"


def test_format() -> None:
    assert format(FORMATTED.split("|")) == [1.0] * 3
    assert format(MALFORMED.split("|")) == [0.0] * 13


def test_format_with_other_tags() -> None:
    assert format(["<plan>a</plan><do>b</do><check>c</check>"], tags=["plan", "do", "check"]) == [1.0]
    assert format(["<answer>4</answer>"], tags=["answer"]) == [1.0]


def test_format_when_the_template_opens_the_thought() -> None:
    assert format(["a</think><answer>b</answer>", "<think>a</think><answer>b</answer>"], prefilled=True) == [1.0, 0.0]


def test_length_counts_tokens_from_the_target() -> None:
    rows = [[0] * n for n in (0, 5, 10, 15, 40)]
    assert length(rows, limit=10, target=10) == [-1.0, -0.5, 0.0, -0.5, -1.0]
    assert length(rows, limit=20) == [0.0, -0.25, -0.5, -0.75, -1.0]


@pytest.mark.parametrize("wrap", ["{}", "<think>{}", "<answer>{}</answer>", "<think>a</think><answer>{}"])
@pytest.mark.parametrize("piece", ["<think>", "<answer>", "</answer>", "<think></think>", "<", "1", "1,", "a ", " "])
def test_hostile_texts_score_zero_and_do_not_hang(piece: str, wrap: str) -> None:
    text = wrap.format(piece * (200_000 // len(piece)))
    with hang_guard():
        for untagged in ("last_line", "last_number", "boxed", "wrong"):
            assert accuracy([text], ["1"], untagged=untagged) == [0.0]  # type: ignore[arg-type]
        assert format([text]) == format([text], prefilled=True) == [0.0]


@pytest.mark.parametrize(
    ("name", "knobs"),
    [
        ("accuracy", {"mode": "fuzzy"}),
        ("accuracy", {"tolerance": -0.1}),
        ("accuracy", {"tolerance": math.inf}),
        ("format", {"tags": []}),
        ("format", {"tags": "think"}),
        ("length", {"limit": 0}),
        ("length", {"target": -1}),
    ],
)
def test_impossible_knobs_are_rejected(name: str, knobs: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match=next(iter(knobs))):
        Part("rlm_rewards", name, "builtin", rlm_rewards()[name]).bind(knobs)


lengths = st.integers(0, 5000)


@given(lengths, lengths, st.sampled_from([0.0, 3e-4, 0.1]))
def test_exact_costs_every_token_too_many_or_too_few(wanted: int, written: int, alpha: float) -> None:
    (found,) = l1_exact([[0] * written], [wanted], alpha=alpha)
    assert found == pytest.approx(-alpha * max(wanted - written, written - wanted))


@given(lengths, lengths)
def test_max_is_a_ramp_through_one_half_at_the_limit(wanted: int, written: int) -> None:
    (found,) = l1_max([[0] * written], [wanted])
    if abs(wanted - written) * 3e-4 >= 0.5:
        assert found == (1.0 if wanted > written else 0.0)
    else:
        assert found == pytest.approx(0.5 + 3e-4 * (wanted - written))


def test_completions_without_a_target_are_not_scored() -> None:
    for reward in (l1_exact, l1_max):
        assert reward([[1], [1]], [None, math.nan]) == [None, None]


@pytest.mark.parametrize("odd", ["100", -1, math.inf, True, [100]])
def test_a_target_that_is_no_number_of_tokens_is_named(odd: object) -> None:
    for reward in (l1_exact, l1_max):
        with pytest.raises(PartError, match="sample 1: expected a number in the column target_length"):
            reward([[1], [1]], [1, odd])


@pytest.mark.parametrize("reward", [l1_exact, l1_max])
def test_negative_slope_is_rejected(reward: Any) -> None:
    with pytest.raises(RecipeError, match="alpha"):
        Part("rlm_rewards", reward.__name__, "builtin", reward).bind({"alpha": -1e-4})
