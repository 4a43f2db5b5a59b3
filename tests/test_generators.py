"""Generators of a recipe: in training, beside rollout sources, and in evaluation."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import yaml
from datasets import Dataset
from fixtures_trainer import REGISTRY, clipped, trainer
from rlm_fast import fast
from rlm_fast.speed import NO_SPEED, Speed
from rlm_fast.speed_report import fast_path_lines, generation_lines
from test_fast_paths import weights
from transformers import GPT2Config, GPT2LMHeadModel
from trl import GRPOTrainer

from rlm_plugins import recipe
from rlm_plugins.errors import PartError, RecipeError
from rlm_plugins.evaluation.held_out import evaluate
from rlm_plugins.recipe.compose import compose, resolved
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound, Part
from rlm_plugins.rollout.collector import RolloutCollector
from rlm_plugins.rollout.generator_call import Generation, generate
from rlm_plugins.stage import Reward
from rlm_plugins.trainer import EquationTrainer
from rlm_plugins.trainer.options import arguments

PORTABLE = REGISTRY.find("rlm_generators", "fast").bind({})
TWO_STEPS = {"steps_per_generation": 4, "gradient_accumulation_steps": 2}
"""Two optimizer steps of a generation."""


def part(target: Any) -> Bound:
    return Part("rlm_generators", "guest", "test", target).bind({})


def trained(folder: Path, generator: Bound | None, speed: Speed = NO_SPEED, **changes: Any) -> EquationTrainer:
    """Train three steps with G = 4."""
    pieces = {"generator": generator, "speed": speed, **changes.pop("pieces", {})}
    equation_trainer = trainer(folder, changes.pop("equation", None), pieces=pieces, **{"max_steps": 3, **changes})
    equation_trainer.train()
    return equation_trainer


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Count the calls of the decode loop and of TRL's forward passes without gradient."""
    counted = {"written": 0, "read": 0}
    write, read = fast.fast_generate, GRPOTrainer._get_per_token_logps_and_entropies

    def writing(*given: Any, **options: Any) -> Any:
        counted["written"] += 1
        return write(*given, **options)

    def reading(*given: Any, **options: Any) -> Any:
        counted["read"] += not torch.is_grad_enabled()
        return read(*given, **options)

    monkeypatch.setattr(fast, "fast_generate", writing)
    monkeypatch.setattr(GRPOTrainer, "_get_per_token_logps_and_entropies", reading)
    return counted


# ------------------------------------------------------------------ training


def test_a_run_is_the_same_to_the_bit(tmp_path: Path, calls: dict[str, int]) -> None:
    short_cuts = replace(NO_SPEED, padding_free=True, skip_zero_advantage=True, group_micro_batches=True)
    slow, fast = trained(tmp_path, None, short_cuts), trained(tmp_path, PORTABLE, short_cuts)
    assert calls["written"] == 3
    assert torch.equal(weights(slow), weights(fast))
    assert "generate" not in vars(fast.model)


def test_generate_of_the_model_is_restored(tmp_path: Path) -> None:
    equation_trainer = trainer(tmp_path, pieces={"generator": PORTABLE}, max_steps=1)
    usual = equation_trainer.model.generate
    equation_trainer.model.generate = own = lambda **options: usual(**options)
    equation_trainer.train()
    assert equation_trainer.model.generate is own


def test_rollout_sources_use_the_generator(tmp_path: Path, calls: dict[str, int]) -> None:
    greedy = [replace(REGISTRY.find("rlm_rollouts", "greedy").bind({}), options={"num_completions": 1})]
    slow, fast = (
        trained(tmp_path, generator, max_steps=1, pieces={"collector": RolloutCollector(greedy, 4)})
        for generator in (None, PORTABLE)
    )
    assert calls["written"] == 2, "greedily, and as ever"
    assert torch.equal(weights(slow), weights(fast))


def test_recorded_logprobs_become_old_logprobs(tmp_path: Path, calls: dict[str, int]) -> None:
    """A generation of two optimizer steps has no extra forward pass, and equal weights."""
    settings: dict[str, Any] = {**TWO_STEPS, "max_steps": 4}
    slow = trained(tmp_path, PORTABLE, **settings)
    passes = calls["read"]
    fast = trained(tmp_path, PORTABLE, replace(NO_SPEED, reuse_old_logprobs=True), **settings)
    assert passes > 0
    assert calls["read"] == passes + 2, "of a made-up row, here and there"
    assert fast.components.generation.recorded
    start = weights(trained(tmp_path, None, max_steps=1, learning_rate=0.0))
    moved = (weights(slow) - start).norm()
    assert (weights(fast) - weights(slow)).norm() < 1e-4 * moved


