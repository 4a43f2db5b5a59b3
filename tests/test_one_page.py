"""`one_page.py` is the reference: the framework with `grpo` must compute equal values."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import one_page
import pytest
import torch

from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.equation import Equation
from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.equation.step import objective, score
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound

P, G, EPSILON = 6, 4, 0.2
REGISTRY = Registry()
HOOK = {hook.key: name for name, hook in HOOKS.items()}
SAME = {"rtol": 1e-9, "atol": 1e-12}


def bind(key: str, spec: Any) -> Bound:
    """Return the part that the algorithms' table names under `key`."""
    knobs = dict(spec) if isinstance(spec, Mapping) else {"name": spec}
    name, beta = knobs.pop("name"), knobs.pop("beta", 1.0)
    bound = REGISTRY.find(HOOK[key], name).bind(knobs)
    return Bound(bound.part, bound.knobs, bound.target, options={"beta": beta})


def grpo(beta: float) -> Equation:
    """Return the equation of `grpo`, with another β (0: without the penalty)."""
    slots: dict[str, Any] = REGISTRY.find("rlm_algorithms", "grpo").target.slots()
    slots["penalties"] = [{**penalty, "beta": beta} for penalty in slots["penalties"]] if beta else []
    chosen = {key: spec for key, spec in slots.items() if spec}
    many = {key: [bind(key, one) for one in spec] for key, spec in chosen.items() if HOOKS[HOOK[key]].many}
    return Equation(**many, **{key: bind(key, spec) for key, spec in chosen.items() if key not in many})


@pytest.fixture
def page() -> dict[str, Any]:
    """Return a float64 batch of `one_page`, with completions of different length and an updated policy."""
    torch.manual_seed(7)
    policy = one_page.Policy(width=16)
    words = [word for word in ("cab", "dad", "abc", "bbb", "acd", "dba") for _ in range(G)]
    ids, mask = one_page.sample(policy, words)
    policy, reference, old = policy.double(), copy.deepcopy(policy).double(), copy.deepcopy(policy).double()
    for other in (policy, reference):
        for weight in other.parameters():
            weight.data += 0.3 * torch.randn_like(weight)
    rewards = [one_page.reward(word, text) for word, text in zip(words, one_page.decode(ids, mask), strict=True)]
    return {
        "policy": policy,
        "ids": ids,
        "mask": mask,
        "r": torch.tensor(rewards, dtype=torch.float64),
        "old": one_page.log_prob(old, ids).detach(),
        "ref": one_page.log_prob(reference, ids).detach(),
    }


def machine_batch(page: dict[str, Any]) -> Batch:
    mask = page["mask"]
    return Batch(
        group=torch.arange(P).repeat_interleave(G),
        mask=mask,
        rewards=page["r"],
        named_rewards={"sorted": page["r"]},
        truncated=torch.zeros(P * G, dtype=torch.bool),
        max_completion_length=one_page.COMPLETION,
        old_logp=page["old"],
        ref_logp=page["ref"],
        num_tokens=mask.sum().double(),
        num_sequences=torch.tensor(float(P * G), dtype=torch.float64),
        num_micro_batches=torch.tensor(1.0),
    )


def test_the_fixture_is_worth_comparing(page: dict[str, Any]) -> None:
    ratio = (one_page.log_prob(page["policy"], page["ids"]) - page["old"]).exp()[page["mask"]]
    assert len(page["mask"].sum(1).unique()) > 1, "answers of several lengths"
    assert (ratio > 1 + EPSILON).any()
    assert (ratio < 1 - EPSILON).any()
    table = page["r"].view(P, G)
    assert (table.amax(1) > table.amin(1)).any(), "a group that teaches"


def test_same_advantages_where_no_answer_is_better(page: dict[str, Any]) -> None:
    page["r"] = torch.full((P * G,), 0.3, dtype=torch.float64)
    assert (one_page.advantage(page["r"].view(P, G)) == 0).all()
    assert (score(machine_batch(page), grpo(0.0)).advantages == 0).all()


@pytest.mark.parametrize("beta", [0.0, 0.04, 1.0])
def test_same_loss_and_same_gradient_of_every_weight(page: dict[str, Any], beta: float) -> None:
    policy, ids = page["policy"], page["ids"]
    A = one_page.advantage(page["r"].view(P, G)).view(-1, 1)

    logp = one_page.log_prob(policy, ids)
    expected = one_page.loss(logp, page["old"], page["ref"], A, page["mask"], EPSILON, beta)
    weights = [logp, *policy.parameters()]
    expected_gradients = torch.autograd.grad(expected, weights)

    batch = score(machine_batch(page), grpo(beta))
    batch.logp = one_page.log_prob(policy, ids)
    ours = objective(batch, grpo(beta))
    gradients = torch.autograd.grad(ours, [batch.logp, *policy.parameters()])

    assert expected.abs() > 1e-3
    torch.testing.assert_close(ours, expected, **SAME)
    for actual, wanted in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(actual, wanted, **SAME)
    assert all(gradient.abs().max() > 0 for gradient in expected_gradients)


@pytest.mark.parametrize(
    ("word", "answer", "score"),
    [("cab", "abc.", 1.0), ("cab", "ab.", 0.5), ("cab", ".", 0.0), ("dad", "add.", 1.0), ("cab", "abcd", 0.75)],
)
def test_reward(word: str, answer: str, score: float) -> None:
    assert one_page.reward(word, answer) == score


def test_an_answer_ends_with_its_first_full_stop() -> None:
    torch.manual_seed(0)
    ids, mask = one_page.sample(one_page.Policy(), ["cab"] * 200)
    for row, kept, text in zip(ids[:, one_page.PROMPT :].tolist(), mask, one_page.decode(ids, mask), strict=True):
        written = "".join(one_page.TOKENS[token] for token in row)
        assert text == (written[: written.index(".") + 1] if "." in written else written)
        assert kept.tolist() == [i < len(text) for i in range(one_page.COMPLETION)]


def test_logprob_belongs_to_the_generated_token() -> None:
    policy = one_page.Policy()
    ids, _ = one_page.sample(policy, ["cab", "dab"])
    by_hand = [[policy(row[None, :t])[0, -1, row[t]].item() for t in range(4, 8)] for row in ids]
    torch.testing.assert_close(one_page.log_prob(policy, ids), torch.tensor(by_hand))


def test_reference_implementation_runs_as_documented() -> None:
    command = [sys.executable, one_page.__file__]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    reward = [float(line.split("mean reward")[1].split()[0]) for line in lines]
    assert len(lines) == 11
    assert reward[-1] > 0.9 > 0.3 > reward[0]


def test_reference_implementation_is_one_independent_file() -> None:
    text = Path(one_page.__file__).read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 115
    imports = [line for line in text.splitlines() if line.startswith(("import", "from"))]
    assert not any("rlm_plugins" in line or "trl" in line or "transformers" in line for line in imports)
