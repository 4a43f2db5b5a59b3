"""Conventions: `grpo@trl` reproduces TRL's numbers, value and gradient."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rlm_lab import plugin_list
from rlm_lab.part_changes import folded
from vectors.conventions import RECENT, Setting, pairs
from vectors.records import CASES, Args, Case, Out

from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.equation import Equation
from rlm_plugins.equation.step import objective, score, with_own_step_batch
from rlm_plugins.errors import PluginError, RecipeError
from rlm_plugins.recipe import load
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry
from rlm_plugins.registry.loading import validated_parts
from rlm_plugins.report.objective_text import slots_of
from rlm_plugins.run.launch import launch
from rlm_plugins.specs import Algorithm, base_name

REGISTRY = Registry()
ROWS = {part.name: part.target for part in REGISTRY if part.hook == "rlm_algorithms"}
CONVENTIONS = sorted(name for name in ROWS if "@" in name and name not in RECENT)
PAIRS = pairs()
BY_HAND = {name for name in CONVENTIONS if name.partition("@")[2] not in ("trl", "verl", "openrlhf")}
"""Compared with their formulas, written again below."""
NOT_THE_VALUE = ("gmpo@trl", "rloo@trl")
"""TRL adds −Â, a constant, for every row without tokens: there only the gradient is compared."""


def equation(row: Algorithm) -> Equation:
    slots = slots_of(row, REGISTRY)
    return Equation.from_slots(slots)


def rewards_of(record: Args, case: Case) -> torch.Tensor:
    """Return token rewards for verl, and one reward per completion (possibly missing for TRL) for the others."""
    return case.outcome if record["fn"].startswith("verl") else case.scores


def result_of(row: Algorithm, record: Args, case: Case) -> Out:
    """Return the result of the algorithm for the inputs of a record."""
    symbols, out = equation(row), record["out"]
    if "advantages" in out:
        rewards = rewards_of(record, case)
        scored = score(case.batch(rewards=rewards, named_rewards={"accuracy": rewards}), symbols)
        kept = out.get("kept")
        return {"advantages": scored.advantages if kept is None else scored.advantages[kept]}
    if "kl" in out:
        return penalty(symbols, record["args"], case)
    return loss_of(symbols, case, record["args"])


def penalty(symbols: Equation, args: Args, case: Case) -> Out:
    inline = {name: torch.tensor(args[name], dtype=torch.float64) for name in ("logp", "ref") if name in args}
    logp, ref = inline.get("logp", case.logp).requires_grad_(), inline.get("ref", case.ref_logp)
    kl = symbols.penalties[0](Batch(logp=logp, ref_logp=ref))  # type: ignore[call-arg]
    return {"kl": kl.detach(), "grad_logp": torch.autograd.grad(kl.sum(), logp)[0]}


def loss_of(symbols: Equation, case: Case, args: Args) -> Out:
    logp, advantages = case.logp.requires_grad_(), getattr(case, args.get("advantages", "adv_seq"))
    batch = case.batch(
        logp=logp,
        advantages=advantages if advantages.dim() == 2 else advantages.unsqueeze(1),
        num_tokens=case.mask.sum().double(),
        num_sequences=case.mask.any(1).sum().double(),
        num_sequences_all=torch.tensor(len(case.groups)).double(),
        num_micro_batches=torch.tensor(1.0).double(),
        step=0,
    )
    loss = objective(with_own_step_batch(batch), symbols)
    return {"loss": loss.detach(), "grad_logp": torch.autograd.grad(loss, logp)[0]}


@pytest.mark.parametrize(
    ("name", "record", "setting"), PAIRS, ids=[f"{name}-{record['id'].split(':')[-1]}" for name, record, _ in PAIRS]
)
def test_convention_equals_the_numbers_of_its_library(name: str, record: Args, setting: Setting) -> None:
    inline = record["case"] == "inline"
    case = CASES["A" if inline else record["case"]]
    actual = result_of(setting(ROWS[name], record["args"], case), record, case)
    numbers = {key: x for key, x in record["out"].items() if key in ("advantages", "loss", "kl", "grad_logp")}
    if name in NOT_THE_VALUE and not case.mask.any(1).all():
        numbers.pop("loss", None)
    assert numbers
    for key, expected in numbers.items():
        theirs, ours = torch.tensor(expected, dtype=torch.float64), actual[key]
        if theirs.dim() == 1 and ours.dim() == 2:
            ours = ours.squeeze(1)
        if theirs.dim() == 2 and not inline:
            theirs, ours = theirs[case.mask], ours.expand(case.mask.shape)[case.mask]
        torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=3e-6)


@pytest.mark.parametrize("name", sorted(set(CONVENTIONS) - BY_HAND))
def test_every_convention_has_records_of_advantages_and_loss(name: str) -> None:
    held = {key for row, record, _ in PAIRS if row == name for key in record["out"]}
    wanted = {"gfpo@trl": {"advantages"}, "flash_rl@trl": {"advantages"}}.get(name, {"advantages", "loss", "grad_logp"})
    assert wanted <= held


# ---------------------------------------------------- conventions whose library numbers are computed by hand

GROUPS = [[1.0, 0.0, 0.0, 0.0], [0.5, 1.0, 0.25], [1.0, 1.0], [2.0]]
REWARDS = [r for group in GROUPS for r in group]


def example(width: int = 4) -> Batch:
    """Return four groups; the second completion has no tokens, and the second token of the first is a tool's."""
    generator = torch.Generator().manual_seed(1)
    rows = len(REWARDS)
    noise = torch.randn(3, rows, width, generator=generator, dtype=torch.float64)
    lengths = torch.tensor([4, 0, 2, 3, 1, 4, 2, 3, 4, 2])
    mask = torch.arange(width) < lengths.unsqueeze(1)
    mask[0, 1] = False
    old = -noise[0].abs()
    return Batch(
        group=torch.tensor([i for i, group in enumerate(GROUPS) for _ in group]),
        mask=mask,
        max_completion_length=16,
        rewards=torch.tensor(REWARDS, dtype=torch.float64),
        named_rewards={},
        step=0,
        logp=old + noise[1],
        old_logp=old,
        ref_logp=old + 0.1 * noise[2],
        num_tokens=mask.sum().double(),
        num_sequences=mask.any(1).sum().double(),
        num_sequences_all=torch.tensor(rows).double(),
        num_micro_batches=torch.tensor(1.0).double(),
    )


