"""The reward model: its loss, its scores, its files, and what it leaves unchanged."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from fixtures_critic import LORA
from fixtures_reward_model import PIPELINE, SHORT, run
from peft import LoraConfig, PeftModel, get_peft_model
from rlm_algorithms.score_head import with_head
from rlm_judge import learned_reward, reward_files
from rlm_judge.preferences import tokens_of_pair
from rlm_judge.reward_files import conversation_ids
from rlm_lab import metrics
from rlm_lab.evaluate import evaluate
from rlm_testing import conformance
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
from trl import RewardConfig, RewardTrainer

from rlm_plugins import recipe
from rlm_plugins.errors import RecipeError, RlmError
from rlm_plugins.models.adapters import without_auxiliary
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry
from rlm_plugins.run.train import train
from rlm_plugins.specs import ModelSpec

HEAD = "base_model.model.score.weight"


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a short run of the pipeline."""
    return run(tmp_path_factory.mktemp("rlhf") / "run").folder


@pytest.fixture
def adapter(done: Path) -> Path:
    return done / "02-reward" / "adapter"


@pytest.fixture
def base(done: Path) -> Path:
    return done / "01-sft" / "model"


def conversations(folder: Path) -> list[list[int]]:
    """Return the token ids of three conversations of different length."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompt = [{"role": "user", "content": "7773727712?"}]
    return [conversation_ids(tokenizer, prompt, text) for text in ("72", "", "777372")]


def policy(base: Path, dropout: float = 0.5) -> Any:
    """Return a policy in training mode whose adapter is not at its initial weights."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    lm = get_peft_model(model, LoraConfig(**{**LORA, "task_type": "CAUSAL_LM", "lora_dropout": dropout}))
    for name, x in lm.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(x)
    return lm.train()


def test_loss_equals_bradley_terry(tmp_path: Path) -> None:
    """Value and gradient are compared with scores of single completions, without padding."""
    judge = get_peft_model(with_head(tiny.model()), LoraConfig(**{**LORA, "task_type": "SEQ_CLS"}))
    draw = torch.Generator().manual_seed(0)
    for x in (x for x in judge.parameters() if x.requires_grad):
        torch.nn.init.normal_(x, std=0.3, generator=draw)
    pairs = [([5, 6, 7, 1], [5, 6, 1]), ([8, 9, 1], [8, 3, 4, 5, 1])]
    data = [{"chosen_ids": chosen, "rejected_ids": rejected} for chosen, rejected in pairs]
    args = RewardConfig(
        output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to="none", gradient_checkpointing=False
    )
    trainer = RewardTrainer(judge, args, train_dataset=tiny.Dataset.from_list(data), processing_class=tiny.tokenizer())
    actual = trainer.compute_loss(judge, dict(trainer.data_collator(data)))
    learned = [x for x in judge.parameters() if x.requires_grad]
    gradient = torch.autograd.grad(actual, learned)

    def score(ids: list[int]) -> torch.Tensor:
        plain = judge.get_base_model()
        hidden = plain.model(input_ids=torch.tensor([ids])).last_hidden_state[0, -1]
        return hidden @ plain.score.modules_to_save["default"].weight[0]

    margins = torch.stack([score(chosen) - score(rejected) for chosen, rejected in pairs])
    expected = (1 + (-margins).exp()).log().mean()
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, learned))
    assert margins.abs().min() > 1e-2


def test_new_reward_model_scores_zero_and_keeps_the_hidden_states() -> None:
    model = tiny.model()
    judge = with_head(model)
    ids = torch.tensor([[5, 6, 7, 1]])
    assert not judge(input_ids=ids).logits.any()
    hidden = judge.model(input_ids=ids).last_hidden_state
    assert torch.equal(model.lm_head(hidden), model(input_ids=ids).logits)


