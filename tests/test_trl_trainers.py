"""Trainers with TRL's constructors: TRL's weights, replaced algorithms and functions, and errors."""

from __future__ import annotations

import importlib.util
import logging
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import trl
from transformers.trainer_callback import PrinterCallback

from rlm_plugins import GRPOConfig, GRPOTrainer, PPOTrainer, RLOOTrainer
from rlm_plugins.equation.step import Divergence
from rlm_plugins.errors import PluginError, RecipeError
from rlm_plugins.specs import Algorithm


def eighths(completions: list[str], **kwargs: Any) -> list[float]:
    """Return rewards that differ between most completions and are exact in binary."""
    return [sum(map(ord, text)) % 8 / 8 for text in completions]


def trainer_of_kind(
    kind: Any, folder: Path, extra: dict[str, Any] | None = None, config: Any = trl.GRPOConfig, **changes: Any
) -> Any:
    """Return a trainer of class `kind` on the tiny task."""
    torch.set_num_threads(1)
    pieces: dict[str, Any] = {
        "model": tiny.model(),
        "reward_funcs": eighths,
        "args": config(**tiny.settings(output_dir=str(folder), **{"max_steps": 2, **changes})),
        "train_dataset": tiny.problems(),
        "processing_class": tiny.tokenizer(),
        "peft_config": tiny.lora(),
    }
    trainer = kind(**pieces | (extra or {}))
    trainer.remove_callback(PrinterCallback)
    return trainer


def weights(trainer: Any) -> torch.Tensor:
    """Return the trained weights of the policy, in the order of their names."""
    named = sorted(
        (name, p) for name, p in trainer.model.named_parameters() if "critic" not in name and p.requires_grad
    )
    return torch.cat([p.detach().flatten() for _, p in named])


def trained(*args: Any, **changes: Any) -> Any:
    trainer = trainer_of_kind(*args, **changes)
    trainer.train()
    return trainer


def logged(trainer: Any, name: str) -> list[float]:
    return [line[name] for line in trainer.state.log_history if name in line and "loss" in line]


def digits(completions: Any, answer: Any, **columns: Any) -> list[float]:
    """Return 1 if the answer is in the text; of messages it always returns 0."""
    return [float(str(right) in text) for text, right in zip(completions, answer, strict=True)]


