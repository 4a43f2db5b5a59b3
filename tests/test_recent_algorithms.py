"""Algorithms of 2025 and 2026: records of the libraries' own functions, and their papers' formulas written again."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fixtures_equations import REGISTRY, equation_of, loss_and_gradient, scored
from hypothesis import given
from rlm_algorithms.group_advantages import max_rl
from rlm_algorithms.importance_ratios import trust_gate
from rlm_testing import batches
from vectors.conventions import RECENT

from rlm_plugins import recipe
from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.dispatch import on_last_token
from rlm_plugins.equation.equation import Equation
from rlm_plugins.equation.step import score, with_own_step_batch
from rlm_plugins.errors import PartError, RecipeError
from rlm_plugins.recipe.compose import compose
from rlm_plugins.report.check_report import examine

Tensor = torch.Tensor
Args = dict[str, Any]
DATA = json.loads((Path(__file__).parent / "data" / "rows_2026.json").read_text())


def case() -> Batch:
    """Return the inputs of the records, in float64."""
    data = {name: torch.tensor(x, dtype=torch.float64) for name, x in DATA["case"].items()}
    mask, group, both = data.pop("mask").bool(), data.pop("group").long(), data.pop("rewards_two")
    advantages = data.pop("advantages").unsqueeze(1)
    counts = {"num_tokens": mask.sum().double(), "num_sequences": torch.tensor(8.0), "step": 0}
    spread = on_last_token(data["rewards"], mask)
    named = {"first": both[0], "second": both[1]}
    return Batch(
        mask=mask, group=group, advantages=advantages, token_rewards=spread, named_rewards=named, **data, **counts
    )


def of_loss(name: str, **knobs: Any) -> dict[str, Tensor]:
    loss, gradient = loss_and_gradient(with_own_step_batch(case()), equation_of(name, policy_loss=knobs))
    return {"loss": loss, "grad_logp": gradient}


def of_weights(name: str, slots: Args, **knobs: Any) -> Tensor:
    (gate,) = equation_of(name, token_weights=knobs).token_weights
    return gate(with_own_step_batch(replace(case(), **slots)))


def of_advantage(name: str) -> dict[str, Tensor]:
    return {"advantages": score(case(), equation_of(name)).advantages}


RECORDED: dict[str, Callable[[Args], dict[str, Tensor]]] = {
    "dppo": lambda args: of_loss(f"dppo_{args['divergence']}@verl", low=args["low"], high=args["high"]),
    "dro": lambda args: of_loss("dro", beta=args["beta"]),
    "max_rl": lambda args: of_advantage("max_rl@skyrl"),
    "m2po@areal": lambda args: {"kept": of_weights("m2po@areal", {}, threshold=args["threshold"]) > 0},
    "m2po@swift": lambda args: {"kept": of_weights("m2po", {"rollout_logp": None}, threshold=args["threshold"]) > 0},
    "fipo": lambda args: {"weight": of_weights("fipo", {}, **args)},
    "otb": lambda args: of_advantage("otb"),
    "gdpo@verl": lambda args: of_advantage("gdpo@verl"),
}
"""Function of a library → its outputs from our rows."""


@pytest.mark.parametrize("record", DATA["records"], ids=lambda record: record["fn"])
def test_row_equals_the_records_of_a_library(record: Args) -> None:
    found, batch = RECORDED[record["fn"]](record["args"]), case()
    assert set(found) == set(record["out"])
    for name, expected in record["out"].items():
        theirs, ours = torch.tensor(expected, dtype=torch.float64), found[name].double()
        if theirs.dim() == 2:
            theirs, ours = theirs.where(batch.mask, 0.0), ours.expand(batch.mask.shape).where(batch.mask, 0.0)
        tolerance = 1e-6 if record["fn"] == "gdpo@verl" else 1e-9  # verl converts its rewards to float32
        torch.testing.assert_close(ours, theirs.reshape(ours.shape), rtol=tolerance, atol=tolerance)


def test_every_recent_convention_has_a_test() -> None:
    recorded = {"dppo_tv@verl", "dppo_kl@verl", "max_rl@skyrl", "m2po@areal", "gdpo@verl"}
    assert recorded | {*DPPO_LIKE, *OPD, "gkd_top@swift", "gkd_top@verl", "sdft@tinker"} == RECENT


def rows_of(batch: Batch) -> list[list[int]]:
    """Return the indices of the completions of each group."""
    return [(batch.group == label).nonzero().flatten().tolist() for label in batch.group.unique()]


def tokens(batch: Batch, i: int) -> list[int]:
    return batch.mask[i].nonzero().flatten().tolist()


def agrees(batch: Batch, symbols: Equation, formula: Callable[[Tensor], Tensor]) -> None:
    """Compare loss and gradient of a scored batch with a formula of log π."""
    logp = batch.logp.clone().requires_grad_()
    expected = formula(logp)
    gradient = torch.autograd.grad(expected, logp)[0] if expected.requires_grad else torch.zeros_like(logp)
    found = loss_and_gradient(batch, symbols)
    torch.testing.assert_close(found[0], expected.detach(), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found[1], gradient, rtol=1e-9, atol=1e-9)


def right_or_wrong(batch: Batch) -> Batch:
    return replace(batch, rewards=(batch.rewards > 0.3).double())


DPPO_LIKE = ("dppo_tv@skyrl", "dppo_kl@skyrl", "dppo_tv@prime_rl", "max_rl@prime_rl", "topr@roll")


@given(batches())
def test_conventions_of_skyrl_prime_rl_and_roll(batch: Batch) -> None:
    """SkyRL's −w Â has the gradient of DPPO; prime-rl adds 1e-3 (log π − log μ)²; ROLL takes TOPR's token ratios."""
    batch = replace(batch, rollout_logp=batch.old_logp, rewards=batch.rewards.abs())
    count = batch.num_tokens.item()

    def gradients(kind: str) -> Tensor:
        total = torch.zeros_like(batch.logp)
        for i in range(len(batch.group)):
            for t in tokens(batch, i):
                d, a = (batch.logp - batch.old_logp)[i, t].item(), shown.advantages[i, 0].item()
                moved = batch.logp[i, t].exp().item() - batch.old_logp[i, t].exp().item()
                weight = float(moved * math.copysign(1.0, a) <= 0.2) * math.exp(d)
                if kind == "dppo_kl@skyrl":
                    p, q = batch.logp[i, t].exp().item(), batch.old_logp[i, t].exp().item()
                    rises, (p, q) = p > q, (min(max(x, 1e-6), 1 - 1e-6) for x in (p, q))
                    far = q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p)) > 0.05
                    weight = 0.0 if far and (a > 0) == rises else math.exp(d)
                if kind == "topr@roll":
                    weight = 1.0 if a > 0 else min(math.exp(d), 1.0)
                total[i, t] = -a * weight + (0.002 * d if kind.endswith("prime_rl") else 0.0)
        return total / count

    for name in DPPO_LIKE:
        symbols = equation_of(name)
        shown = replace(score(batch, symbols), num_tokens=batch.num_tokens)
        found = loss_and_gradient(shown, symbols)[1]
        torch.testing.assert_close(found, gradients(name), rtol=1e-9, atol=1e-9)


def ppo(advantage: float, ratio: float, delta: float = math.inf) -> float:
    """Return the derivative of PPO's loss by log π."""
    clipped = (advantage > 0 and ratio > 1.2) or (advantage < 0 and (ratio < 0.8 or ratio > delta))
    return 0.0 if clipped else -advantage * ratio


