"""The fast paths of the trainer: the same samples, losses and weights with them and without."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from fixtures_critic import critic
from fixtures_equations import equation_of
from fixtures_trainer import trainer
from repetition import one_in
from rlm_fast import fused_layers as lora
from rlm_fast import linear_layers
from rlm_fast.features import LOAD_BALANCING, speed_of
from rlm_fast.speed import NO_SPEED, Speed
from rlm_fast.speed_report import fast_path_lines
from rlm_fast.token_budget import zero_advantage_has_no_gradient
from test_every_algorithm import BATCHES
from transformers import MixtralConfig
from trl import GRPOTrainer

from rlm_plugins import recipe
from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.equation import Equation
from rlm_plugins.equation.knobs import Schedule
from rlm_plugins.equation.step import objective
from rlm_plugins.errors import PartError, RecipeError
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Part
from rlm_plugins.trainer import EquationTrainer
from rlm_plugins.trainer.options import arguments

REGISTRY = Registry()
ALL = Speed(
    padding_free=True,
    skip_zero_advantage=True,
    group_micro_batches=True,
    reuse_old_logprobs=True,
    merge_micro_batches=True,
    fused_lora=True,
    max_tokens_per_micro_batch="auto",
)
ROWS = sorted(
    part.name
    for part in REGISTRY
    if part.hook == "rlm_algorithms" and "@" not in part.name and part.target.trainer == "grpo"
)
SPOKEN = {"reward", "advantage/abs_mean", "advantage/std", "completions/mean_length"}
SPOKEN |= {"loss", "grad_norm", "critic/value"}


@pytest.fixture(autouse=True)
def _no_layer_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fuse the layers of small models as those of large ones."""
    monkeypatch.setattr(lora, "MIN_PRODUCTS", 0)


def seldom(completions: list[str]) -> list[float]:
    """Return 1 for a text with an `a`: some groups are all ones or all zeros."""
    return [float("a" in text[:4]) for text in completions]


def trained(folder: Path, row: str, speed: Speed, **changes: Any) -> EquationTrainer:
    """Train an algorithm for three steps."""
    equation = equation_of(row, **changes.pop("slots", {}))
    settings = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2, "max_steps": 3}
    settings |= {"learning_rate": 1e-3, "beta": float(equation.requires("ref_logp"))}
    kind = changes.pop("critic", None)
    pieces = {"speed": speed, "critic": kind and critic(kind)}
    equation_trainer = trainer(folder, equation, seldom, tiny.problems(16), pieces=pieces, **{**settings, **changes})
    equation_trainer.train()
    return equation_trainer


def weights(equation_trainer: EquationTrainer) -> torch.Tensor:
    return torch.cat([x.detach().flatten() for x in equation_trainer.model.parameters() if x.requires_grad])


def compared(folder: Path, row: str, fast: Speed = ALL, **changes: Any) -> list[dict[str, float]]:
    """Train with and without fast paths, require equal results, and return the logs of the fast run."""
    slow, quick = trained(folder, row, NO_SPEED, **changes), trained(folder, row, fast, **changes)
    start = weights(trained(folder, row, NO_SPEED, **{**changes, "max_steps": 1, "learning_rate": 0.0}))
    moved = weights(slow) - start
    assert moved.norm() > 0.01
    assert (weights(quick) - weights(slow)).norm() < 5e-4 * moved.norm()
    for one, other in zip(slow.state.log_history, quick.state.log_history, strict=True):
        for name in SPOKEN & one.keys():
            assert other[name] == pytest.approx(one[name], rel=2e-4, abs=2e-6), name
    return [line for line in quick.state.log_history if "loss" in line]


@pytest.mark.parametrize("row", ["dr_grpo", "gspo"])
def test_zero_advantage_completions_are_skipped(tmp_path: Path, row: str) -> None:
    assert any(0 < line["speed/skipped"] < 1 for line in compared(tmp_path, row))


def test_terms_over_all_completions_disable_skipping(tmp_path: Path) -> None:
    """With a KL penalty the forward pass is padding-free, but nothing is skipped."""
    assert not any("speed/skipped" in line for line in compared(tmp_path, "grpo"))


def test_several_updates_per_generation(tmp_path: Path) -> None:
    compared(tmp_path, "cispo", num_iterations=2, steps_per_generation=4, max_steps=4)