@pytest.mark.parametrize("prompt", ["1+1=", [{"role": "user", "content": "7?"}]], ids=["text", "chat"])
def test_pairs_are_tokenized_as_in_trl(tmp_path: Path, adapter: Path, prompt: Any) -> None:
    tokenizer = AutoTokenizer.from_pretrained(adapter)
    row = {"prompt": prompt, "chosen": "72", "rejected": "7"}
    theirs = (
        row
        if isinstance(prompt, str)
        else row | {kind: [{"role": "assistant", "content": row[kind]}] for kind in ("chosen", "rejected")}
    )
    args = RewardConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to="none")
    data = tiny.Dataset.from_list([theirs])
    model = AutoModelForSequenceClassification.from_pretrained(adapter.parents[1] / "01-sft/model", num_labels=1)
    trainer = RewardTrainer(model, args, train_dataset=data, processing_class=tokenizer)
    expected = {f"{kind}_ids": trainer.train_dataset[0][f"{kind}_ids"] for kind in ("chosen", "rejected")}
    assert tokens_of_pair(tokenizer, row) == expected
    if not isinstance(prompt, str):  # also where a data set repeats the prompt in its answers
        whole = row | {kind: [*prompt, {"role": "assistant", "content": row[kind]}] for kind in ("chosen", "rejected")}
        assert tokens_of_pair(tokenizer, whole) == expected


def test_scores_equal_transformers_on_both_bases(base: Path, adapter: Path) -> None:
    plain = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1, dtype=torch.float32)
    theirs = PeftModel.from_pretrained(plain, adapter).eval()
    rows = conversations(adapter)
    with torch.no_grad():
        expected = [theirs(input_ids=torch.tensor([row])).logits.item() for row in rows]
    assert max(expected) - min(expected) > 1e-3
    alone = reward_files.load_with_own_base(adapter, torch.device("cpu"))
    together = reward_files.load_on_policy_base(adapter, policy(base))
    assert together is not None
    for batch_size in (1, 2, 3):  # padded not at all, a little, and much
        for judge in (alone, together):
            torch.testing.assert_close(judge.scores(rows, batch_size), expected, rtol=0, atol=1e-6)


def test_policy_and_rng_are_unchanged(base: Path, adapter: Path, tmp_path: Path) -> None:
    """Weights, `requires_grad`, mode, random state, files and the policy's logits are equal to the bit."""
    lm = policy(base)
    ids = torch.tensor(conversations(adapter)[:1])
    torch.manual_seed(1)
    logits = lm(input_ids=ids).logits.detach()
    weights = {name: (x.detach().clone(), x.requires_grad) for name, x in lm.named_parameters()}
    torch.manual_seed(1)
    judge = reward_files.load_on_policy_base(adapter, lm)
    assert judge is not None
    judge.scores(conversations(adapter), 2)
    assert torch.equal(lm(input_ids=ids).logits, logits), "dropout is on again, and draws what it would have drawn"
    now = dict(lm.named_parameters())
    assert all(torch.equal(now[name], x) and now[name].requires_grad == moves for name, (x, moves) in weights.items())
    mine = {name for name in now if name not in weights}
    assert mine
    assert not [name for name in mine if ".reward0." not in name or now[name].requires_grad]
    lm.save_pretrained(tmp_path, state_dict=without_auxiliary(lm, lm.state_dict()))
    assert not [name for name in load_file(tmp_path / "adapter_model.safetensors") if "reward" in name]
    second = reward_files.load_on_policy_base(adapter, lm)
    assert second is not None
    assert second.scores(conversations(adapter), 2) == judge.scores(conversations(adapter), 2)


def test_head_is_exact_in_bf16(base: Path, adapter: Path) -> None:
    rows = conversations(adapter)
    whole = reward_files.load_with_own_base(adapter, torch.device("cpu"))
    expected = whole.scores(rows, 3)
    whole.trunk.to(torch.bfloat16)
    actual = whole.scores(rows, 3)
    assert whole.head.weight.dtype == torch.float32
    assert actual != expected
    torch.testing.assert_close(actual, expected, rtol=0, atol=0.05 * max(map(abs, expected)))


def test_a_whole_model_is_a_reward_model_too(base: Path, tmp_path: Path, adapter: Path) -> None:
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1, dtype=torch.float32)
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(base).save_pretrained(tmp_path)
    rows = conversations(adapter)
    with torch.no_grad():
        expected = [model(input_ids=torch.tensor([row])).logits.item() for row in rows]
    judge = reward_files.load_with_own_base(tmp_path, torch.device("cpu"))
    torch.testing.assert_close(judge.scores(rows, 2), expected, rtol=0, atol=1e-6)
    assert reward_files.load_on_policy_base(tmp_path, policy(base)) is None


