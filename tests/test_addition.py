"""Column addition: uniform problems of a chosen difficulty, correct and faulty work, disjoint test sets."""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice, product

import pytest

from rlm_plugins.builtin.environments import addition
from rlm_plugins.data.addition import Difficulty, Problem, count, draw
from rlm_plugins.errors import RecipeError


def carries(problem: Problem) -> int:
    """Count the carries from digit sums: each carry replaces ten ones by one, so the digit sum loses nine."""
    digit_sum = [sum(map(int, str(n))) for n in (problem.a, problem.b, problem.a + problem.b)]
    return (digit_sum[0] + digit_sum[1] - digit_sum[2]) // 9


@pytest.mark.parametrize("digits", [1, 2, pytest.param(3, marks=pytest.mark.full)])
def test_count_equals_enumeration(digits: int) -> None:
    numbers = range(10 ** (digits - 1), 10**digits)
    found = Counter(carries(Problem(a, b)) for a, b in product(numbers, numbers))
    for low, high in product(range(digits + 2), range(digits + 2)):
        assert count(digits, low, high) == sum(n for k, n in found.items() if low <= k <= high)


@pytest.mark.parametrize(("low", "high"), [(0, 5), (0, 0), (5, 5), (2, 3)])
def test_sample_has_the_requested_length_and_carries(low: int, high: int) -> None:
    rng = random.Random(0)
    for _ in range(300):
        problem = draw(rng, 5, low, high)
        assert len(str(problem.a)) == len(str(problem.b)) == 5
        assert low <= carries(problem) <= high


def test_samples_are_uniform() -> None:
    rng, times = random.Random(0), 40_000
    drawn = Counter(draw(rng, 2, 1, 1) for _ in range(times))
    every = count(2, 1, 1)
    # chi-square over n cells has mean n − 1 and variance 2 (n − 1)
    expected = times / every
    missing = every - len(drawn)
    chi_square = sum((n - expected) ** 2 / expected for n in drawn.values()) + missing * expected
    assert missing >= 0
    assert abs(chi_square - (every - 1)) < 5 * (2 * (every - 1)) ** 0.5


@pytest.mark.parametrize(("a", "b"), [(347, 285), (999, 1), (5, 12345), (0, 0), (10**40 - 1, 10**40 - 1)])
def test_demonstrated_work_is_correct(a: int, b: int) -> None:
    columns, result = Problem(a, b).solve()
    assert result == str(a + b)
    for column in columns.split(";"):
        terms, total = column.split("=")
        assert sum(map(int, terms.split("+"))) == int(total)


def test_omitted_carries_change_the_result() -> None:
    answers = iter([True, False])
    columns, result = Problem(777, 777).solve(forget=lambda: next(answers))
    assert (columns, result) == ("7+7+0=14;7+7+0=14;7+7+1=15", "1544")


def test_one_prompt_in_eight_is_held_out() -> None:
    held = [Problem(a, b).held_out for a in range(100, 400) for b in range(a, 400)]
    assert sum(held) / len(held) == pytest.approx(1 / 8, abs=0.005)


def test_split_does_not_depend_on_the_seed() -> None:
    """Published figures depend on this split."""
    held = [p for p in product(range(10, 13), range(10, 20)) if Problem(*p).held_out]
    assert held == [(11, 13), (11, 14), (12, 16)]


@pytest.mark.parametrize(
    "kind", [Difficulty(range(3, 4), 0, 3), Difficulty(range(1, 4), 0, 3), Difficulty(range(2, 3), 1, 1)]
)
def test_no_seed_trains_on_a_test_prompt(kind: Difficulty) -> None:
    tests = {tuple(sorted(problem)) for problem in kind.tests(50)}
    assert len(tests) == 50
    for seed in range(40):
        trained = {tuple(sorted(problem)) for problem in islice(kind.training(seed), 1000)}
        assert not trained & tests


def test_larger_test_set_starts_with_the_smaller_one() -> None:
    kind = Difficulty(range(3, 4), 0, 3)
    assert kind.tests(100)[:10] == kind.tests(10)
    assert kind.tests(0) == []


def test_default_test_set_is_as_hard_as_all_prompts() -> None:
    """A model that omits every carry scores 30.2 % on all 3-digit sums, and nearly that on the 256 of the test set."""

    def survives(problem: Problem) -> bool:
        return problem.solve(forget=lambda: True)[1] == str(problem.a + problem.b)

    numbers = range(100, 1000)
    everywhere = sum(survives(Problem(a, b)) for a, b in product(numbers[::7], numbers[::11])) / (129 * 82)
    tests = Difficulty(range(3, 4), 0, 3).tests(256)
    assert everywhere == pytest.approx(0.55 * 0.55, abs=0.01)
    assert sum(map(survives, tests)) / 256 == pytest.approx(0.55 * 0.55, abs=0.01)


def test_too_large_test_set_is_an_error() -> None:
    with pytest.raises(RecipeError, match=r"expected 100 test problems, but only \d+ of this difficulty"):
        Difficulty(range(1, 2), 0, 1).tests(100)


def test_instruction_follows_the_question_or_is_a_template_around_it() -> None:
    def text(instruction: str) -> str:
        return str(addition(test_rows=1, instruction=instruction).test[0]["prompt"][0]["content"])

    question = text("")
    assert text("Think.") == f"{question}\n\nThink."
    assert text("User: {question} {x}. Assistant:") == f"User: {question} {{x}}. Assistant:"
