"""Teachers: parts against the numbers of other libraries, and the section in runs of tiny models."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from rlm_algorithms import distillation
from rlm_algorithms.teacher import Teacher
from rlm_algorithms.teacher_scoring import RunningAverage, TeacherScoring, average_config
from transformers import LlamaConfig, LlamaForCausalLM

from rlm_plugins import recipe
from rlm_plugins.errors import RecipeError, RlmError
from rlm_plugins.models.adapters import new_adapter
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry
from rlm_plugins.run.train import train
from rlm_plugins.stage import RunState

DATA = json.loads((Path(__file__).parent / "data" / "teachers.json").read_text())
CASE = {name: torch.tensor(x, dtype=torch.float64) for name, x in DATA["case"].items()}
MASK, ALL = CASE["mask"].bool(), torch.ones(8, dtype=torch.bool)
RECIPE = """
model: {name: scratch, hidden: 16, layers: 1, lora: {r: 2, target_modules: all-linear}}
environment: {name: addition, digits: 1, train_rows: 8, test_rows: 0}
rewards: []
algorithm: opd
trainer: {max_steps: 2, per_device_train_batch_size: 4, num_generations: 4, max_completion_length: 4}
"""


def records(name: str) -> list[dict[str, Any]]:
    return [record for record in DATA["records"] if record["fn"] == name]


def close(actual: torch.Tensor, expected: Any) -> None:
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-9)


# -- parts against ms-swift 4.6 and TRL 1.16


@pytest.mark.parametrize("record", records("rlsd"), ids=lambda record: str(record["args"]["negative_only"]))
def test_rlsd_equals_swift(record: dict[str, Any]) -> None:
    data = CASE["advantages"].reshape(8, -1), CASE["teacher_logp"], CASE["old_logp"], ALL
    knobs = {**record["args"], "epsilon": record["args"]["clip"]}
    del knobs["clip"]
    weights = distillation.teacher_reweighting(*data, **knobs)
    close((weights * data[0]).where(MASK, 0.0), record["out"]["advantages"])


def test_opd_equals_swift() -> None:
    (record,) = records("opd@swift")
    gap = distillation.teacher_log_ratio(CASE["teacher_logp"], CASE["old_logp"], ALL, MASK)
    advantages = torch.tensor(record["out"]["advantages"], dtype=torch.float64)
    torch.testing.assert_close(gap, (advantages - CASE["advantages"].reshape(8, -1)).where(MASK, 0.0))


def test_sdar_equals_swift() -> None:
    (record,) = records("sdar")
    logp = CASE["logp"].clone().requires_grad_()
    loss = distillation.self_distillation(logp, CASE["teacher_logp"], ALL)[MASK].mean()
    loss.backward()
    close(loss.detach(), record["out"]["loss"])
    close(logp.grad, record["out"]["grad_logp"])  # type: ignore[arg-type]


def test_opd_equals_trl() -> None:
    """The gradient with respect to the logits; TRL's loss has another value, since a constant factor is inside."""
    (record,) = records("opd@trl")
    ids = CASE["completion_ids"].long()
    logits = CASE["student_logits"].clone().requires_grad_()
    teacher = CASE["teacher_logits"].log_softmax(-1).gather(2, ids.unsqueeze(2)).squeeze(2)
    logp = logits.log_softmax(-1).gather(2, ids.unsqueeze(2)).squeeze(2)
    loss = distillation.sampled_distillation(logp, logp.detach(), teacher, ALL)[MASK].mean()
    loss.backward()
    close(loss.detach(), record["out"]["loss"])
    close(logits.grad, record["out"]["grad_logits"])  # type: ignore[arg-type]


def test_weight_of_early_tokens() -> None:
    """IW-OPD by hand: a = (1, −1, 2), so the shares before are 0, 1/4 and 1/2."""
    gap, mask = torch.tensor([[1.0, -1.0, 2.0]]), torch.ones(1, 3, dtype=torch.bool)
    result = distillation.teacher_log_ratio(gap, torch.zeros(1, 3), mask[:, 0], mask, position=0.5)
    torch.testing.assert_close(result, torch.tensor([[1.5, -1.375, 2.5]]))