OPD: dict[str, Callable[..., float]] = {
    "opd@tinker": lambda pi, old, mu, t, task: -(t - mu) * math.exp(pi - mu),
    "opd@slime": lambda pi, old, mu, t, task: ppo(task + t - old, math.exp(pi - old)),
    "opd@swift": lambda pi, old, mu, t, task: ppo(task + t - old, math.exp(pi - old)),
    "opd@nemo": lambda pi, old, mu, t, task: -(t - old) * math.exp(old - mu) * (0.5 <= math.exp(old - mu) <= 5),
    "opd@verl": lambda pi, old, mu, t, task: ppo(t - pi, math.exp(pi - old), 3.0),
    "opd@prime_rl": lambda pi, old, mu, t, task: (
        -(t - pi) * math.exp(pi - mu) * (math.exp(mu) - math.exp(pi) <= 0.2) + 0.002 * (pi - old)
    ),
    "opd@trl": lambda pi, old, mu, t, task: -(t - pi) * min(math.exp(pi - old), 2.0),
}
"""Convention → the derivative of the loss of a token by log π, before the normalizer."""


@pytest.mark.parametrize("name", OPD)
@given(batch=batches())
def test_conventions_of_on_policy_distillation(name: str, batch: Batch) -> None:
    """Without a teacher the log-probs of the teacher are those that the convention compares with."""
    symbols = equation_of(name)
    shown = replace(score(batch, symbols), num_tokens=batch.num_tokens)
    task = score(batch, equation_of("grpo")).advantages
    expected = torch.zeros_like(batch.logp)
    divisors = {"opd@swift": batch.num_sequences, "opd@trl": batch.num_sequences_all}
    for i in range(len(batch.group)):
        for t in tokens(batch, i):
            pi, old, mu, teacher = (
                x[i, t].item() for x in (batch.logp, batch.old_logp, batch.rollout_logp, batch.teacher_logp)
            )
            if not batch.has_teacher[i]:
                teacher = mu if name == "opd@tinker" else pi if name in ("opd@verl", "opd@prime_rl", "opd@trl") else old
            count = divisors[name] * len(tokens(batch, i)) if name in divisors else batch.num_tokens
            expected[i, t] = OPD[name](pi, old, mu, teacher, task[i, 0].item()) / count
    torch.testing.assert_close(loss_and_gradient(shown, symbols)[1], expected, rtol=1e-9, atol=1e-9)


