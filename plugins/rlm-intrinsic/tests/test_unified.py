"""The unified intrinsic reward, spans, ranks, curiosity, entropy minimization, next segments and rewordings."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import rlm_intrinsic as parts
import torch
from rlm_intrinsic.answer_span import ANSWER
from rlm_intrinsic.reword import with_wordings
from rlm_testing import conformance

from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.equation import Equation
from rlm_plugins.equation.step import objective
from rlm_plugins.errors import RecipeError
from rlm_plugins.models.scratch import build_tokenizer
from rlm_plugins.registry import Registry
from rlm_plugins.report.objective_text import slots_of

test_uniform_laws = conformance("rlm_shapers", parts.cross_entropy, knobs={"q": "uniform", "sigma": 1})
test_sum_laws = conformance("rlm_shapers", parts.cross_entropy, knobs={"q": "sample", "sigma": -1, "psi": "sum"})
test_curiosity_laws = conformance("rlm_shapers", parts.curiosity, knobs={"separator": "b", "above": None})
test_ranked_laws = conformance("rlm_shapers", parts.probability_disparity, knobs={"ranked": True})
test_entropy_laws = conformance("rlm_policy_losses", parts.token_entropy_loss)

TOKENIZER = build_tokenizer("0123456789+-*=(),;? ")


def ids_of(text: str) -> list[int]:
    return list(TOKENIZER(text, add_special_tokens=False)["input_ids"])


TEXTS = ["<think>1;2</think><answer>34</answer>", "5;6;7"]
IDS = [ids_of(text) for text in TEXTS]
WIDTH = max(map(len, IDS))
MASK = torch.arange(WIDTH) < torch.tensor([[len(ids)] for ids in IDS])
RNG = torch.Generator().manual_seed(0)
LOGP = -torch.rand(2, WIDTH, generator=RNG, dtype=torch.float64)
ZERO = torch.zeros(2, dtype=torch.float64)


def test_unified_reward_covers_the_named_ones() -> None:
    given: Any = {"self_certainty": -LOGP, "old_logp": LOGP, "entropy": LOGP**2, "mask": MASK}
    tail: Any = {"completion_ids": IDS, "tokenizer": TOKENIZER}
    for knobs, expected in (
        ({"q": "uniform", "sigma": 1}, parts.self_certainty(ZERO, -LOGP, MASK)),
        ({"q": "policy", "sigma": -1}, parts.token_entropy(ZERO, LOGP**2, MASK)),
    ):
        torch.testing.assert_close(parts.cross_entropy(ZERO, **given, **tail, **knobs), expected)
    inside = parts.cross_entropy(ZERO, **given, **tail, q="sample", sigma=-1, span=ANSWER)
    start = ids_of(TEXTS[0]).index(ids_of("<answer>")[0]) + 1
    torch.testing.assert_close(inside, torch.stack([LOGP[0, start : start + 2].mean(), LOGP.new_zeros(())]))


def test_disparity_of_the_answer_and_its_rank() -> None:
    margin = torch.tensor([[0.1] * WIDTH, [0.3] * WIDTH, [0.3] * WIDTH])
    mask, ids = MASK[[0, 0, 0]], [IDS[0]] * 3
    given: Any = (torch.zeros(3), margin, mask, torch.zeros(3).long(), ids, TOKENIZER)
    torch.testing.assert_close(parts.probability_disparity(*given, span=ANSWER), torch.tensor([0.1, 0.3, 0.3]))
    assert parts.probability_disparity(*given, span=ANSWER, ranked=True).tolist() == [0.0, 0.75, 0.75]


def test_curiosity_equals_the_formula_of_the_code() -> None:
    """Computed by hand for the completion 5; 6; 7: exp(−mean) of each step minus log(1 + KL(p ‖ U)^⅓)."""

    def of_step(logp: list[float]) -> float:
        total = sum(logp)
        divergence = sum(x / total * math.log(x / total * len(logp)) for x in logp)
        return math.exp(-total / len(logp)) - math.log(1 + max(divergence, 0.0) ** (1 / 3))

    logp = LOGP[1, :5].tolist()
    expected = sum(map(of_step, (logp[:2], logp[2:4], logp[4:]))) / 3
    given: Any = (ZERO, LOGP, MASK, IDS, TOKENIZER)
    actual = parts.curiosity(*given, separator=";", above=None, weight=1.0)
    assert actual[1].item() == pytest.approx(expected)
    bonus = parts.curiosity(*given, separator=";", above=expected - 1e-6)
    assert bonus[1].item() == pytest.approx(0.4)
    assert parts.curiosity(*given, separator=";", above=expected + 1e-6)[1].item() == 0.0


def test_entropy_minimization_descends_the_entropy() -> None:
    logits = torch.tensor([[[0.5, -0.5, 0.1], [2.0, 0.0, 0.0]]], dtype=torch.float64, requires_grad=True)
    logp = logits.log_softmax(-1)
    entropy = -(logp.exp() * logp).sum(-1)
    mask = torch.tensor([[True, False]])
    batch = Batch(
        group=torch.zeros(1).long(), mask=mask, advantages=torch.zeros(1, 1), step=0, num_tokens=torch.tensor(1.0)
    )
    loss = objective(
        replace(batch, logp=logp[..., 0], entropy=entropy), Equation.from_slots(slots_of(parts.em_ft, Registry()))
    )
    (actual,) = torch.autograd.grad(loss, logits)
    p = logits.detach()[0, 0].softmax(-1)
    expected = -p * (p.log() + entropy[0, 0].detach())
    torch.testing.assert_close(actual[0, 0], expected)
    assert not actual[0, 1].any()


def test_next_segment_matches_at_ends_of_tokens(tmp_path: Path) -> None:
    reward = parts.PrefixMatch()
    reward.setup(None, {}, TOKENIZER)
    completions = ["<answer>12</answer>", "<answer>12+3</answer>", "<answer>13</answer>", "12", "<answer></answer>"]
    assert reward(completions, ["12+34=46"] * 5) == [1.0, 1.0, 0.0, 1.0, 0.0]
    text = tmp_path / "corpus.txt"
    text.write_text(" ".join(str(n) for n in range(4000)))
    spec = parts.next_segment(path=str(text), rows=20, test_rows=5, context=50, segment=20, instruction="|")
    whole = text.read_text()
    for row in [*spec.train, *spec.test]:
        assert row["prompt"][0]["content"].removesuffix("|") + row["continuation"] in whole
    with pytest.raises(RecipeError, match="has 18889 characters"):
        parts.next_segment(path=str(text), context=3000)


def test_rewordings_keep_the_numbers() -> None:
    examples = [{"prompt": "2 and 3?", "answer": "5"}, {"prompt": [{"role": "user", "content": "4?"}], "answer": "4"}]
    texts = [["2 and 3?", "Add 2.", "3 plus 2?"], ["five?", ""]]
    found = with_wordings(examples, lambda prompts, samples: texts)
    assert [(row["prompt"], row["question"], row["answer"]) for row in found] == [
        ("2 and 3?", "2 and 3?", "5"),
        ("3 plus 2?", "2 and 3?", "5"),
    ]