def test_future_sums_what_is_to_come() -> None:
    gap, mask = torch.tensor([[1.0, -1.0, 2.0]]), torch.tensor([[True, True, True]])
    result = distillation.teacher_log_ratio(gap, torch.zeros(1, 3), mask[:, 0], mask, future=0.5)
    torch.testing.assert_close(result, torch.tensor([[1.0, 0.0, 2.0]]))


def test_without_a_teacher_nothing_is_trained() -> None:
    none = ~ALL
    data = CASE["logp"], CASE["old_logp"], CASE["teacher_logp"]
    assert not distillation.teacher_log_ratio(data[2], data[1], none, MASK).any()
    assert not distillation.sampled_distillation(*data, none).any()
    assert not distillation.self_distillation(data[0], data[2], none).any()
    assert (distillation.teacher_reweighting(CASE["advantages"].reshape(8, -1), data[2], data[1], none) == 1).all()


# -- the running average


def policy(rank: int = 2) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    base = LlamaForCausalLM(LlamaConfig(vocab_size=11, **sizes))
    config = LoraConfig(
        r=rank, lora_alpha=3, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM"
    )
    return get_peft_model(base, config)


def test_average_is_that_of_the_product() -> None:
    """Of two policies ΔW is exact, since twice the rank holds both; A and B alone would give another one."""
    model = policy()
    adapter = new_adapter(model, "teacher", average_config(model), trainable=False)
    average = RunningAverage(model, adapter)
    average.update(1.0)
    layers = [(module, own, name) for module, own, name in average._layers()]
    assert len(layers) == 7
    before = [module.get_delta_weight(own) for module, own, _ in layers]
    for module, own, _ in layers:
        torch.nn.init.normal_(module.lora_A[own].weight)
        torch.nn.init.normal_(module.lora_B[own].weight)
    average.update(0.05)
    for old, (module, own, name) in zip(before, layers, strict=True):
        expected = 0.95 * old + 0.05 * module.get_delta_weight(own)
        torch.testing.assert_close(module.get_delta_weight(name), expected, rtol=1e-4, atol=1e-5)


# -- the section


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RLM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    return tmp_path


def run(folder: Path, name: str, *overrides: str) -> list[dict[str, Any]]:
    """Train, and return the lines of metrics of the steps."""
    result = train(recipe.load(folder / "recipe.yaml", overrides), Registry(), folder / name)
    return [line for line in result.records() if "loss" in line]


def build(folder: Path, *overrides: str) -> Any:
    (stage,) = compose(recipe.load(folder / "recipe.yaml", overrides), Registry())
    return stage.trainer.build(stage, RunState())


def test_a_fresh_adapter_is_its_own_base(folder: Path) -> None:
    first, second = run(folder, "run", "teacher={model: base}", "trainer.num_iterations=1")
    assert first["advantage/reverse_kl"] == pytest.approx(0, abs=1e-6)
    assert first["reward"] == second["reward"] == 0


def test_a_model_teaches_without_a_reward(folder: Path) -> None:
    """The reverse KL to a model with other weights falls by half."""
    supervised = ["algorithm=sft", "model.lora=null", "trainer={max_steps: 30, learning_rate: 0.01}"]
    train(recipe.load(folder / "recipe.yaml", supervised), Registry(), folder / "teacher")
    settings = ["model.lora=null", "environment.train_rows=64", "trainer.per_device_train_batch_size=64"]
    settings += ["trainer.max_steps=30", "trainer.learning_rate=0.02", "trainer.lr_scheduler_type=constant"]
    lines = run(folder, "student", f"teacher={{model: {folder}/teacher/01-sft/model}}", *settings)
    gaps = [line["advantage/reverse_kl"] for line in lines]
    assert sum(gaps[-3:]) < sum(gaps[:3]) / 2
    assert all(line["reward"] == 0 for line in lines)


