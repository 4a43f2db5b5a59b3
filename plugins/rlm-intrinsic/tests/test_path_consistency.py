"""Path consistency: values by hand, likelihoods from separate forward passes, contract with a real model."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from rlm_intrinsic.path_consistency import (
    PathConsistency,
    consistency_and_volatility,
    joint_consistency,
    mean_nll,
    step_ends,
)
from rlm_testing import conformance

from rlm_plugins.builtin.models import scratch

PREFIXES, ANSWERS = [[5, 6, 7], [5, 6, 7, 8, 9, 10]], [[15, 16, 17], [18], [6, 7]]


def policy(architecture: Any = "qwen3") -> tuple[Any, Any]:
    source = scratch(hidden=32, intermediate=64, architecture=architecture, seed=1)
    model = source.load()
    for x in model.parameters():  # far from uniform, so that answers differ
        x.data *= 3
    return model, source.tokenizer()


@pytest.mark.parametrize("architecture", ["qwen3", "llama"])
def test_likelihoods_equal_those_of_separate_forward_passes(architecture: str) -> None:
    model, _ = policy(architecture)
    with torch.no_grad():
        found = mean_nll(model, PREFIXES, ANSWERS)
        for line, prefix in enumerate(PREFIXES):
            for column, answer in enumerate(ANSWERS):
                ids = [*prefix, *answer]
                logp = model(torch.tensor([ids])).logits[0].log_softmax(-1)
                by_hand = -sum(logp[at - 1, ids[at]] for at in range(len(prefix), len(ids))) / len(answer)
                assert found[line, column] == pytest.approx(float(by_hand), abs=1e-4)
    assert found.std() > 0.1


@pytest.mark.parametrize(
    ("token_texts", "separator", "most", "ends"),
    [
        (["a;", "b;", "c"], ";", 15, [1, 2]),
        (["a", ";", "b", ";", ""], ";", 15, [2]),  # what ends with the text is the last step
        (["1;", "2;", "3;", "4;", "5"], ";", 2, [2, 4]),
        (["1;", "2;", "3;", "4"], ";", 1, [3]),
        ([], ";", 15, []),
    ],
)
def test_step_ends(token_texts: list[str], separator: str, most: int, ends: list[int]) -> None:
    assert step_ends(token_texts, separator, most) == ends


def test_consistency_and_volatility() -> None:
    near, far, tie = [1.0, 2.0, 3.0], [2.0, 1.0, 3.0], [1.0, 1.0, 3.0]
    assert consistency_and_volatility([near, near, near]) == (1.0, 0.0)
    assert consistency_and_volatility([near, far, near, near]) == (0.75, 0.5)
    assert consistency_and_volatility([near, near, far]) == (pytest.approx(2 / 3), 1.0)
    assert consistency_and_volatility([far, tie]) == (0.0, 0.5)  # a tie is not nearest, and no turning away
    assert consistency_and_volatility([]) == (0.0, 1.0)
    assert joint_consistency([(1.0, 0.0), (1.0, 1.0)]) == pytest.approx(math.cos(0.5))
    assert joint_consistency([(0.6, 0.4)] * 3) == pytest.approx(0.6)


class TableLikelihoods(PathConsistency):
    """PathConsistency with distances from a table instead of a model: (end, answer) → distance, 1 by default."""

    def __init__(self, table: dict[tuple[int, str], float], **knobs: Any) -> None:
        super().__init__(separator=";", untagged="last_number", **knobs)
        self._likelihoods = self  # type: ignore[assignment]
        self.table = table

    def token_texts(self, ids: list[int]) -> list[str]:
        return [chr(x) for x in ids]

    def distances(self, prompt: str, ids: list[int], ends: list[int], lead: str, texts: list[str]) -> list[list[float]]:
        return [[self.table.get((end, text), 1.0) for text in texts] for end in ends]


def scored(part: PathConsistency, texts: list[str], **more: Any) -> list[float | None]:
    return part(["q"] * len(texts), texts, [[*map(ord, text)] for text in texts], **more)


def test_completions_with_one_answer_share_their_score() -> None:
    # after "a;" the answer 7 is nearer, after "a;b;" the answer 8 is
    part = TableLikelihoods({(2, "7"): 0.5, (4, "8"): 0.5})
    logged: dict[str, float] = {}
    texts = ["a;b; 7", "a; 7", "a;b; 8", "nothing"]
    found = scored(part, texts, log_metric=logged.__setitem__)
    seven = joint_consistency([(0.5, 1.0), (1.0, 0.0)])
    assert found == [pytest.approx(seven), pytest.approx(seven), pytest.approx(0.5), 0.0]
    assert logged["path_consistency/consistency"] == pytest.approx((0.5 + 1.0 + 0.5) / 3)
    assert logged["path_consistency/volatility"] == pytest.approx((1.0 + 0.0 + 0.5) / 3)
    assert scored(TableLikelihoods(part.table, threshold=0.6), texts) == [1.0, 1.0, 0.0, 0.0]
    assert scored(part, ["a; 7", "a;b; 7.0", "none"]) == [None] * 3  # one answer: nothing to compare
    assert scored(part, ["7", "8"]) == [0.0, 0.0]  # no state on the way


class WithPolicy(PathConsistency):
    """PathConsistency with a small policy."""

    def __init__(self, *, separator: str = ";") -> None:
        super().__init__(separator=separator, lead="=", untagged="last_number")
        self.setup(*policy()[:1], {}, policy()[1])


test_laws = conformance(
    "rlm_rewards",
    WithPolicy,
    columns={"completions": ["1+1=2;2+1=3;3", "1;2", "2;2;2", "", "no answer"]},
)