def test_conventions_of_divergences_over_few_tokens() -> None:
    """ms-swift and tinker divide both distributions by their sum, verl neither; by numbers of two tokens."""
    policy, teacher = torch.tensor([[[0.3, 0.2]]]).double(), torch.tensor([[[0.5, 0.1]]]).double()
    zero, one = torch.zeros(1, 1).double(), torch.ones(1, 1, dtype=torch.bool)
    p, q = policy[0, 0] / policy.sum(), teacher[0, 0] / teacher.sum()
    middle = (p + q) / 2
    expected = {
        "gkd_top@swift": ((q * (q / middle).log()).sum() + (p * (p / middle).log()).sum()) / 2,
        "sdft@tinker": (q * (q / p).log()).sum(),
        "gkd_top@verl": (teacher * (teacher / policy).log()).sum(),
    }
    data = {"top_logp": policy.log(), "teacher_top_logp": teacher.log(), "logp": zero, "old_logp": zero, "mask": one}
    for name, value in expected.items():
        found = equation_of(name).policy_loss(Batch(**data, has_teacher=one[0]))
        torch.testing.assert_close(found.squeeze(), value)


@given(batches())
def test_hierarchical_compares_roles_within_their_episode_or_group(batch: Batch) -> None:
    roles, episodes = batch.prompt_index % 2 + (batch.rewards > 0), (batch.rewards * 7).round() % 2
    batch = replace(batch, named_rewards={"role": roles.double(), "episode": episodes})
    found = score(batch, equation_of("hierarchical", advantage={"within_episode": [1.0]})).advantages.flatten()
    for i, own in enumerate(zip(batch.group, roles, episodes, strict=True)):
        depth = 3 if own[1] == 1 else 2
        others = zip(batch.rewards.tolist(), zip(batch.group, roles, episodes, strict=True), strict=True)
        compared = [r for r, key in others if key[:depth] == own[:depth]]
        assert found[i].item() == pytest.approx(batch.rewards[i].item() - sum(compared) / len(compared), abs=1e-12)


@given(batches())
def test_a2po_regresses_on_the_value_of_the_reference(batch: Batch) -> None:
    batch = right_or_wrong(batch)
    symbols = equation_of("a2po", advantage={"beta": 0.5, "samples": 3}, policy_loss={"beta": 0.25})
    shown = scored(batch, symbols)
    scores = batch.rewards_of(batch.prompts, batch.generate(batch.prompts), batch.inputs)  # equal samples of a prompt
    values = [0.5 * math.log(sum(math.exp(x / 0.5) for x in [score] * 3) / 3) for score in scores.tolist()]

    def regression(logp: Tensor) -> Tensor:
        total = torch.zeros((), dtype=logp.dtype)
        for i, value in enumerate(values):
            if value > 0 and tokens(batch, i):
                moved = (logp - batch.ref_logp)[i, batch.mask[i]].sum()
                total = total + (0.25 * moved - (batch.rewards[i] - value)) ** 2
        return total / shown.num_sequences

    agrees(shown, symbols, regression)


SIGNS = {"psr": (1.0, 0.0), "nsr": (0.0, -1.0), "w_reinforce": (0.1, -1.0)}