def by_group(say: Any) -> list[float]:
    return [x for group in GROUPS for x in say(group)]


def standard(group: list[float], *, less: int, eps: float) -> list[float]:
    """Return (r − mean) / (std + eps) with n − `less` in the variance; 0 if all rewards are equal."""
    if len(set(group)) < 2:
        return [0.0] * len(group)
    mean = sum(group) / len(group)
    std = (sum((r - mean) ** 2 for r in group) / (len(group) - less)) ** 0.5
    return [(r - mean) / (std + eps) for r in group]


def of_the_others(group: list[float]) -> list[float]:
    """Return NeMo-RL's advantage: mean and std of the rest of the group; no division if the rest is constant."""
    found = []
    for i, r in enumerate(group):
        rest = group[:i] + group[i + 1 :]
        mean = sum(rest) / len(rest) if rest else r
        variance = sum((x - mean) ** 2 for x in rest) / max(len(rest) - 1, 1)
        found.append((r - mean) / (variance**0.5 + 1e-6 if variance else 1.0))
    return [0.0] * len(group) if len(set(group)) < 2 else found


def centred_over_batch(_: Any = None) -> list[float]:
    """Return ROLL's advantage: reward minus group mean, over the std of all these differences."""
    centred = by_group(lambda group: [r - sum(group) / len(group) for r in group])
    mean = sum(centred) / len(centred)
    std = (sum((x - mean) ** 2 for x in centred) / (len(centred) - 1)) ** 0.5
    return [x / (std + 1e-6) for x in centred]