def test_recorded_entropy_is_used_for_scoring(tmp_path: Path, calls: dict[str, int]) -> None:
    seen: list[torch.Tensor] = []

    def certain(rewards: torch.Tensor, entropy: torch.Tensor) -> torch.Tensor:
        seen.append(entropy)
        return rewards

    shaper = Part("rlm_shapers", "certain", "test", certain).bind({})
    for speed in (NO_SPEED, replace(NO_SPEED, reuse_old_logprobs=True)):
        trained(tmp_path, PORTABLE, speed, equation=clipped(shapers=[shaper]), max_steps=1)
    assert calls["read"] == 1 + 2, "by a pass, and then by none but those of a made-up row"
    assert torch.allclose(seen[0], seen[1], atol=1e-5)
    assert seen[0].any()


def with_learned_positions() -> Any:
    torch.manual_seed(3)
    sizes = {"vocab_size": len(tiny.tokenizer()), "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64}
    ends = {"bos_token_id": None, "eos_token_id": 1, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return GPT2LMHeadModel(GPT2Config(**sizes, **ends, initializer_range=0.3))


@pytest.mark.parametrize(
    ("pieces", "settings"),
    [
        ({"model": with_learned_positions, "peft_config": lambda: None}, {}),
        ({}, {"generation_kwargs": {"temperature": 0.5}}),
        ({}, {"generation_kwargs": {"do_sample": False}, "temperature": 0.5}),
    ],
    ids=["learned positions", "another temperature", "greedy"],
)
def test_recorded_logprobs_are_not_used_if_a_pass_would_differ(
    tmp_path: Path, pieces: dict[str, Any], settings: dict[str, Any]
) -> None:
    settings = {**TWO_STEPS, "max_steps": 1, **settings}
    reported = []
    for speed in (NO_SPEED, replace(NO_SPEED, reuse_old_logprobs=True)):
        built = {name: make() for name, make in pieces.items()}
        prompts = Dataset.from_dict({"prompt": ["1+2=", "3+4+5+6=", "7="] * 8})
        data = {"train_dataset": prompts}
        reported.append(trained(tmp_path, PORTABLE, speed, pieces={**data, **built}, **settings))
    slow, fast = reported
    assert not fast.components.generation.recorded
    assert torch.equal(weights(slow), weights(fast))


def test_no_logprobs_are_recorded_in_other_precisions(tmp_path: Path, calls: dict[str, int]) -> None:
    """In other precisions the log-probs of decoding differ from those of a forward pass."""
    settings: dict[str, Any] = {**TWO_STEPS, "max_steps": 1, "bf16": True}
    equation_trainer = trained(tmp_path, PORTABLE, replace(NO_SPEED, reuse_old_logprobs=True), **settings)
    assert calls["written"] == 1
    assert calls["read"] > 0
    assert not equation_trainer.components.generation.recorded


# ------------------------------------------------------------------ judging


def test_evaluation_uses_the_generator(calls: dict[str, int]) -> None:
    rows = [dict(row) for row in tiny.problems(9)]
    reward = Reward("length", Part("rlm_rewards", "length", "test", length).bind({}))
    reports = [
        evaluate(
            tiny.model().eval(),
            tiny.tokenizer(),
            rows,
            [reward],
            metric="length",
            batch_size=4,
            max_new_tokens=9,
            generator=generator,
        )
        for generator in (None, PORTABLE)
    ]
    assert calls["written"] == 3
    assert reports[0] == reports[1]


def length(completions: list[str]) -> list[float]:
    return [float(len(text)) for text in completions]


# ------------------------------------------------------------------ generators of plugins


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (lambda ids: ids[:1], "got a tensor of shape (1, 2)"),
        (lambda ids: ids.float(), "got a tensor of shape (2, 2)"),
        (lambda ids: ids.tolist(), "got list"),
        (lambda ids: ids + 1, "expected the prompts before the completions"),
        (lambda ids: ids[:, :1], "expected the prompts before the completions"),
        (lambda ids: Generation(ids, torch.zeros(2, 1)), "expected `logp` of shape (2, 0), got (2, 1)"),
        (lambda ids: ids / 0 + {}, "failed: TypeError"),
    ],
)
def test_outputs_that_do_not_continue_the_prompt_are_rejected(answer: Any, problem: str) -> None:
    def guest(inputs: Any) -> Any:
        return answer(inputs["input_ids"])

    with pytest.raises(PartError, match="part 'test/guest'") as caught:
        generate(part(guest), None, None, {"input_ids": torch.tensor([[3, 4], [5, 6]])}, None)  # type: ignore[arg-type]
    assert problem in str(caught.value)


# ------------------------------------------------------------------ recipes

