"""PRIME by hand: rewards, updates and advantages."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from rlm_process.prime import ImplicitReward, outcome_and_process, ranking_accuracy
from rlm_testing import toy_policy
from torch.nn.functional import binary_cross_entropy

PROMPTS = [[5, 6], [5, 6], [7, 8, 9], [7, 8, 9]]
COMPLETIONS = [[2, 3, 4], [5, 1], [6, 7], [8]]
MASK = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 0, 0]]).bool()
"""The last token of the second completion is an observation; the last column is padding."""
OUTCOME = torch.tensor([1.0, 0.0, 0.25, torch.nan], dtype=torch.float64)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a new policy for each test."""
    lm = toy_policy.policy.__wrapped__()
    monkeypatch.setattr(toy_policy, "policy", lambda: lm)
    return lm


def reference(host: Any) -> torch.Tensor:
    with host.disable_adapter(), torch.no_grad():
        return torch.nn.functional.pad(toy_policy.logprobs_of(PROMPTS, COMPLETIONS), (0, 1))


def set_up(host: Any, **knobs: Any) -> ImplicitReward:
    bound = ImplicitReward(batch_size=2, **knobs)
    bound.setup(host, {})
    return bound


def update_logs(part: ImplicitReward, host: Any, **changes: Any) -> dict[str, float]:
    logged: dict[str, float] = {}
    given = {
        "mask": MASK,
        "named_rewards": {"accuracy": OUTCOME},
        "group": torch.tensor([0, 0, 1, 1]),
        "ref_logp": reference(host),
        "prompt_ids": PROMPTS,
        "completion_ids": COMPLETIONS,
        "logprobs_of": toy_policy.logprobs_of,
        "step": 0,
        "log": lambda name, x: logged.update({name.removeprefix("implicit_reward/"): float(x)}),
    }
    part.update(**given | changes)
    return logged


def rewards_of(part: ImplicitReward, host: Any) -> torch.Tensor:
    return part(MASK, reference(host), PROMPTS, COMPLETIONS, toy_policy.logprobs_of)


class Reference:
    """Reference implementation in plain PyTorch: explicit LoRA, cross-entropy and AdamW on a copy of the base."""

    def __init__(self, host: Any, part: ImplicitReward, beta: float, rate: float, most: float) -> None:
        self.host, self.beta, self.most = host, beta, most
        weights = part.model._adapter.weights()
        self.a, self.b = (next(x.detach().clone() for n, x in weights.items() if f"lora_{k}" in n) for k in "AB")
        self.optimizer = torch.optim.AdamW([self.a.requires_grad_(), self.b.requires_grad_()], lr=rate, weight_decay=0)

    def rewards(self) -> torch.Tensor:
        """Return the token rewards, (B, T), with a gradient."""
        layer = self.host.get_base_model().model.layers[0].self_attn.q_proj
        hook = layer.register_forward_hook(
            lambda _, given, out: layer.base_layer(given[0]) + 8 * given[0] @ self.a.T @ self.b.T
        )
        found = torch.nn.functional.pad(toy_policy.logprobs_of(PROMPTS, COMPLETIONS), (0, 1))
        hook.remove()
        return self.beta * (found - reference(self.host)) * MASK

    def learn(self) -> tuple[float, float]:
        p = self.rewards()[:3].sum(1).sigmoid()  # the fourth completion has no outcome
        loss = binary_cross_entropy(p, OUTCOME[:3])
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_([self.a, self.b], self.most)
        self.optimizer.step()
        return loss.item(), norm.item()


def test_rewards_and_updates_match_plain_pytorch(host: Any) -> None:
    """Rewards, loss, gradient and weights of three steps are compared; one gradient is clipped."""
    part = set_up(host, beta=2.0, learning_rate=0.05, max_grad_norm=0.2)
    plain = Reference(host, part, 2.0, 0.05, 0.2)
    assert not rewards_of(part, host).any(), "a new one says what the base says"
    for _ in range(3):
        logged, (loss, norm) = update_logs(part, host), plain.learn()
        assert logged["loss"] == pytest.approx(loss, rel=1e-9)
        assert logged["norm"] == pytest.approx(norm, rel=1e-9)
        torch.testing.assert_close(rewards_of(part, host), plain.rewards(), rtol=1e-9, atol=1e-12)
    assert rewards_of(part, host).abs().max() > 1e-3
    assert not rewards_of(part, host)[~MASK].any()


def test_uninformative_completions_are_not_trained_on(host: Any) -> None:
    part = set_up(host, learning_rate=0.1)
    assert update_logs(part, host, mask=torch.zeros_like(MASK)) == {}
    assert not rewards_of(part, host).any()
    whole, dropped = set_up(host, learning_rate=0.1), set_up(host, learning_rate=0.1)
    keep = [0, 1]
    update_logs(dropped, host, mask=MASK & torch.tensor([1, 1, 0, 0]).bool().unsqueeze(1))
    update_logs(
        whole,
        host,
        mask=MASK[keep],
        named_rewards={"accuracy": OUTCOME[keep]},
        group=torch.zeros(2).long(),
        ref_logp=reference(host)[keep],
        prompt_ids=PROMPTS[:2],
        completion_ids=COMPLETIONS[:2],
    )
    torch.testing.assert_close(rewards_of(whole, host), rewards_of(dropped, host), rtol=1e-9, atol=1e-12)


def test_ranking_accuracy_by_hand() -> None:
    x = torch.tensor([0.1, 0.2, 0.2, 0.9, 5.0])
    outcome, group = torch.tensor([0.0, 1.0, 0.0, 1.0, 0.0]), torch.tensor([4, 4, 4, 4, 1])
    assert ranking_accuracy(x, outcome, group) == pytest.approx((1 + 0.5 + 1 + 1) / 4)
    assert ranking_accuracy(x + torch.arange(5) * 1e-7, outcome, group) == pytest.approx((1 + 0.5 + 1 + 1) / 4)
    assert ranking_accuracy(x, torch.zeros(5), group) is None


def test_empty_completion_is_not_in_the_baseline() -> None:
    dense, group = torch.tensor([[0.5, 0.5], [0.25, 0.25], [0.0, 0.0]]), torch.zeros(3).long()
    mask = torch.tensor([[1, 1], [1, 1], [0, 0]]).bool()
    found = outcome_and_process(dense.sum(1), group, mask, dense)
    assert found.tolist() == [[0.5, 0.25], [-0.5, -0.25], [0.0, 0.0]]
