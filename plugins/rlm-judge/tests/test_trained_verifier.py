"""Trained verifiers: beside the policy, and where the rule cannot read; loss and gradient, and a run that resumes."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from rlm_judge.equivalence import JudgedEquality, answer_pairs
from rlm_judge.trained_verifier import TrainedVerifier
from rlm_testing.auxiliary_models import (
    RecordingLM,
    are_equal,
    check_adapter_is_required,
    tiny_recipe,
    train_and_resume,
)
from rlm_testing.fake_packages import registered as registered_packages

RECIPE = Path(__file__).parents[1] / "recipes" / "tango.yaml"
YES, NO, NOISE = [1], [2], [3, 3]
TEXTS = {1: "1", 2: "0", 3: "?"}


registered = registered_packages("judge")


class Tokenizer:
    eos_token_id = 9
    all_special_tokens = ()

    def __init__(self) -> None:
        self.added_tokens_decoder: dict[int, Any] = {}

    def batch_decode(self, rows: list[list[int]], skip_special_tokens: bool) -> list[str]:
        return ["".join(TEXTS.get(token, chr(token)) for token in row) for row in rows]

    def apply_chat_template(self, messages: list[dict[str, str]], **_: Any) -> dict[str, list[int]]:
        return {"input_ids": list(map(ord, messages[0]["content"]))}


def test_value_and_gradient_of_the_verifier() -> None:
    """Two answers, three verdicts each: share accepted, agreement with the outcome, REINFORCE with group advantages."""
    logp = -torch.rand(6, 2, generator=torch.Generator().manual_seed(0))
    model = RecordingLM(logp)
    part = TrainedVerifier(samples=3, weight=0.5, template="{task}{answer}", accept="1", reject="0")
    part._models = [model]  # type: ignore[list-item]
    verdicts = [YES, NO, NOISE, YES, YES, NO]

    def generate(messages: list[Any]) -> list[list[int]]:
        assert model.is_active, "verdicts are those of the verifier's adapter"
        assert [row[0]["content"] for row in messages] == ["1+1=2"] * 3 + ["1+1=3"] * 3
        return verdicts

    prompts = [[{"role": "user", "content": "1+1="}]] * 3
    completions = [[ord("2")], [ord("3")], [ord("2")]]  # the first and the last are one question
    shaped = part(torch.tensor([1.0, 0.0, 1.0]), prompts, completions, Tokenizer(), generate)
    assert shaped.tolist() == pytest.approx([1 + 0.5 / 3, 0.5 * 2 / 3, 1 + 0.5 / 3])

    logged: dict[str, float] = {}
    outcome = {"accuracy": torch.tensor([1.0, 0.0, 1.0])}
    part.update(torch.ones(3, 1).bool(), outcome, prompts, completions, Tokenizer(), None, 0, logged.__setitem__)  # type: ignore[arg-type]
    rewards = [1.0, 0.0, 0.0, 0.0, 0.0, 1.0]  # right: 2 is accepted, 3 is rejected; noise never is
    assert logged["trained_verifier/correct"] == pytest.approx(2 / 6)
    tokens, expected, total = sum(map(len, verdicts)), torch.zeros(6, 2), 0.0
    for j in range(6):
        own = rewards[:3] if j < 3 else rewards[3:]
        advantage = (rewards[j] - statistics.mean(own)) / (statistics.stdev(own) + 1e-4)
        for t in range(len(verdicts[j])):
            total -= advantage * logp[j, t].item() / tokens
            expected[j, t] = -advantage / tokens
    assert model.value.item() == pytest.approx(total, rel=1e-5)
    torch.testing.assert_close(model.logp.grad, expected)
    assert model.completions == verdicts


@pytest.mark.slow
@pytest.mark.usefixtures("registered")
def test_verifier_learns_in_a_run_and_resume_is_exact(tmp_path: Path) -> None:
    file = tiny_recipe(RECIPE, tmp_path, environment={"train_rows": 64})
    run = train_and_resume(file, tmp_path / "run", "trained_verifier")
    assert b"verifier" not in run.weights, "PEFT's file is the policy's alone"
    assert not are_equal(run.early["model"], run.late["model"])
    assert all("trained_verifier/correct" in json.dumps(line) for line in run.metrics)


@pytest.mark.usefixtures("registered")
def test_recipe_passes_check_and_requires_an_adapter() -> None:
    check_adapter_is_required(RECIPE)


def test_every_skips_batches() -> None:
    model = RecordingLM(torch.zeros(1, 1))
    part = TrainedVerifier(samples=1, every=3, template="{task}{answer}", accept="1", reject="0")
    part._models = [model]  # type: ignore[list-item]
    for _ in range(6):
        part(torch.zeros(1), ["1+1="], [[50]], Tokenizer(), lambda messages: [YES])
        part.update(torch.ones(1, 1).bool(), {"accuracy": torch.ones(1)}, ["1+1="], [[50]], Tokenizer(), None, 0, print)  # type: ignore[arg-type]
    assert model.steps == 2


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