def test_a_function_gets_messages_of_a_chat_as_in_trl(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """TRL's rule holds, with or without `**kwargs`; reading the messages as text is said."""
    forms: list[type] = []

    def record(completions: Any, answer: Any) -> list[float]:
        forms.append(type(completions[0]))
        return [0.0] * len(completions)

    rows = tiny.problems().map(lambda row: {"prompt": [{"role": "user", "content": row["prompt"]}]})
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    extra = {"train_dataset": rows, "processing_class": tokenizer, "reward_funcs": [digits, record]}
    trained(GRPOTrainer, tmp_path, extra)
    assert {*forms} == {list, str}, "messages, and text in the test of its first batch alone"
    assert forms[0] is list
    assert "reward 'digits'" in caplog.text
    assert "reads messages as if they were text" in caplog.text
    assert "reward 'record'" not in caplog.text


def test_a_reward_that_pays_one_score_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def never(completions: list[str], **columns: Any) -> list[float]:
        return [0.0 for _ in completions]

    trained(GRPOTrainer, tmp_path, {"reward_funcs": [never, eighths]}, max_steps=4, logging_steps=1)
    assert caplog.text.count("reward 'never' has paid 0 to every completion of 3 steps") == 1
    assert "reward 'eighths'" not in caplog.text


@pytest.mark.parametrize(
    "changes",
    [
        {"num_iterations": 2},
        pytest.param(
            {"reward_clip_range": (0.2, 0.6), "normalize_advantages": True, "beta": 0.0}, marks=pytest.mark.full
        ),
    ],
)
def test_rloo_has_the_weights_of_trl_to_rounding(tmp_path: Path, changes: dict[str, Any]) -> None:
    """The KL is summed per token here and per completion there, which is equal up to rounding."""
    stock = trained(trl.RLOOTrainer, tmp_path / "stock", config=trl.RLOOConfig, **changes)
    ours = trained(RLOOTrainer, tmp_path / "ours", {"speed": "none"}, config=trl.RLOOConfig, **changes)
    torch.testing.assert_close(weights(ours), weights(stock), rtol=0, atol=2e-5)
    assert logged(ours, "kl") == pytest.approx(logged(stock, "kl"), abs=1e-6)


def centered(rewards: Any, group: Any) -> Any:
    """Compute Â = r − mean of the group."""
    return rewards - torch.stack([rewards[group == g].mean() for g in group])


def test_a_function_is_a_part(tmp_path: Path) -> None:
    ours = trainer_of_kind(GRPOTrainer, tmp_path, {"algorithm": {"name": "dapo", "advantage": centered, "filters": []}})
    assert ours.equation.advantage.part.full_name == "python/centered"
    assert ours.equation.policy_loss.knobs["epsilon_high"] == 0.28
    ours.train()
    named = trained(GRPOTrainer, tmp_path, {"algorithm": {"name": "dr_grpo", "policy_loss": {"epsilon_high": 0.28}}})
    same = trained(GRPOTrainer, tmp_path, {"algorithm": {"name": "dr_grpo", "advantage": centered}}, epsilon_high=None)
    assert named.equation.aggregator.part.name == same.equation.aggregator.part.name == "fixed_length"


def test_a_mapping_without_a_name_changes_the_algorithm_of_the_config(tmp_path: Path) -> None:
    ours = trainer_of_kind(
        GRPOTrainer, tmp_path, {"algorithm": {"advantage": centered}}, loss_type="grpo", beta=0.1, epsilon=0.3
    )
    assert [ours.equation.advantage.part.name, ours.equation.aggregator.part.name] == ["centered", "sequence_mean"]
    assert (ours.equation.policy_loss.knobs["epsilon"], ours.equation.penalties[0].beta) == (0.3, 0.1)


def test_a_row_and_lists_of_functions(tmp_path: Path) -> None:
    def halved(rewards: Any) -> Any:
        return rewards / 2

    row = Algorithm(about="", source="", advantage="group_relative", policy_loss="reinforce", aggregator="token_mean")
    ours = trainer_of_kind(GRPOTrainer, tmp_path, {"algorithm": {"name": row, "shapers": [halved, "overlong"]}})
    assert [part.part.name for part in ours.equation.shapers] == ["halved", "overlong"]


@pytest.mark.parametrize(
    ("algorithm", "changes", "problem"),
    [
        (
            "dapo",
            {"epsilon": 0.3},
            r"args.epsilon: GRPOConfig has epsilon=0.3, but the algorithm 'dapo' has epsilon=0.2",
        ),
        ({"advantage": centered}, {"scale_rewards": "batch"}, r"args.scale_rewards: .* nothing of that kind"),
        ("dap", {}, r"algorithm.*unknown part 'dap'"),
        ({"name": "dapo", "advantage": {"name": centered, "k": 1}}, {}, r"unknown knob 'k'"),
        (3, {}, "expected an algorithm, got 3"),
        ("sft", {}, "expected an algorithm with an equation|takes no rewards|has a loss of its own"),
    ],
)
def test_config_and_algorithm_must_agree(tmp_path: Path, algorithm: Any, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(RecipeError, match=problem):
        trainer_of_kind(GRPOTrainer, tmp_path, {"algorithm": algorithm}, **changes)


def test_what_is_said_twice_may_agree(tmp_path: Path) -> None:
    ours = trainer_of_kind(GRPOTrainer, tmp_path, {"algorithm": "dapo"}, epsilon_high=0.28)
    assert ours.equation.refill
    assert ours.equation.filters[0].knobs["reward"] == "eighths", "the only reward, whatever its name"
    assert ours.components.prompts.source is not None


def test_a_function_that_no_hook_takes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="logits"):
        trainer_of_kind(GRPOTrainer, tmp_path, {"algorithm": {"advantage": lambda logits: logits}})


def test_arguments_of_the_wrong_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=re.escape("expected a trl.GRPOConfig, got RLOOConfig")):
        trainer_of_kind(GRPOTrainer, tmp_path, config=trl.RLOOConfig)
    with pytest.raises(RecipeError, match="no part of the algorithm requires `values`"):
        trainer_of_kind(GRPOTrainer, tmp_path, {"critic": "shared"})
    if importlib.util.find_spec("liger_kernel") is None:
        with pytest.raises(RecipeError, match=r"args.use_liger_kernel: liger-kernel is not installed"):
            trainer_of_kind(GRPOTrainer, tmp_path, use_liger_kernel=True)
    with pytest.raises(RecipeError, match="expected 1 reward weights"):
        trainer_of_kind(GRPOTrainer, tmp_path, reward_weights=[1.0, 2.0])


def test_ppo_trains_a_critic(tmp_path: Path) -> None:
    ours = trainer_of_kind(
        PPOTrainer, tmp_path, {"critic": {"kind": "shared", "learning_rate": 0.01}}, config=GRPOConfig
    )
    before = {name: p.detach().clone() for name, p in ours.model.named_parameters() if "critic" in name}
    ours.train()
    after = dict(ours.model.named_parameters())
    assert any(not torch.equal(after[name], p) for name, p in before.items())
    ours.save_critic(tmp_path / "critic")
    assert any((tmp_path / "critic").iterdir())
    assert "critic/explained_variance" in ours.state.log_history[0]


