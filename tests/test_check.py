"""`rlm check` of a stage: parts, required and available data, memory, and knobs that contradict `trainer:`."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from rlm_fast import speed_report
from rlm_fast import workload as loads
from rlm_fast.speed_report import size
from rlm_fast.workload import machine_memory, workload
from transformers import MistralConfig
from typer.testing import CliRunner

from rlm_plugins.cli import app
from rlm_plugins.equation.batch import Batch
from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.compose import compose
from rlm_plugins.report.check_report import SUPPLIERS, examine, render
from rlm_plugins.run.recipe_argument import read
from rlm_plugins.trainer.options import arguments

RECIPE = """
environment: {name: addition, digits: 2, train_rows: 64, test_rows: 8}
rewards: [accuracy, {name: length, as: short, weight: 0.5}]
evaluation: {metric: accuracy, rows: 6, max_new_tokens: 9}
stages:
  - model: {name: scratch, hidden: 32}
    algorithm: sft
    trainer: {max_steps: 3, per_device_train_batch_size: 2, gradient_checkpointing: false}
  - algorithm: {name: grpo, filters: [{name: nonzero_std, reward: accuracy}]}
    model: {lora: {r: 4, target_modules: all-linear}}
    trainer: {per_device_train_batch_size: 8, num_generations: 4, max_completion_length: 12, optim: adamw_8bit}
