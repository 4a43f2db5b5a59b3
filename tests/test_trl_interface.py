"""Internals of TRL and transformers that this package uses, by name: a release that changes one fails here."""

from __future__ import annotations

import ast
import importlib.metadata
import inspect
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import transformers
import trl
from packaging.requirements import Requirement
from rlm_lab import trl_seams
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import shuffle_sequence_dict, split_tensor_dict

from rlm_plugins import trainer as trainer_package

PACKAGE = Path(trainer_package.__file__).parent
GENERATING = {
    "_prefill": ["self", "input_ids", "generation_config", "model_kwargs", "is_first_iteration"],
    "_update_model_kwargs_for_generation": ["self", "outputs", "model_kwargs", "is_encoder_decoder", "num_new_tokens"],
}
GENERATING["_sample"] = ["self", "input_ids", "logits_processor", "stopping_criteria"]
GENERATING["_sample"] += ["generation_config", "synced_gpus", "streamer", "model_kwargs"]
"""What our decoding loop calls, and the loop it stands in for."""
ATTRIBUTES = "_logs _metrics _tokenizer accelerator aux_loss_enabled chat_template chat_template_kwargs eos_token_ids "
ATTRIBUTES += "generation_config generation_kwargs is_deepspeed_enabled is_fsdp_enabled loss_is_scaled_for_ga "
ATTRIBUTES += "max_completion_length num_generations num_generations_eval num_iterations reward_weights rollout_func "
ATTRIBUTES += "ref_model router_aux_loss_coef temperature tools use_vllm vllm_mode"
BATCH = {"prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "advantages", "num_items_in_batch"}


needs_kernel = pytest.mark.skipif(
    trl.trainer.utils._ChunkedLogProbFunction is None, reason="this release computes log-probs by Triton, on a GPU only"
)


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
            "log",
            "_save",
        ]
    }


def test_no_collaborator_touches_trls_trainer() -> None:
    """Shared state is listed in the context; only two other files use the trainer."""
    for file in PACKAGE.glob("*.py"):
        if file.name not in ("context.py", "collaborators.py", "equation_trainer.py"):
            assert "context.trainer" not in file.read_text(), file.name


def test_the_release_is_that_of_the_pin() -> None:
    (pin,) = [text for text in importlib.metadata.requires("rlm-plugins") or () if text.startswith("trl")]
    assert Requirement(pin).specifier.contains(trl.__version__) == (trl_seams.release() == "1.16")


def test_no_seam_has_changed() -> None:
    assert trl_seams.changed() == [], "read the release, run `make test-trl`, then `rlm_lab.trl_seams.add_release()`"


def test_a_changed_seam_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GRPOTrainer, "_compute_loss", lambda self, model, inputs: 0)
    monkeypatch.delattr(GRPOTrainer, "_tokenize_prompts")
    gone, other = sorted(trl_seams.changed(), key=len, reverse=True)
    assert "_tokenize_prompts does not exist in TRL" in gone
    assert "trainer/equation_trainer.py" in gone
    assert "GRPOTrainer._compute_loss is another in TRL" in other


def test_every_internal_of_trl_is_in_the_table() -> None:
    """Imports of a module of TRL, and overrides of a method, outside `trl`'s own exports."""
    listed = {seam.name for seam in trl_seams.seams()}
    root = PACKAGE.parent
    for file in root.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("trl."):
                for alias in node.names:
                    name = f"{node.module}:{alias.name}"
                    of_module = name.replace(":", ".") + ":"
                    assert name in listed or any(seam.startswith(of_module) for seam in listed), (file, name)
    overridden = overrides(PACKAGE / "equation_trainer.py", "GRPOTrainer")
    ours = [name for name in overridden if name in vars(GRPOTrainer)]
    assert {f"trl.trainer.grpo_trainer:GRPOTrainer.{name}" for name in ours} <= listed


@pytest.mark.parametrize("name", ATTRIBUTES.split())
def test_attribute(trainer: GRPOTrainer, name: str) -> None:
    assert hasattr(trainer, name), f"GRPOTrainer.{name} is gone"


@needs_kernel
def test_generation_batch(trainer: GRPOTrainer) -> None:
    rows = [trainer.train_dataset[i // 4] for i in range(8)]
    trainer.model.train()
    out = trainer._generate_and_score_completions(rows)
    assert set(out) >= BATCH | {"old_per_token_logps", "ref_per_token_logps"}, "the batch dictionary changed"
    assert len(trainer._logs["advantages"]) == len(rows), "the completions table changed"


@needs_kernel
def test_zero_beta_skips_the_reference(trainer: GRPOTrainer) -> None:
    trainer.beta, beta = 0.0, trainer.beta
    try:
        out = trainer._generate_and_score_completions([trainer.train_dataset[0] for _ in range(4)])
    finally:
        trainer.beta = beta
    assert "ref_per_token_logps" not in out


def test_our_columns_survive_the_buffer() -> None:
    batch = {"mask": torch.arange(12).reshape(4, 3), "group": torch.tensor([0, 0, 1, 1]), "tokens": torch.tensor(7.0)}
    first, second = split_tensor_dict(shuffle_sequence_dict(batch), 2)
    rows = torch.cat([first["mask"], second["mask"]])
    assert sorted(rows[:, 0].tolist()) == [0, 3, 6, 9]
    assert first["tokens"] == second["tokens"] == 7.0
    assert all(
        (row[0] // 6 == group) for row, group in zip(rows, torch.cat([first["group"], second["group"]]), strict=True)
    )


@pytest.mark.parametrize(("name", "parameters"), GENERATING.items(), ids=GENERATING)
def test_transformers_generates_by(name: str, parameters: list[str]) -> None:
    assert list(inspect.signature(getattr(transformers.GenerationMixin, name)).parameters) == parameters


def test_generate_accepts_a_custom_loop() -> None:
    assert "custom_generate" in inspect.signature(transformers.GenerationMixin.generate).parameters
    source = inspect.getsource(GRPOTrainer._generate_single_turn)
    assert "unwrapped_model.generate(\n" in source
    assert "**generate_inputs, generation_config=self.generation_config" in source
