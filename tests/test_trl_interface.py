"""Internals of TRL and transformers that this package uses, by name: a release that changes one fails here."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import transformers
import trl
from trl import GRPOConfig, GRPOTrainer, SFTTrainer
from trl.trainer.utils import shuffle_sequence_dict, split_tensor_dict

from rlm_plugins import trainer as trainer_package
from rlm_plugins.trainer.passes import temperature_cell

PACKAGE = Path(trainer_package.__file__).parent
GENERATING = {
    "_prefill": ["self", "input_ids", "generation_config", "model_kwargs", "is_first_iteration"],
    "_update_model_kwargs_for_generation": ["self", "outputs", "model_kwargs", "is_encoder_decoder", "num_new_tokens"],
    "_sample": [
        "self",
        "input_ids",
        "logits_processor",
        "stopping_criteria",
        "generation_config",
        "synced_gpus",
        "streamer",
        "model_kwargs",
    ],
}
"""What our decoding loop calls, and the loop it stands in for."""
METHODS = {
    "_calculate_rewards": (GRPOTrainer, ["self", "inputs", "prompts", "completions", "completion_ids_list"]),
    "_generate_and_score_completions": (GRPOTrainer, ["self", "inputs"]),
    "_compute_loss": (GRPOTrainer, ["self", "model", "inputs"]),
    "_prepare_inputs": (GRPOTrainer, ["self", "generation_batch"]),
    "_get_train_sampler": (GRPOTrainer, ["self", "dataset"]),
    "_tokenize_prompts": (GRPOTrainer, ["self", "prompts"]),
    "_generate_single_turn": (
        GRPOTrainer,
        ["self", "prompt_ids", "images", "multimodal_fields", "num_generations", "has_tool_images"],
    ),
    "_generate": (GRPOTrainer, ["self", "prompts"]),
    "_load_optimizer_and_scheduler": (GRPOTrainer, ["self", "checkpoint"]),
    "_save_checkpoint": (GRPOTrainer, ["self", "model", "trial"]),
    "_get_output_dir": (transformers.Trainer, ["self", "trial"]),
}
ATTRIBUTES = (
    "_logs",
    "_metrics",
    "_tokenizer",
    "accelerator",
    "aux_loss_enabled",
    "chat_template",
    "chat_template_kwargs",
    "eos_token_ids",
    "generation_config",
    "generation_kwargs",
    "is_deepspeed_enabled",
    "is_fsdp_enabled",
    "loss_is_scaled_for_ga",
    "max_completion_length",
    "num_generations",
    "num_generations_eval",
    "num_iterations",
    "reward_weights",
    "ref_model",
    "rollout_func",
    "router_aux_loss_coef",
    "temperature",
    "tools",
    "use_vllm",
    "vllm_mode",
)
BATCH = {
    "prompt_ids",
    "prompt_mask",
    "completion_ids",
    "completion_mask",
    "advantages",
    "num_items_in_batch",
}


def constant(completions: list[str], **kwargs: Any) -> list[float]:
    """Return the length as the reward."""
    return [float(len(text)) for text in completions]


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> GRPOTrainer:
    """Return a stock trainer with reference log-probs, before its first step."""
    folder = tmp_path_factory.mktemp("seams")
    return GRPOTrainer(
        model=tiny.model(),
        reward_funcs=[constant],
        args=GRPOConfig(**tiny.settings(output_dir=str(folder), beta=1.0, num_iterations=2)),
        train_dataset=tiny.problems(),
        processing_class=tiny.tokenizer(),
        peft_config=tiny.lora(),
    )


def overrides(file: Path, base: str) -> list[str]:
    """Return the methods of TRL's trainer that the classes of a file with this base override, in order."""
    classes = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.ClassDef)]
    trainers = [each for each in classes if base in map(ast.unparse, each.bases)]
    methods = [node.name for each in trainers for node in each.body if isinstance(node, ast.FunctionDef)]
    return [name for name in methods if name != "__init__" and callable(getattr(GRPOTrainer, name, None))]


