"""Extraction of answers and numbers from text: no wrong answer is accepted, nothing is evaluated or hangs."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hang_guard import hang_guard
from hypothesis import given
from hypothesis import strategies as st

from rlm_plugins.data.answer_extraction import Untagged, final_answers, parse_number, same_number

NO_NUMBERS = "|.|-|nan|NaN|inf|-inf|Infinity|1/0|0/0|1/2/3|1e9999|12,34|1,2345|0,123|1.234,5|,123|1 234|1_000|5%|$5"
NO_NUMBERS += "|5 cm|0x10|5!|2+3|2**3|1½|10²|６３２|٤|--5|1/-2|5 6|__import__('os')"
HOSTILE = ["\\boxed{", "{", "<answer>", "</answer>", "<think>", "</think><answer>", "<"]
HOSTILE += ["1", "1,", "1/", "1.", "1e", " ", "\n", "1 ", "a "]


@given(st.integers(min_value=-(10**30), max_value=10**30))
def test_integers_with_and_without_separators(n: int) -> None:
    assert parse_number(str(n)) == parse_number(f"{n:,}") == Fraction(n)


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**12), max_value=10**12, places=6))
def test_decimals_are_read_exactly(x: Decimal) -> None:
    assert parse_number(f"{x:f}") == parse_number(f"{x:,f}") == Fraction(x)


@given(st.integers(-999, 999), st.integers(1, 999))
def test_fractions(a: int, b: int) -> None:
    assert parse_number(f"{a}/{b}") == parse_number(f"{a} / {b}") == Fraction(a, b)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_float_reprs_are_parsed(x: float) -> None:
    assert parse_number(repr(x)) == Fraction(repr(x))


@given(st.text(max_size=40))
def test_any_text_is_a_number_or_none(text: str) -> None:
    assert parse_number(text) is None or isinstance(parse_number(text), Fraction)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (" 632\n", 632),
        ("+5", 5),
        ("−5", -5),
        ("5.", 5),
        (".5", Fraction(1, 2)),
        ("1e3", 1000),
        ("2E-2", Fraction(1, 50)),
    ],
)
def test_numbers_are_parsed(text: str, value: int | Fraction) -> None:
    assert parse_number(text) == value


@pytest.mark.parametrize("text", NO_NUMBERS.split("|"))
def test_non_numbers_are_rejected(text: str) -> None:
    assert parse_number(text) is None


def test_a_very_long_number_is_text() -> None:
    assert parse_number("9" * 1000) == 10**1000 - 1
    assert parse_number("9" * 1001) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("<answer>4</answer>", ["4"]),
        ("<think>4</think><answer>5</answer>", ["5"]),
        ("<answer>4</answer> or <answer>5</answer>", ["4", "5"]),
        ("<think><answer>4</answer></think>", []),
        ("<think><answer>4</answer>", []),
        ("<think>a</think>b</think><answer>4</answer>", ["4"]),
        ("<think>a</think><think><answer>4</answer>", []),
        ("so far</think><answer>4</answer>", ["4"]),  # the template had opened the thought
        ("<answer>4<answer>5</answer>", []),
    ],
)
def test_tagged_answers(text: str, found: list[str]) -> None:
    assert final_answers(text, "answer", "wrong") == found


@pytest.mark.parametrize(
    ("text", "untagged", "found"),
    [
        ("let me see\n4 \n\n", "last_line", ["4"]),
        ("", "last_line", []),
        ("<think>1\n4", "last_line", []),
        ("that makes **1,234.50**.", "last_number", ["1,234.50"]),
        ("8 of them cost 5%", "last_number", ["5%"]),
        ("none", "last_number", []),
        (r"first \boxed{1}, then $\boxed{34}$.", "boxed", ["34"]),
        (r"so \boxed{\frac{1}{2}} it is", "boxed", [r"\frac{1}{2}"]),
        (r"\boxed{1} and \boxed{2", "boxed", []),
        ("4", "wrong", []),
    ],
)
def test_answers_without_a_tag(text: str, untagged: Untagged, found: list[str]) -> None:
    assert final_answers(text, "answer", untagged) == found


@pytest.mark.parametrize("piece", HOSTILE)
@pytest.mark.parametrize("untagged", ["last_line", "last_number", "boxed", "wrong"])
def test_hostile_texts_do_not_hang(piece: str, untagged: Untagged) -> None:
    text = piece * (200_000 // len(piece))
    with hang_guard():
        for found in final_answers(text, "answer", untagged):
            same_number(Fraction(1), tolerance=0.5)(found)