def test_the_pipeline(done: Path) -> None:
    records = [json.loads(line) for line in (done / "metrics.jsonl").read_text().splitlines()]
    (first, last) = [r for r in records if r["stage"] == "02-reward" and "held_out/rows" in r]
    assert first["held_out/pair_accuracy"] == 0.5
    assert first["held_out/margin"] == 0
    assert last["held_out/margin"] != 0
    assert last["held_out/rows"] == 16
    assert not [name for record in records for name in record if metrics.find(name) is None]
    steps = [r for r in records if r["stage"] == "03-ppo" and "loss" in r]
    assert [step["step"] for step in steps] == [1, 2]
    assert all(step["penalties/kl"] == 0 for step in steps), (
        "the critic learns alone first: the policy is the reference"
    )
    assert all(step["rewards/reward_model/std"] > 0 for step in steps)
    saved = load_file(done / "03-ppo" / "adapter" / "adapter_model.safetensors")
    assert saved
    assert not [name for name in saved if "reward" in name or "critic" in name]
    assert not (done / "02-reward" / "start").exists(), "its base has an address: the stage before it"
    assert json.loads((done / "02-reward/adapter/reward_model.json").read_text())["base"] == "../../01-sft/model"


def test_both_stages_are_evaluated_from_the_run_folder(done: Path) -> None:
    """The reward model is on a base of its own: `rlm eval` loads merged weights."""
    records = [json.loads(line) for line in (done / "metrics.jsonl").read_text().splitlines()]
    for stage, metric in (("reward", "pair_accuracy"), ("ppo", "gist")):
        logged = [r for r in records if r["stage"].endswith(stage) and "held_out/rows" in r][-1]
        (judged,) = evaluate(done, stage=stage)
        chosen, report = judged.stage, judged.report
        assert report.score == pytest.approx(logged[f"held_out/{metric}"], abs=1e-6)
        assert chosen.source.origin.endswith("adapter")
        for label, mean in report.rewards.items():
            assert mean == pytest.approx(logged[f"held_out/{label}"], abs=1e-5)


def test_resumed_reward_model_equals_uninterrupted(tmp_path: Path) -> None:
    """Adapter, head and optimizer are restored from an intermediate checkpoint."""
    short = [*SHORT, "stages.1.trainer.save_strategy=steps", "stages.1.trainer.save_steps=3"]
    whole = recipe.load(PIPELINE, short)
    for actual in (whole.bodies, whole.stage_paths):
        del actual[2:]
    folder = train(whole, Registry(), tmp_path / "run").folder
    expected = load_file(folder / "02-reward/adapter/adapter_model.safetensors")
    for name in ("checkpoint-6", "adapter"):
        shutil.rmtree(folder / "02-reward" / name)
    (folder / "02-reward" / "done").unlink()
    train(whole, Registry(), folder, resume=True)
    found_now = load_file(folder / "02-reward/adapter/adapter_model.safetensors")
    assert expected[HEAD].any()
    assert expected.keys() == found_now.keys()
    assert all(torch.equal(x, found_now[name]) for name, x in expected.items())


def broken(adapter: Path, folder: Path) -> Path:
    """Copy an adapter without its head, and return the copy."""
    shutil.copytree(adapter, folder)
    weights = load_file(folder / "adapter_model.safetensors")
    save_file({name: x for name, x in weights.items() if name != HEAD}, folder / "adapter_model.safetensors")
    return folder


def test_folder_without_head_is_rejected(adapter: Path, base: Path, tmp_path: Path) -> None:
    folder = broken(adapter, tmp_path / "headless")
    for load in (
        reward_files.check_files,
        lambda f: reward_files.load_with_own_base(f, "cpu"),
        lambda f: reward_files.load_on_policy_base(f, policy(base)),
    ):
        with pytest.raises(RlmError, match="requires a score head"):
            load(folder)
    with pytest.raises(RlmError, match="requires a score head"):
        reward_files.load_with_own_base(base, "cpu")
    overrides = [*SHORT, f"stages.2.rewards=[{{name: reward_model, path: {folder}}}]", "stages.2.evaluation=null"]
    with pytest.raises(RecipeError, match=r"stages\[2\]\.rewards\[0\]\.path(.|\n)*requires a score head"):
        compose(recipe.load(PIPELINE, overrides), Registry())