def test_one_file_overrides_trl() -> None:
    """Each method occurs once, in the order in which TRL calls them; `DurableCheckpoints` applies to any trainer."""
    files = {file.name: overrides(file, "GRPOTrainer") for file in PACKAGE.glob("*.py")}
    assert {name: methods for name, methods in files.items() if methods} == {
        "equation_trainer.py": [
            "_load_optimizer_and_scheduler",
            "_get_train_sampler",
            "training_step",
            "_prepare_inputs",
            "_generate_and_score_completions",
            "_generate",
            "_generate_single_turn",
            "_get_per_token_logps_and_entropies",
            "_calculate_rewards",
            "_compute_loss",
            "_save",
        ]
    }


def test_no_collaborator_touches_trls_trainer() -> None:
    """Shared state is listed in the context; only two other files use the trainer."""
    for file in PACKAGE.glob("*.py"):
        if file.name not in ("context.py", "collaborators.py", "equation_trainer.py"):
            assert "context.trainer" not in file.read_text(), file.name


def test_version() -> None:
    assert trl.__version__.startswith("1.16."), "read the release notes, run the parity tests, then move the pin"


@pytest.mark.parametrize("name", METHODS)
def test_method(name: str) -> None:
    owner, parameters = METHODS[name]
    assert list(inspect.signature(getattr(owner, name)).parameters) == parameters, f"{owner.__name__}.{name} changed"


def test_log_probability_pass() -> None:
    method = GRPOTrainer._get_per_token_logps_and_entropies
    expected = ["self", "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size", "compute_entropy"]
    assert list(inspect.signature(method).parameters)[: len(expected)] == expected
    assert "compute_aux_loss" in inspect.signature(method).parameters


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attribute(trainer: GRPOTrainer, name: str) -> None:
    assert hasattr(trainer, name), f"GRPOTrainer.{name} is gone"


def test_generation_batch(trainer: GRPOTrainer) -> None:
    rows = [trainer.train_dataset[i // 4] for i in range(8)]
    trainer.model.train()
    out = trainer._generate_and_score_completions(rows)
    assert set(out) >= BATCH | {"old_per_token_logps", "ref_per_token_logps"}, "the batch dictionary changed"
    assert len(trainer._logs["advantages"]) == len(rows), "the completions table changed"


def test_zero_beta_skips_the_reference(trainer: GRPOTrainer) -> None:
    trainer.beta, beta = 0.0, trainer.beta
    try:
        out = trainer._generate_and_score_completions([trainer.train_dataset[0] for _ in range(4)])
    finally:
        trainer.beta = beta
    assert "ref_per_token_logps" not in out


def test_log_prob_pass_reads_its_temperature_from_a_closure(trainer: GRPOTrainer) -> None:
    assert temperature_cell(trainer.model).cell_contents == trainer.temperature


def test_our_columns_survive_the_buffer() -> None:
    batch = {"mask": torch.arange(12).reshape(4, 3), "group": torch.tensor([0, 0, 1, 1]), "tokens": torch.tensor(7.0)}
    first, second = split_tensor_dict(shuffle_sequence_dict(batch), 2)
    rows = torch.cat([first["mask"], second["mask"]])
    assert sorted(rows[:, 0].tolist()) == [0, 3, 6, 9]
    assert first["tokens"] == second["tokens"] == 7.0
    assert all(
        (row[0] // 6 == group) for row, group in zip(rows, torch.cat([first["group"], second["group"]]), strict=True)
    )


def test_sft_trainer_accepts_our_arguments(tmp_path: Path) -> None:
    names = inspect.signature(SFTTrainer.__init__).parameters
    assert {"model", "args", "train_dataset", "processing_class", "peft_config"} <= set(names)


@pytest.mark.parametrize(("name", "parameters"), GENERATING.items(), ids=GENERATING)
def test_transformers_generates_by(name: str, parameters: list[str]) -> None:
    assert list(inspect.signature(getattr(transformers.GenerationMixin, name)).parameters) == parameters


def test_generate_accepts_a_custom_loop() -> None:
    assert "custom_generate" in inspect.signature(transformers.GenerationMixin.generate).parameters
    source = inspect.getsource(GRPOTrainer._generate_single_turn)
    assert "unwrapped_model.generate(\n" in source
    assert "**generate_inputs, generation_config=self.generation_config" in source