"""

SIZES = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
}


def stages(folder: Path, *overrides: str, text: str = RECIPE) -> tuple[list[Any], Any]:
    (folder / "recipe.yaml").write_text(text)
    recipe, registry = read(folder / "recipe.yaml", overrides)
    return compose(recipe, registry), registry


@pytest.fixture(scope="module")
def examined(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    found, registry = stages(tmp_path_factory.mktemp("check"))
    return [examine(stage, registry) for stage in found]


def test_every_part_with_its_package_and_file(examined: list[dict[str, Any]]) -> None:
    sft, grpo = examined
    assert [(p["slot"], p["name"]) for p in sft["parts"]] == [
        ("environment", "addition"),
        ("generator", "fast"),
        ("rewards", "accuracy"),
        ("rewards", "length"),
        ("algorithm", "sft"),
        ("trainer", "sft"),
        ("model", "scratch"),
        ("section", "capsule"),
        ("section", "diagnosis"),
        ("section", "memory"),
    ]
    slots = [p["slot"] for p in grpo["parts"]]
    assert slots[4:9] == ["filters", "advantage", "importance", "policy_loss", "penalties"]
    assert all(Path(p["file"]).is_file() for stage in examined for p in stage["parts"])
    origins = {f"{name} 0.1.0" for name in ("rlm-plugins", "rlm-audit", "rlm-fast", "rlm-lab", "rlm-view")}
    assert {p["origin"] for p in grpo["parts"]} == origins


def test_needs_and_supplies(examined: list[dict[str, Any]]) -> None:
    sft, grpo = ({d["name"]: d for d in stage["data"]} for stage in examined)
    assert sft["demonstration"] == {"name": "demonstration", "needed_by": ["sft"], "supplied_by": "column of addition"}
    assert grpo["answer"]["supplied_by"] == "column of addition"
    assert grpo["completion_ids"]["needed_by"] == ["length"]
    assert grpo["ratio"] == {"name": "ratio", "needed_by": ["clip", "kl"], "supplied_by": "the importance part"}
    assert "one more forward pass" in grpo["ref_logp"]["supplied_by"]
    assert "log" not in grpo


def test_every_field_of_the_batch_has_a_supplier() -> None:
    named = {f.name for f in fields(Batch)}
    assert set(SUPPLIERS) <= named
    from_the_trainer = named - set(SUPPLIERS)
    counts = {"num_tokens", "num_sequences", "num_sequences_all", "num_micro_batches"}
    rest = {"group", "mask", "truncated", "max_completion_length", "log", "step", "step_batch_rows"}
    masks = {"keep_mask", "counts_for_refill", "term_counts"}
    tokens = {"prompt_ids", "completion_ids", "tokenizer"}
    assert from_the_trainer == counts | rest | masks | tokens, "a new field of the batch needs a supplier"


def test_the_objective_of_each_stage(examined: list[dict[str, Any]]) -> None:
    sft, grpo = examined
    assert sft["objective"].startswith("that of its trainer: Supervised fine-tuning")
    assert "0.04 Ω" in grpo["objective"]
    assert list(grpo["legend"][-1]) == ["r", "1 accuracy + 0.5 short", ""]


def test_the_load(tmp_path: Path) -> None:
    (sft, grpo), _ = stages(tmp_path)
    tokens = sft.source.tokenizer()
    texts = [
        tokens.apply_chat_template(r["prompt"], tokenize=False, add_generation_prompt=True)
        for r in sft.environment_spec.train
    ]
    prompt = max(len(tokens(text, add_special_tokens=False)["input_ids"]) for text in texts)
    demonstrations = max(len(tokens(row["demonstration"])["input_ids"]) + 1 for row in sft.environment_spec.train)
    first, second = workload(sft, arguments(sft)), workload(grpo, arguments(grpo))
    assert (first.prompt_len, first.completion_len, first.micro_batch_size) == (prompt, demonstrations, 2)
    assert (second.prompt_len, second.completion_len, second.micro_batch_size) == (prompt, 12, 8)
    assert (first.generated, second.generated) == (6, 8), "an evaluation writes rows too"
    assert (first.checkpointing, second.checkpointing) == (False, False), "a step fits without"
    assert (first.optimizer_state, second.optimizer_state) == (2.0, 0.5)
    assert not second.reference, "with an adapter the reference is the base"


def test_tokenizer_that_cannot_encode_the_data_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="the tokenizer has no token for"):
        stages(tmp_path, "stages.0.model.characters='+=abc'")


def test_a_reference_is_held_when_all_weights_are_trained(tmp_path: Path) -> None:
    (_, grpo), _ = stages(tmp_path, "stages.1.model={lora: null}")
    assert workload(grpo, arguments(grpo)).reference


def test_checkpointing_is_on_where_a_step_would_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (sft, grpo), registry = stages(tmp_path)
    entry = examine(grpo, registry)["memory"]
    assert "checkpointing is off: a step needs less than 80% of this machine" in render(examine(grpo, registry))
    monkeypatch.setattr(loads, "machine_memory", lambda: entry["peak"])
    assert "checkpointing is on: a step without it might not fit" in render(examine(grpo, registry))
    assert workload(grpo, arguments(grpo)).checkpointing
    assert "checkpointing is" not in render(examine(sft, registry)), "the recipe says it"
    assert not workload(sft, arguments(sft)).checkpointing
    monkeypatch.setattr(loads, "machine_memory", lambda: entry["peak"] / 0.79)
    assert not workload(grpo, arguments(grpo)).checkpointing
    monkeypatch.setattr(loads, "estimate", None)
    assert workload(grpo, arguments(grpo)).checkpointing, "an unknown model is assumed to use it"


def test_batch_size_is_reported(tmp_path: Path) -> None:
    """Padding-free, 8 completions in groups of 4 are two prompts; a token budget merges more of them."""
    none = (
        "stages.1.speed={padding_free: false, group_micro_batches: false, merge_micro_batches: false, "
        "max_tokens_per_micro_batch: null}"
    )
    packed, dealt, budget = (
        f"stages.1.speed.{x}"
        for x in ("padding_free=true", "group_micro_batches=true", "max_tokens_per_micro_batch=auto")
    )
    trainer = "stages.1.trainer.gradient_accumulation_steps=2"

    def found(*overrides: str) -> tuple[int, int]:
        load = workload(
            stage := stages(tmp_path, "stages.1.algorithm=dr_grpo", trainer, none, *overrides)[0][1], arguments(stage)
        )
        return load.micro_batch_size, load.packed_prompts

    assert found() == (8, 0)
    assert found(packed) == (8, 4), "dealt at random"
    assert found(packed, dealt) == (8, 2)
    assert found(packed, dealt, "stages.1.speed.merge_micro_batches=true") == (16, 4), (
        "a small model reads both at once"
    )
    rows, trees = found(packed, dealt, budget)
    assert 8 < rows <= 16
    assert trees == -(-rows // 4)
    assert found(packed, dealt, "stages.1.speed.max_tokens_per_micro_batch=1") == (1, 1)
    assert found(dealt, budget) == (8, 0)


def test_generator_is_reported(tmp_path: Path) -> None:
    """The reason against the fast generator is reported, and the memory of merging the adapter is in the estimate."""
    (_, grpo), registry = stages(tmp_path, "stages.1.trainer.max_completion_length=32")

    def output(stage: Any) -> str:
        lines: list[str] = examine(stage, registry)["speed"]
        return lines[0]

    assert output(grpo) == "generation: `fast` (falls back to transformers if its start-up self-check fails)"
    assert examine(grpo, registry)["memory"]["generation"]["merged and packed weights"] > 0
    window = MistralConfig(**SIZES, vocab_size=grpo.source.config.vocab_size, sliding_window=4)
    other = replace(grpo, source=replace(grpo.source, config=window))
    assert "transformers, not `fast` (not every layer caches keys and values of all tokens" in output(other)
    assert examine(other, registry)["memory"]["generation"]["merged and packed weights"] == 0
    assert "up to 4 tokens wide; wider ones are padded" in examine(other, registry)["speed"][1]
    assert examine(other, registry)["memory"]["load"]["packed_prompts"] == 0
    assert examine(grpo, registry)["memory"]["load"]["packed_prompts"] > 0
    (_, short), registry = stages(tmp_path, "stages.1.trainer.max_completion_length=31")
    assert examine(short, registry)["memory"]["generation"]["merged and packed weights"] == 0
    beams = replace(grpo, settings={**grpo.settings, "generation_kwargs": {"num_beams": 2, "do_sample": False}})
    assert "beam search is unsupported" in output(beams)
    ends = replace(grpo, settings={**grpo.settings, "generation_kwargs": {"eos_token_id": [1, 2]}})
    assert output(ends) == output(grpo)
    assert output(replace(grpo, generator=registry.find("rlm_generators", "transformers").bind({}))) == (
        "generation: `transformers`"
    )


def test_the_weights_are_counted_as_they_will_be_held(tmp_path: Path) -> None:
    (sft, _), _ = stages(tmp_path)
    sft.source.load().save_pretrained(tmp_path / "model")
    sft.source.tokenizer().save_pretrained(tmp_path / "model")
    body = RECIPE.split("stages:")[0] + "algorithm: grpo\ntrainer: {num_generations: 4, max_completion_length: 4}\n"
    text = (
        body + f"model: {{name: pretrained, path: {tmp_path / 'model'}, lora: {{r: 4, target_modules: all-linear}}}}\n"
    )
    held = {}
    for dtype in ("auto", "float32", "bfloat16"):
        ((stage,), registry) = stages(tmp_path, f"model.dtype={dtype}", text=text)
        loaded = stage.source.load()
        held[dtype] = examine(stage, registry)["memory"]["always"]["frozen weights"]
        assert held[dtype] == sum(p.numel() * p.element_size() for p in loaded.parameters()), dtype
    assert held["bfloat16"] == held["float32"] / 2


def test_unknown_model_does_not_fail_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (_, grpo), registry = stages(tmp_path)

    def fail(*_: object) -> None:
        raise AttributeError("'PretrainedConfig' object has no attribute 'num_attention_heads'")

    monkeypatch.setattr(loads, "estimate", fail)
    entry = examine(grpo, registry)
    assert "num_attention_heads" in entry["memory"]["problem"]
    assert "no estimate for this model" in render(entry)
    monkeypatch.setattr(speed_report, "decoding_plans", fail)
    assert "known at the start of the run (AttributeError" in examine(grpo, registry)["speed"][0]


def test_the_cost_of_dynamic_sampling(tmp_path: Path) -> None:
    text = RECIPE.replace("reward: accuracy}]", "reward: accuracy, refill: 3}]")
    (_, grpo), registry = stages(tmp_path, text=text)
    line = "dynamic sampling: up to 3 sampling rounds, 8 to 24 completions, until the batch is full of groups that"
    assert examine(grpo, registry)["batch"][-1] == f"{line} nonzero_std keeps"


def test_the_text_of_a_stage(examined: list[dict[str, Any]]) -> None:
    text = render(examined[1])
    for words in ("parts", "data", "batch", "objective", "memory", "2 prompts × 4 = 8 completions"):
        assert words in text
    assert "rlm_plugins/builtin/advantages.py" in text
    memory = examined[1]["memory"]
    assert f"peak: about {size(memory['peak'])} of this machine's" in text
    turns = (sum(memory[when].values()) for when in ("generation", "update", "critic_update"))
    assert memory["peak"] == sum(memory["always"].values()) + max(turns)
    assert memory["machine"] == machine_memory() > 2**30


@pytest.mark.parametrize(("limit", "some"), [("1024\n", 1024), ("max\n", None), (None, None)])
def test_memory_limit_of_a_container_is_used(
    limit: str | None, some: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("rlm_fast.workload.LIMITS", [])
    whole = machine_memory()
    if limit is not None:
        (tmp_path / "memory.max").write_text(limit)
    monkeypatch.setattr("rlm_fast.workload.LIMITS", [str(tmp_path / "memory.max")])
    assert machine_memory() == (some or whole)


TWO_STAGES = """
environment: {name: addition, digits: 2, train_rows: 64, test_rows: 4}
rewards: [accuracy]
stages:
  - {model: {name: scratch, hidden: 16, heads: 2, intermediate: 16}, algorithm: sft, generator: none}
  - algorithm: ppo
    model: {lora: {r: 4}}
    trainer: {per_device_train_batch_size: 8, num_generations: 4, max_completion_length: 16}