def test_model_on_another_base_is_not_shared(adapter: Path, base: Path) -> None:
    other = policy(base)
    with torch.no_grad():
        next(x for name, x in other.named_parameters() if "embed_tokens" in name).mul_(1.5)
    assert reward_files.load_on_policy_base(adapter, other) is None
    part = learned_reward.LearnedReward(path=str(adapter), shared=True)
    with pytest.raises(RlmError, match="trained on another base"):
        part.setup(other, {})
    moving = AutoModelForCausalLM.from_pretrained(base)
    with pytest.raises(RlmError, match="is not frozen"):
        part.setup(moving, {})
    apart = learned_reward.LearnedReward(stage="reward")
    apart.setup(other, {"reward": adapter})
    prompts, completions = [[{"role": "user", "content": "7773727712?"}]] * 3, ["72", "", "777372"]
    alone = reward_files.load_with_own_base(adapter, torch.device("cpu")).scores(conversations(adapter), 64)
    assert apart(prompts, completions) == pytest.approx(alone, abs=1e-6)


def test_memory_is_known_before_loading(done: Path, adapter: Path, base: Path) -> None:
    """The estimate is exact but for file headers, with an adapter on the policy's base and with a base of its own."""
    *_, stage = compose(recipe.load(PIPELINE, SHORT), Registry(), build_environment=False)
    source = ModelSpec(AutoModelForCausalLM.from_pretrained(base).config, Path, Path, "")
    stage = replace(stage, source=source)
    judge = reward_files.load_on_policy_base(adapter, other := policy(base))
    assert judge is not None
    taken = sum(4 * x.numel() for name, x in other.named_parameters() if ".reward" in name)
    assert taken > 0
    whole = sum(4 * x.numel() for x in AutoModelForCausalLM.from_pretrained(base).parameters())
    head = 4 * (other.config.hidden_size + 1)
    here, apart = (
        learned_reward.LearnedReward(stage="reward"),
        learned_reward.LearnedReward(stage="reward", shared=False),
    )
    assert here.memory_bytes(stage) == taken + head
    assert apart.memory_bytes(stage) == taken + head + whole
    there = learned_reward.LearnedReward(path=str(adapter))
    assert there.memory_bytes(stage) == pytest.approx(taken + head, abs=4096)
    assert there.memory_bytes(replace(stage, lora=None)) == there.memory_bytes(stage) + whole


REFUSED = {
    "rewards": ("stages.1.rewards=[gist]", r"stages\[1\]\.rewards(.|\n)*takes no rewards"),
    "columns": ("stages.1.environment=addition", r"stages\[1\]\.environment(.|\n)*requires the column 'chosen'"),
    "unknown": ("stages.2.rewards.0.stage=rewrd", r"stages\[2\]\.rewards\[0\]\.stage(.|\n)*did you mean 'reward'"),
    "other": ("stages.2.rewards.0.stage=sft",
        r"the stage 'sft' produces no reward_model before this one(.|\n)*allowed: reward"),
    "elsewhere": ("stages.2.rewards.0.processes=2", r"stages\[2\]\.rewards\[0\]\.processes(.|\n)*requires the policy"),
    "no model": ("stages.2.rewards=[{name: reward_model, path: .}]",
        r"stages\[2\]\.rewards\[0\]\.path(.|\n)*no reward model in this folder"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", REFUSED)
def test_invalid_settings_are_rejected_before_loading(
    wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    change, message = REFUSED[wrong]
    more = ["stages.2.evaluation.metric=reward_model"] if wrong in ("folder", "no model") else []
    with pytest.raises(RecipeError, match=message):
        compose(recipe.load(PIPELINE, [*SHORT, change, *more]), Registry())


JUDGE = Path(__file__).parent / "no such folder"


@pytest.fixture(autouse=True)
def one_judge(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Load the reward model once for all instances, and shorten the longest texts to its context length."""
    if "law" not in request.fixturenames or "LearnedReward" not in request.node.name:
        return
    judge = reward_files.load_with_own_base(request.getfixturevalue("adapter"), torch.device("cpu"))
    monkeypatch.setattr(reward_files, "load_with_own_base", lambda *_: judge)
    monkeypatch.setattr("rlm_testing.reward_laws.UNUSUAL", ("", " ", "²½", "<answer>4", "(" * 50, "9" * 99))


test_LearnedReward = conformance("rlm_rewards", learned_reward.LearnedReward, knobs={"path": str(JUDGE)})