@pytest.mark.parametrize("name", SIGNS)
def test_outcomes_have_their_own_weights(name: str) -> None:
    right, wrong = SIGNS[name]
    found = score(case(), equation_of(name)).advantages.flatten()
    assert found.tolist() == pytest.approx([right if r == 1 else wrong for r in case().rewards])


@given(batches())
def test_gates_measure_what_they_say(batch: Batch) -> None:
    """The statistics of OpenRLHF, and KPop's larger direction, one token or completion at a time."""
    p, q = batch.rollout_logp.exp(), batch.old_logp.exp()

    def kl(a: float, b: float) -> float:
        a, b = (min(max(x, 1e-6), 1 - 1e-6) for x in (a, b))
        return a * math.log(a / b) + (1 - a) * math.log((1 - a) / (1 - b))

    for i in range(len(batch.group)):
        pairs = [(p[i, t].item(), q[i, t].item()) for t in tokens(batch, i)]
        measured = {
            "binary_kl": [kl(a, b) for a, b in pairs],
            "symmetric_kl": [max(kl(a, b), kl(b, a)) for a, b in pairs],
            "tv": [abs(a - b) for a, b in pairs],
            "ratio": [b / a for a, b in pairs],
        }
        for of, values in measured.items():
            found = trust_gate(batch.old_logp, batch.rollout_logp, batch.mask, of=of, low=0.01, high=0.95)[i]
            inside = [0.01 <= x <= 0.95 for x in values]
            expected = [b / a if kept else 0.0 for (a, b), kept in zip(pairs, inside, strict=True)]
            assert found[batch.mask[i]].tolist() == pytest.approx(expected)
            if of != "ratio" and sum(values) > 0:
                mean, knobs = sum(values) / len(values), {"of": of, "level": "sequence_mean", "weighted": False}
                for high, kept in ((mean * 1.01, 1.0), (mean * 0.99, 0.0)):
                    gate = trust_gate(batch.old_logp, batch.rollout_logp, batch.mask, high=high, **knobs)
                    assert gate[i, batch.mask[i]].tolist() == [kept] * len(pairs)


def test_max_rl_is_the_gradient_of_a_mixture_of_pass_at_k() -> None:
    """E[Â ∇ log π] over groups of n is Σₖ﹤ₙ (1 − p)^(k−1) ∇ p: all outcomes of a policy with two answers."""
    n, p = 5, 0.3
    total = 0.0
    for wins in range(n + 1):
        rewards = (torch.arange(n) < wins).double()
        chance = math.comb(n, wins) * p**wins * (1 - p) ** (n - wins)
        scores = torch.where(rewards > 0, 1 - p, -p)  # d log π / d logit
        total += chance * (max_rl(rewards, torch.zeros(n).long()) * scores).mean().item()
    expected = sum((1 - p) ** (k - 1) for k in range(1, n)) * p * (1 - p)
    assert total == pytest.approx(expected)


RECIPE = """
environment: {name: addition, digits: 2}
rewards: [accuracy, {name: format, weight: WEIGHT}]
model: scratch
algorithm: ROW
trainer: {max_steps: 1, TRAINER}
"""


def stage(tmp_path: Path, row: str, weight: float = 0.1, trainer: str = "") -> Any:
    file = tmp_path / "recipe.yaml"
    file.write_text(RECIPE.replace("ROW", row).replace("WEIGHT", str(weight)).replace("TRAINER", trainer))
    return compose(recipe.load(file), REGISTRY)[0]


def test_max_rl_refuses_negative_rewards(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"the reward 'format' has the weight -0\.1") as error:
        stage(tmp_path, "max_rl", -0.1)
    assert error.value.where.startswith("algorithm.advantage")
    stage(tmp_path, "{name: max_rl, advantage: {negative: zero}}", -0.1)
    with pytest.raises(PartError, match="got the reward -1"):
        max_rl(torch.tensor([1.0, -1.0]), torch.tensor([0, 0]))


@pytest.mark.parametrize(("row", "warns"), [("fipo", True), ("m2po", True), ("grpo", False)])
def test_one_update_per_batch_has_a_warning(tmp_path: Path, row: str, warns: bool) -> None:
    def found(trainer: str) -> list[str]:
        warnings: list[str] = examine(stage(tmp_path, row, trainer=trainer), REGISTRY)["warnings"]
        return [line for line in warnings if "one update per generation batch" in line]

    assert bool(found("")) is warns
    assert not found("num_iterations: 2")
    assert not found("steps_per_generation: 4, gradient_accumulation_steps: 2")