"""
HERE = "stages[1]."
WRONG: dict[str, tuple[str, str, str]] = {
    "punished from the first token on": ("algorithm.shapers=[{name: overlong, cache: 16}]",
        "algorithm.shapers[0].cache (command line)", "the limit is 16 tokens"),
    "at the end of a schedule": ("algorithm.shapers=[{name: overlong, cache: {from: 4, to: 20, over: 5}}]",
        "algorithm.shapers[0].cache (command line)", "got 20"),
    "nothing to leave out": ("algorithm=gfpo", "algorithm.filters[0].k (algorithm gfpo)", "allowed: less than 4"),
    "paid for drifting": ("algorithm.shapers=[{name: kl_in_reward, beta: -1}]",
        "algorithm.shapers[0].beta (command line)", "expected 0 or more"),
    "trained twice": (
        "algorithm.penalties=[{name: value_loss, beta: 1.0}, {name: value_loss, beta: 0.5, epsilon: 0.4}]",
        "algorithm.penalties[1] (command line)",
        "the critic would be trained twice",
    ),
    "an adapter that fits nowhere": ("model={lora: {target_modules: [nope]}}", "model.lora (command line)",
        "PEFT rejects the adapter"),
    "an adapter on the language head": ("model={lora: {target_modules: [q_proj, lm_head]}}",
        "model.lora.target_modules (command line)", "TRL does not support an adapter on the language head"),
    "a reward model that nobody offers": ("rewards=[accuracy, {name: reward_model, path: nobody/nothing}]",
        "rewards[1].path (command line)", "nobody/nothing: its config cannot be loaded"),
}  # fmt: skip


def check(folder: Path, *overrides: str) -> str:
    """Return the output of `rlm check`."""
    file = folder / "recipe.yaml"
    file.write_text(TWO_STAGES)
    return CliRunner().invoke(app, ["check", str(file), *overrides]).output


@pytest.mark.parametrize(("overrides", "place", "words"), WRONG.values(), ids=WRONG)
def test_unsuitable_knobs_are_rejected(
    tmp_path: Path, overrides: str, place: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    printed = check(tmp_path, f"stages.1.{overrides}")
    assert printed.startswith(f"error: {HERE}{place}: "), printed
    assert words in printed


def test_suitable_knobs_are_accepted(tmp_path: Path) -> None:
    suits = ["{name: overlong, cache: 15}", "{name: overlong, max_length: 20, cache: 19}"]
    shapers = f"stages.1.algorithm.shapers=[{', '.join(suits)}]"
    printed = check(tmp_path, shapers, "stages.1.algorithm.filters=[{name: keep_k, k: 3}]", "--json")
    assert len(json.loads(printed)) == 2