EXPECTED = {
    "grpo@nemo": by_group(of_the_others),
    "grpo@oat": by_group(lambda group: standard(group, less=1, eps=1e-8)),
    "grpo@roll": by_group(lambda group: standard(group, less=1, eps=1e-6)),
    "grpo@population": by_group(lambda group: standard(group, less=0, eps=0.0)),
    "grpo@centered": by_group(lambda group: [r - sum(group) / len(group) for r in group]),
    "lite_ppo@roll": centred_over_batch(),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_advantages_equal_the_record(name: str) -> None:
    found = score(example(), equation(ROWS[name])).advantages.squeeze(1)
    torch.testing.assert_close(found, torch.tensor(EXPECTED[name], dtype=torch.float64))


@pytest.mark.parametrize(("name", "lone"), [("dapo@verl", 2.0), ("grpo@verl", 2.0), ("dapo", 0.0), ("grpo@oat", 0.0)])
def test_a_group_of_one_has_its_reward_as_advantage_in_verl(name: str, lone: float) -> None:
    """verl takes 0 as its mean and 1 as its std; DAPO's filter drops equal rewards, and in verl no group of one."""
    found = score(replace(example(), named_rewards={"accuracy": example().rewards}), equation(ROWS[name]))
    others = by_group(lambda group: standard(group, less=1, eps=1e-4 if name == "dapo" else 1e-6))[:-1]
    assert found.advantages.squeeze(1).tolist() == pytest.approx([*others, lone], abs=1e-4)
    if name.startswith("dapo"):
        assert found.keep_mask.tolist() == [True] * 7 + [False] * 2 + [name == "dapo@verl"]


def whitened(to_come: torch.Tensor, mask: torch.Tensor, *, less: int) -> torch.Tensor:
    live = to_come[mask]
    std = ((live - live.mean()) ** 2).sum().div(live.numel() - less).sqrt()
    return ((to_come - live.mean()) / std).where(mask, 0.0)


def test_nemo_whitens_as_a_population() -> None:
    batch = example()
    centred = torch.tensor(EXPECTED["grpo@centered"], dtype=torch.float64).unsqueeze(1).expand(batch.mask.shape)
    found = score(batch, equation(ROWS["reinforce_pp_baseline@nemo"])).advantages
    torch.testing.assert_close(found, whitened(centred, batch.mask, less=0), atol=1e-6, rtol=1e-6)


def test_skyrl_drops_credit_after_tool_output() -> None:
    batch = replace(example(), ref_logp=example().old_logp)
    to_come = batch.rewards.unsqueeze(1).expand(batch.mask.shape).clone()
    to_come[0, 0] = 0.0  # before the tool's token
    found = score(batch, equation(ROWS["reinforce_pp@skyrl"])).advantages
    torch.testing.assert_close(found, whitened(to_come, batch.mask, less=1), atol=1e-6, rtol=1e-6)


def value_and_gradient(name: str, **knobs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the result of an algorithm for the example, with advantages of both signs."""
    batch = replace(example(), advantages=torch.linspace(-1.5, 1.5, len(REWARDS), dtype=torch.float64).unsqueeze(1))
    return _differentiated(batch, equation(replace(ROWS[name], penalties=(), **knobs)))


def _differentiated(batch: Batch, symbols: Equation) -> tuple[torch.Tensor, torch.Tensor]:
    logp = batch.logp.clone().requires_grad_()
    loss = objective(replace(with_own_step_batch(batch), logp=logp), symbols)
    return loss.detach(), torch.autograd.grad(loss, logp)[0]


SCALED = {
    "grpo@roll": ("grpo", 9 / 10),  # nine of ten completions have tokens
    "grpo@oat": ("grpo", 1.0),
    "grpo@population": ("grpo", 1.0),
    "grpo@centered": ("grpo", 1.0),
    "grpo@trl": ("grpo", 9 / 10),
    "dr_grpo@trl": ("dr_grpo", 9 / 10),
    "dr_grpo@roll": ("dr_grpo", 9.0),  # a sum over completions
    "lite_ppo@roll": ("lite_ppo", 1.0),
    "dapo@skyrl": ("dapo", 1.0),  # one micro-batch
    "reinforce_pp@skyrl": ("reinforce_pp", 1.0),
    "reinforce_pp_baseline@nemo": ("reinforce_pp_baseline", 1.0),
}


@pytest.mark.parametrize("name", SCALED)
def test_loss_equals_the_record(name: str) -> None:
    plain, factor = SCALED[name]
    loss, gradient = value_and_gradient(plain)
    torch.testing.assert_close(value_and_gradient(name), (loss * factor, gradient * factor))


def test_nemo_sums_over_tokens() -> None:
    torch.testing.assert_close(value_and_gradient("grpo@nemo"), value_and_gradient("grpo", aggregator="token_mean"))


@pytest.mark.parametrize("name", ["gppo@klear", "ce_gppo@klear"])
def test_dual_clip_of_the_authors(name: str) -> None:
    """The loss is −3 Â without gradient where Â < 0 and the usual loss exceeds it."""
    batch = replace(example(), advantages=torch.full((len(REWARDS), 1), -1.0, dtype=torch.float64))
    batch.logp[3, 1] = batch.old_logp[3, 1] + 2.0  # w = 7.4
    free, bound = (_differentiated(batch, equation(ROWS[n])) for n in (base_name(name), name))
    runaway = (batch.logp - batch.old_logp).exp() > 3.0
    assert (runaway & batch.mask).any()
    over = ((batch.logp - batch.old_logp).exp() - 3.0).where(runaway & batch.mask, 0.0).sum() / batch.num_tokens
    torch.testing.assert_close(bound, (free[0] - over, free[1].where(~runaway, 0.0)))


def test_every_convention_without_records_has_a_formula() -> None:
    assert {*EXPECTED, *SCALED, "gppo@klear", "ce_gppo@klear"} >= BY_HAND


# ---------------------------------------------------------------- names

RECIPE = """
environment: {name: addition, digits: 2}
rewards: [accuracy]
model: scratch
algorithm: ROW
trainer: {max_steps: 1}
"""


def written(tmp_path: Path, row: str, *overrides: str) -> Any:
    file = tmp_path / "recipe.yaml"
    file.write_text(RECIPE.replace("ROW", row))
    return compose(load(file, overrides), REGISTRY, build_environment=False)[0]


def test_a_recipe_names_a_convention_and_turns_its_knobs(tmp_path: Path) -> None:
    stage = written(tmp_path, "{name: grpo@verl, policy_loss: {delta: 4}}")
    assert stage.body["algorithm"]["name"] == "grpo@verl"
    assert stage.equation.policy_loss.knobs["delta"] == 4
    assert stage.equation.aggregator.part.name == "token_mean"
    assert written(tmp_path, "grpo", "algorithm=grpo@trl").body["algorithm"]["name"] == "grpo@trl"


def test_unknown_convention_suggests_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="did you mean 'grpo@trl'"):
        written(tmp_path, "grpo@tlr")
    with pytest.raises(RecipeError) as unknown:
        written(tmp_path, "grop")
    assert "@" not in str(unknown.value), "the names that are allowed are the rows, not every convention of each"


@pytest.mark.parametrize(
    ("hook", "name", "sound"),
    [
        ("rlm_algorithms", "grpo@my-lab", True),
        ("rlm_algorithms", "grpo@", False),
        ("rlm_algorithms", "@trl", False),
        ("rlm_algorithms", "grpo@a@b", False),
        ("rlm_rewards", "accuracy@trl", False),
    ],
)
def test_only_algorithms_have_conventions(hook: str, name: str, sound: bool) -> None:
    if sound:
        assert validated_parts("acme", hook, "acme.py", {name: None})
        return
    with pytest.raises(PluginError, match="registers a part called"):
        validated_parts("acme", hook, "acme.py", {name: None})


def test_plugin_list_keeps_conventions_below_their_algorithm() -> None:
    text = plugin_list.render(plugin_list.plugins(REGISTRY)).splitlines()
    at = next(n for n, line in enumerate(text) if line.split()[:1] == ["grpo"])
    assert text[at + 1].split()[:3] == ["@trl", "@verl", "@openrlhf"]
    assert folded([("a@x", "alone")]) == [("a@x", "alone")]


CANNED = f"""
environment: {{name: addition, digits: 2, test_rows: 0}}
rewards: [digits]
model: {{name: scratch, hidden: 16, heads: 2, intermediate: 16}}
plugins: {{load: [{Path(__file__).parent / "fake_rollouts.py"}]}}
algorithm: {{name: grpo, rollouts: [canned], penalties: none, filters: [{{name: keep_k, k: 3}}]}}
trainer: {{max_steps: 1, per_device_train_batch_size: 2, gradient_accumulation_steps: 4, num_generations: 4,
          max_completion_length: 16, save_strategy: "no"}}
"""


@pytest.mark.slow
def test_trainer_counts_completions_without_tokens(tmp_path: Path) -> None:
    """A filter drops every fourth completion: counting them leaves three quarters of the first step's gradient."""
    (tmp_path / "canned.yaml").write_text(CANNED)
    norms = {}
    for name in ("excluded", "included"):
        override = f"algorithm.aggregator.empty_completions={name}"
        run = launch(tmp_path / "canned.yaml", [override], out=tmp_path / name)
        (norms[name],) = (record["grad_norm"] for record in run.records() if "grad_norm" in record)
    assert norms["included"] == pytest.approx(norms["excluded"] * 3 / 4, rel=1e-4)