def test_rewards_of_every_form(tmp_path: Path) -> None:
    async def later(completions: list[str], **kwargs: Any) -> list[float]:
        return [0.25] * len(completions)

    def only(completions: list[str], *, answer: Any, **kwargs: Any) -> list[float]:
        return [float(len(a)) for a in answer]

    functions = [
        eighths,
        eighths,
        later,
        only,
        {"name": "length", "limit": 8},
        lambda completions, **kw: [1.0] * len(kw["answer"]),
    ]
    ours = trainer_of_kind(
        GRPOTrainer, tmp_path, {"reward_funcs": functions}, reward_weights=[1.0, 0.5, 0.5, 0.1, 0.1, 0.0]
    )
    assert ours.reward_func_names == ["eighths", "eighths_2", "later", "only", "length", "lambda"]
    ours.train()
    assert {"rewards/later/mean", "rewards/only/std"} <= set(ours.state.log_history[0])


def test_a_rollout_func_generates(tmp_path: Path) -> None:
    calls: list[int] = []

    def rollout(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        calls.append(len(prompts))
        ids = [[3, 4, 1] for _ in prompts]
        return {"prompt_ids": [[5, 6]] * len(prompts), "completion_ids": ids, "logprobs": [[-1.0] * 3] * len(prompts)}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trained(GRPOTrainer, tmp_path, {"rollout_func": rollout})
    assert calls == [8, 8]
    with pytest.raises(RecipeError, match="exclude each other"):
        trainer_of_kind(
            GRPOTrainer, tmp_path, {"rollout_func": rollout, "algorithm": {"name": "remax", "policy_loss": "reinforce"}}
        )


def test_a_replaced_generate_is_called(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ours = trainer_of_kind(GRPOTrainer, tmp_path)
    calls: list[int] = []
    usual = ours.model.generate

    def generate(*args: Any, **kwargs: Any) -> Any:
        assert "custom_generate" not in kwargs
        calls.append(1)
        return usual(*args, **kwargs)

    ours.model.generate = generate
    ours.train()
    assert len(calls) == 2
    assert "`generate` of the model was replaced" in caplog.text


def test_a_sequence_ratio_under_a_token_sum_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        trainer_of_kind(GRPOTrainer, tmp_path, importance_sampling_level="sequence", loss_type="dapo")
        assert "weights each sequence by its completion length" in caplog.text
        caplog.clear()
        trainer_of_kind(GRPOTrainer, tmp_path, importance_sampling_level="sequence", loss_type="grpo")
        assert "completion length" not in caplog.text


def test_the_arguments_stay_as_they_were(tmp_path: Path) -> None:
    args = trl.GRPOConfig(**tiny.settings(output_dir=str(tmp_path), beta=0.2))
    before = dict(vars(args))
    ours = trainer_of_kind(GRPOTrainer, tmp_path, {"args": args})
    assert dict(vars(args)) == before
    assert ours.args.beta == 1.0, "TRL's switch for the reference pass"
    assert isinstance(ours, trl.GRPOTrainer)


@pytest.mark.parametrize("speed", [None, "none"])
def test_weights_of_the_base_that_are_not_finite_are_told_as_such(tmp_path: Path, speed: str | None) -> None:
    model = tiny.model()
    model.lm_head.weight.data.fill_(torch.nan)
    with pytest.raises(Divergence, match=r"(?s)not finite before the first step.*the weights hold NaN"):
        trained(GRPOTrainer, tmp_path, {"speed": speed, "model": model})


def test_metrics_are_equal_at_every_speed_and_batch_split(tmp_path: Path) -> None:
    """Unequal lengths, and micro-batches of unequal numbers of tokens."""
    changes = {"num_iterations": 2, "beta": 0.1, "mask_truncated_completions": True}
    split = {**changes, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
    joint = {**changes, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1}
    runs = [
        trained(GRPOTrainer, tmp_path / "none", {"speed": "none"}, **split),
        trained(GRPOTrainer, tmp_path / "fast", {}, **split),
        trained(GRPOTrainer, tmp_path / "joint", {"speed": "none"}, **joint),
    ]
    for name in ("entropy", "kl", "clip_ratio/region_mean", "clip_ratio/high_max"):
        first, *others = [logged(run, name) for run in runs]
        assert first, name
        for other in others:
            assert other == pytest.approx(first, abs=1e-4), name