@pytest.mark.parametrize("model", ["live", "ema"])
def test_privileged_prompt_changes_the_log_probs(folder: Path, model: str) -> None:
    section = {"model": model, "prompt": "{prompt} {answer}", "ema": 1.0}
    lines = run(folder, model, f"teacher={json.dumps(section)}", "trainer.learning_rate=0.1")
    assert all(math.isfinite(line["advantage/reverse_kl"]) for line in lines)
    assert lines[-1]["advantage/reverse_kl"] != 0
    same = run(folder, f"{model}-same", f"teacher={{model: {model}, ema: 1.0}}", "trainer.learning_rate=0.1")
    assert [line["advantage/reverse_kl"] for line in same] == pytest.approx([0, 0], abs=1e-4), "its own prompt"


def test_group_best_shows_another_right_completion() -> None:
    scoring = TeacherScoring(Teacher(prompt="{prompt}|{group_best}"))
    rewards = torch.tensor([0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0])
    context = SimpleNamespace(local_rows=lambda count: slice(0, count), group_size=4)
    components = SimpleNamespace(context=context, rewards=SimpleNamespace(total=lambda: rewards))
    scoring._trainer = SimpleNamespace(components=components)
    texts = [[{"role": "assistant", "content": f"c{row}"}] for row in range(8)]
    scoring.completions([{"prompt": f"p{row // 4}"} for row in range(8)], SimpleNamespace(completions=texts))
    assert scoring._prompts() == ["p0|c1", "p0|c3", "p0|c1", "p0|c1", "p1|c7", "p1|c7", "p1|c7", None]


def test_resume_has_the_same_average(folder: Path) -> None:
    section = ["teacher={model: ema, ema: 0.5}", "trainer.learning_rate=0.1", "trainer.save_steps=2"]
    whole = run(folder, "whole", *section, "trainer.max_steps=4")
    loaded = recipe.load(folder / "recipe.yaml", [*section, "trainer.max_steps=4"])
    shutil.copytree(folder / "whole", folder / "half")
    shutil.rmtree(folder / "half/01-opd/checkpoint-4", ignore_errors=True)
    shutil.rmtree(folder / "half/01-opd/adapter", ignore_errors=True)
    again = [line for line in train(loaded, Registry(), folder / "half", resume=True).records() if "loss" in line]
    assert [x["advantage/reverse_kl"] for x in again] == [x["advantage/reverse_kl"] for x in whole]


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("teacher=none", r"requires `teacher_logp`: .* comes from a teacher"),
        ('teacher={prompt: "{prompt} {solution}"}', "no column 'solution'"),
        ("model.lora=null", "all weights are trained"),
        ("algorithm={name: opd, advantage: group_relative}", "requires rewards"),
    ],
)
def test_mistakes_are_refused_before_weights_are_loaded(folder: Path, override: str, problem: str) -> None:
    with pytest.raises(RecipeError, match=problem):
        build(folder, "teacher={model: base}", override)


def test_a_teacher_with_another_tokenizer_is_refused(folder: Path) -> None:
    supervised = ["algorithm=sft", "model.lora=null", "trainer={max_steps: 1}"]
    train(recipe.load(folder / "recipe.yaml", supervised), Registry(), folder / "teacher")
    tokenizer = folder / "teacher/01-sft/model/tokenizer.json"
    table = json.loads(tokenizer.read_text())
    vocabulary = table["model"]["vocab"]
    vocabulary["1"], vocabulary["2"] = vocabulary["2"], vocabulary["1"]
    tokenizer.write_text(json.dumps(table))
    with pytest.raises(RlmError, match="is not the policy's"):
        run(folder, "run", f"teacher={{model: {folder}/teacher/01-sft/model}}")