def test_small_budget_splits_micro_batches(tmp_path: Path) -> None:
    """There are more parts than micro-batches; old log-probs of the first pass stay with their completions."""
    small = replace(ALL, max_tokens_per_micro_batch=24)
    compared(tmp_path, "cispo", fast=small, num_iterations=2, max_steps=4)


@pytest.mark.parametrize("products", [0, 2**30])
def test_small_micro_batches_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, products: int) -> None:
    """None or all micro-batches of a step are merged."""
    monkeypatch.setattr(linear_layers, "PRODUCTS", products)
    monkeypatch.setattr(linear_layers, "MERGED_TOKENS", 0)
    compared(tmp_path, "cispo", fast=replace(ALL, max_tokens_per_micro_batch=None), num_iterations=2, max_steps=4)


def test_old_log_probabilities_are_those_of_the_first_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are equal to the bit, with one pass fewer per generation; a pass over a single sequence is a self-check."""
    passes = []
    whole = GRPOTrainer._get_per_token_logps_and_entropies
    counted = lambda *a, **k: (passes.extend([1] * (len(a[2]) > 1)), whole(*a, **k))[1]  # noqa: E731
    monkeypatch.setattr(GRPOTrainer, "_get_per_token_logps_and_entropies", counted)
    settings = {"num_iterations": 3, "max_steps": 6}
    slow = trained(tmp_path, "cispo", NO_SPEED, **settings)
    before = len(passes)
    fast = trained(tmp_path, "cispo", replace(NO_SPEED, reuse_old_logprobs=True), **settings)
    assert torch.equal(weights(slow), weights(fast))
    generations = 2
    assert before - (len(passes) - before) == generations


def test_truncated_completions_have_no_gradient(tmp_path: Path) -> None:
    compared(tmp_path, "dr_grpo", mask_truncated_completions=True, max_completion_length=6)


def test_checkpointing(tmp_path: Path) -> None:
    compared(tmp_path, "dr_grpo", gradient_checkpointing=True)


@pytest.mark.parametrize(("kind", "tokens"), one_in(3, [("shared", 40), ("head", 40), ("separate", "auto")]))
def test_critic_supports_padding_free_passes(tmp_path: Path, kind: str, tokens: Any) -> None:
    """It learns from every portion of a micro-batch."""
    logged = compared(tmp_path, "orz", fast=replace(ALL, max_tokens_per_micro_batch=tokens), critic=kind, max_steps=2)
    assert not any("speed/skipped" in line for line in logged)
    assert any(line["critic/value"] for line in logged)


# ------------------------------------------------------------------ who may be skipped

KEEP_ALL = {
    "grpo": "KL",
    "gfpo": "KL and entropy",
    "clip_cov": "covariances",
    "kl_cov": "covariances",
    "sft": "imitates whatever it is shown",
}


LABELS = ("greedy", "demonstrations", "replay")


def without_advantage(number: int) -> tuple[Batch, torch.Tensor]:
    """Return one of the batches with a group without advantage, and the mask of its completions."""
    batch = BATCHES[number]
    dead = batch.group == batch.group[0]
    return replace(batch, advantages=batch.advantages[:, :1].where(~dead.unsqueeze(1), 0.0)), dead


def gradient(batch: Batch, symbols: Equation) -> torch.Tensor:
    logp = batch.logp.detach().requires_grad_()
    return torch.autograd.grad(objective(replace(batch, logp=logp), symbols), logp)[0]


@pytest.mark.parametrize("name", ROWS)
def test_skipped_completions_have_no_gradient(name: str) -> None:
    """If the check finds no gradient of zero-advantage completions, they have none on random batches."""
    symbols = equation_of(name)
    verdict = zero_advantage_has_no_gradient(symbols, 0, LABELS)
    assert not (verdict and name in KEEP_ALL), KEEP_ALL.get(name)
    for seed in range(1, 4 if verdict else 1):
        batch, dead = without_advantage(-seed)
        muted = batch.old_logp.where(dead.unsqueeze(1), batch.logp)
        read, left_out = gradient(batch, symbols), gradient(replace(batch, logp=muted), symbols)
        assert not read[dead].any()
        torch.testing.assert_close(left_out[~dead], read[~dead], rtol=0, atol=0)


def test_algorithms_without_other_terms_skip_completions() -> None:
    for name in ("reinforce", "rloo", "dr_grpo", "dapo", "gspo", "gmpo", "cispo", "gppo", "ce_gppo"):
        assert zero_advantage_has_no_gradient(equation_of(name), 0), name


@pytest.mark.parametrize("threshold", [-2.0, 0.5, 1.0, 5.0])
def test_term_of_correct_completions_disables_skipping(threshold: float) -> None:
    """A group of correct completions has zero advantage, but this term has a gradient on it."""
    imitates = replace(REGISTRY.find("rlm_penalties", "nll").bind({}), options={"beta": 0.1, "min_reward": threshold})
    assert not zero_advantage_has_no_gradient(equation_of("dr_grpo", penalties=[imitates]), 0)


def test_term_of_truncated_completions_disables_skipping() -> None:
    def regrets(logp: torch.Tensor, truncated: torch.Tensor) -> torch.Tensor:
        return logp * truncated.unsqueeze(1)

    regret = replace(Part("rlm_penalties", "regrets", "test", regrets).bind({}), options={"beta": 0.1})
    assert not zero_advantage_has_no_gradient(equation_of("dr_grpo", penalties=[regret]), 0)


def test_a_loss_on_another_device_is_taken_for_one_that_sees_them() -> None:
    """The check runs on the CPU; the device `meta` exists on every machine."""

    there = torch.ones(1, 1, device="meta")

    def elsewhere(logp: torch.Tensor) -> torch.Tensor:
        return logp * there

    part = Part("rlm_policy_losses", "elsewhere", "test", elsewhere)
    with pytest.raises(PartError, match="elsewhere"):
        objective(BATCHES[-1], replace(equation_of("dr_grpo"), policy_loss=part.bind({})))
    assert not zero_advantage_has_no_gradient(replace(equation_of("dr_grpo"), policy_loss=part.bind({})), 0)


def test_schedule_counts_only_while_its_coefficient_is_not_zero() -> None:
    late = replace(REGISTRY.find("rlm_penalties", "entropy").bind({}), options={"beta": Schedule(0.0, 0.1, over=10)})
    symbols = equation_of("dr_grpo", penalties=[late])
    assert zero_advantage_has_no_gradient(symbols, 0)
    assert not zero_advantage_has_no_gradient(symbols, 5)


def test_a_coefficient_that_comes_between_two_passes_finds_the_old_policy(tmp_path: Path) -> None:
    """The second pass over a generation has no old log-probs of completions that the first one skipped."""
    late = replace(REGISTRY.find("rlm_penalties", "kl_old").bind({}), options={"beta": Schedule(0.0, 5.0, over=1)})
    compared(tmp_path, "dr_grpo", num_iterations=2, max_steps=4, slots={"penalties": [late]})


# ------------------------------------------------------------------ the lines of rlm check

EACH = "padding_free skip_zero_advantage group_micro_batches reuse_old_logprobs merge_micro_batches "
EACH += "fused_lora tune_kernels"
OFF = f"speed={{{', '.join(f'{name}: false' for name in EACH.split())}, max_tokens_per_micro_batch: null}}"
RECIPE = """
environment: {name: addition, digits: 2, test_rows: 4}
rewards: [accuracy]
model: {name: scratch, hidden: 16, heads: 2, intermediate: 16, lora: {r: 4}}
algorithm: dr_grpo
trainer: {per_device_train_batch_size: 8, num_generations: 4, gradient_accumulation_steps: 2}
"""


def stage_of(folder: Path, *overrides: str, text: str = RECIPE, build: bool = True) -> Any:
    (folder / "recipe.yaml").write_text(text)
    (stage,) = compose(recipe.load(folder / "recipe.yaml", overrides), REGISTRY, build_environment=build)
    return stage


EXPERTS = {"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": 1}


@pytest.mark.parametrize(
    ("override", "lines_expected"),
    [
        ("speed.padding_free=true speed.skip_zero_advantage=true speed.group_micro_batches=true",
            "padding-free | skipped in the update | grouped by prompt"),
        ("speed.group_micro_batches=true", "`speed.padding_free` is off | `speed.skip_zero_advantage` is off | "
            "shuffled by TRL (forward passes are padded)"),
        ("algorithm=grpo", "padding-free | still a gradient in kl | grouped by prompt | merged up to"),
        ("trainer.num_iterations=2", "padding-free | skipped in the update | grouped by prompt | merged up to | "
            "from the first pass over a generation"),
        ("trainer.steps_per_generation=3",
            "padding-free | skipped in the update | an optimizer step spans generations | recorded during decoding"),
        ("speed.padding_free=true speed.group_micro_batches=true speed.max_tokens_per_micro_batch=500",
            "padding-free | `speed.skip_zero_advantage` is off | grouped by prompt | "
            "500 tokens, each prompt counted once"),
        ("model.lora.lora_dropout=0.1 trainer.num_iterations=2",
            "dropout is on | part of the update (forward passes are padded) | shuffled by TRL | "
            "a pass of their own (dropout is on"),
    ],
)  # fmt: skip
def test_check_lists_the_active_fast_paths(tmp_path: Path, override: str, lines_expected: str) -> None:
    fused = "`speed.fused_lora` is off" if override.startswith("speed") else "fused linear"
    fused = "`lora_dropout` is set" if "dropout" in override else fused
    off = OFF if override.startswith("speed") else "speed={}"
    stage = stage_of(tmp_path, off, *override.split())
    lines = fast_path_lines(stage, arguments(stage))
    first, *others = lines_expected.split(" | ")
    assert all(part in line for part, line in zip([first, fused, *others], lines, strict=True)), lines


@pytest.mark.parametrize(
    ("override", "lines_expected"),
    [
        ("model.lora.target_modules=[embed_tokens]", "none of its layers is plain"),
        ("model.lora.init_lora_weights=mica", "none of its layers is plain"),
        ("model.lora.use_dora=true", "`use_dora` is set"),
        ("trainer.torch_compile=true", "`torch_compile` compiles the products"),
        ("trainer.fp16=true", "products are in float16"),
    ],
)
def test_check_explains_why_lora_is_not_fused(tmp_path: Path, override: str, lines_expected: str) -> None:
    stage = stage_of(tmp_path, override)
    assert lines_expected in next(
        line
        for line in fast_path_lines(stage, arguments(stage))
        if line.startswith("LoRA in the update: layers of PEFT")
    )


@pytest.mark.parametrize(
    ("config", "override", "balanced"),
    [
        (MixtralConfig(**EXPERTS), "null", True),
        (MixtralConfig(**EXPERTS), "0.0", False),
        (MixtralConfig(**EXPERTS, router_aux_loss_coef=0.0), "null", False),
        (MixtralConfig(**EXPERTS, router_aux_loss_coef=0.0), "0.1", True),
    ],
)
def test_check_accounts_for_expert_load_balancing(
    tmp_path: Path, config: MixtralConfig, override: str, balanced: bool
) -> None:
    """The coefficient is set by the recipe, otherwise by the model's config."""
    stage = stage_of(tmp_path, f"trainer.router_aux_loss_coef={override}", "model.lora.target_modules=[q_proj]")
    stage.source.config = config
    lines = fast_path_lines(stage, arguments(stage))
    assert (f"forward passes: padded ({LOAD_BALANCING})" in lines) is balanced, lines
    assert ("micro-batches: shuffled by TRL (forward passes are padded)" in lines) is balanced, lines