BASE: dict[str, Any] = {
    "model": "scratch",
    "environment": {"name": "addition", "digits": 2, "train_rows": 64, "test_rows": 8},
    "rewards": ["accuracy"],
    "algorithm": "grpo",
}


def composed(folder: Path, **changed: Any) -> tuple[Any, Any]:
    file = folder / "recipe.yaml"
    file.write_text(yaml.safe_dump({**BASE, **changed}))
    loaded = recipe.load(file)
    return loaded, compose(loaded, Registry(load=loaded.load, block=loaded.block), build_environment=False)


def test_recipe_without_rlm_fast_decodes_with_transformers(tmp_path: Path) -> None:
    loaded, (stage,) = composed(tmp_path, plugins={"block": ["fast"]})
    assert stage.generator.part.name == "transformers"
    assert resolved([stage], loaded)["generator"] == {"name": "transformers"}
    assert generation_lines(stage, arguments(stage)) == ["generation: `transformers`"]


@pytest.mark.parametrize("name", ["fast", "fast/fast"])
def test_missing_package_is_an_error_only_if_its_generator_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: [])
    _, (stage,) = composed(tmp_path)
    assert stage.generator.part.name == "transformers"
    with pytest.raises(RecipeError, match="requires the package rlm-fast, which is not installed") as caught:
        composed(tmp_path, generator={"name": name, "merge": False})
    assert caught.value.where.startswith("generator")
    assert "pip install ./plugins/rlm-fast" in caught.value.hint


NO_FAST = {"generator": "transformers"}
OWN = "a pass of their own (a part needs them for scoring)"
SEVERAL = {"per_device_train_batch_size": 8, "steps_per_generation": 4, "num_generations": 8, "max_steps": 1}
DROPOUT = {"name": "scratch", "lora": {"lora_dropout": 0.1}}


@pytest.mark.parametrize(
    ("changed", "reported"),
    [
        ({"algorithm": "grpo", "speed": {"reuse_old_logprobs": True}, "trainer": SEVERAL}, "recorded during decoding"),
        ({"algorithm": "grpo", "speed": {"reuse_old_logprobs": True}, "trainer": SEVERAL, **NO_FAST}, "own"),
        ({}, "recorded during decoding"),
        (NO_FAST, OWN),
        ({"trainer": {"num_iterations": 2}}, "recorded during decoding"),
        ({"model": DROPOUT}, OWN),
    ],
)
def test_check_reports_the_source_of_old_logprobs(tmp_path: Path, changed: dict[str, Any], reported: str) -> None:
    """`reinforce_pp` has its KL in the reward, so it requires old log-probs; with dropout transformers generates."""
    loaded, _ = composed(tmp_path, **{"algorithm": "reinforce_pp", **changed})
    (stage,) = compose(loaded, Registry())
    lines = fast_path_lines(stage, arguments(stage))
    assert reported in next(line for line in lines if line.startswith("old log-probs: "))


def test_vllm_settings_reach_trl(tmp_path: Path) -> None:
    loaded, (stage,) = composed(tmp_path, generator="vllm", trainer={"vllm_mode": "colocate"})
    assert stage.settings == {"vllm_mode": "colocate", "use_vllm": True, "engine_check": True}
    assert stage.engine.part.full_name == "engines/vllm"
    assert loaded.origins["trainer.use_vllm"] == "generator vllm"


@pytest.mark.parametrize("changed", [{"generator": "vllm"}, {"trainer": {"use_vllm": True}}])
def test_missing_vllm_error_has_a_hint(
    tmp_path: Path, changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, (stage,) = composed(tmp_path, **changed)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RecipeError, match="not installed") as caught:
        stage.engine.target.check(lora=None)
    (command,) = re.findall("`rlm check RECIPE (.*)`", caught.value.hint)
    (stage,) = compose(recipe.load(tmp_path / "recipe.yaml", command.split()), Registry(), build_environment=False)
    assert stage.engine is None


@pytest.mark.parametrize(
    ("changed", "where", "problem"),
    [
        ({"generator": "vllm", "trainer": {"use_vllm": False}}, "trainer.use_vllm", "requires `use_vllm: True`"),
        ({"generator": "portabel"}, "generator", "fast"),
        ({"generator": {"name": "fast", "sampling": "cdf"}}, "generator.sampling", "inverse_cdf"),
        ({"generator": "fast", "algorithm": "reward_model", "rewards": []}, "generator", "generates nothing"),
    ],
)
def test_contradictory_recipes_are_rejected(tmp_path: Path, changed: dict[str, Any], where: str, problem: str) -> None:
    with pytest.raises(RecipeError) as caught:
        composed(tmp_path, **changed)
    assert where in str(caught.value)
    assert problem in str(caught.value)