@pytest.mark.parametrize(
    ("setting", "allowed"),
    [
        ("max_tokens_per_micro_batch=foo", "a whole number or 'auto'"),
        ("max_tokens_per_micro_batch=-3", "1 or more or 'auto'"),
        ("padding_free=1", "true or false"),
    ],
)
def test_a_key_of_another_type_is_refused(tmp_path: Path, setting: str, allowed: str) -> None:
    with pytest.raises(RecipeError) as caught:
        stage_of(tmp_path, f"speed.{setting}", build=False)
    assert caught.value.where.startswith(f"speed.{setting.partition('=')[0]} (")
    assert f"expected {allowed}, got " in caught.value.problem


@pytest.mark.parametrize(("override", "taken"), [("none", NO_SPEED), ("null", NO_SPEED), ("{}", Speed())])
def test_none_disables_and_empty_enables_all_fast_paths(tmp_path: Path, override: str, taken: Speed) -> None:
    assert speed_of(stage_of(tmp_path, f"speed={override}", build=False)) == taken


def test_trainer_with_its_own_loss_has_no_fast_paths(tmp_path: Path) -> None:
    text = RECIPE.replace("algorithm: dr_grpo", "algorithm: sft").split("trainer:")[0]
    with pytest.raises(RecipeError, match=r"speed (.|\n)*does not support"):
        stage_of(tmp_path, text=text + "speed: {padding_free: true}\n")
