"""Local judges: a checkpoint, and the policy with its adapter off or on."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from rlm_judge import judge_score
from rlm_judge.local import Local, generate_answers
from rlm_judge.spec import Answer, LocalSpec, ModelHandle, PolicySpec, Query, Usage
from rlm_judge.toy_sums import sums_and_verdicts
from rlm_testing import conformance
from rlm_testing.fake_packages import registered
from typer.testing import CliRunner

from rlm_plugins.builtin.models import scratch
from rlm_plugins.cli import app
from rlm_plugins.errors import PartError
from rlm_plugins.registry.part import Bound, Part
from rlm_plugins.rewards.trl_adapter import compute_scores, setup_parts, trl_reward
from rlm_plugins.stage import Reward

RECIPES = Path(__file__).parents[1]

test_laws_of_the_world = conformance("rlm_environments", sums_and_verdicts, knobs={"train_rows": 50})


def chain_model(*generated: str) -> tuple[Any, Any]:
    """Return a model that generates `generated` and ends: attention and MLP are zero, each token predicts one other."""
    source = scratch(hidden=64, layers=1, heads=2, intermediate=8)
    model, tokenizer = source.load(), source.tokenizer()
    ids = [tokenizer.convert_tokens_to_ids(token) for token in ("<|assistant|>", *generated, "<|end|>")]
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "o_proj" in name or "down_proj" in name or "lm_head" in name:
                weight.zero_()
        model.get_input_embeddings().weight.copy_(torch.eye(len(tokenizer), 64))
        for now, then in pairwise(ids):
            model.lm_head.weight[then, now] = 1.0
    return model, tokenizer


def adapted(model: Any, tokenizer: Any, first_token: str) -> Any:
    """Return the judge with an adapter that makes it begin with `says`."""
    config = LoraConfig(r=1, lora_alpha=1, target_modules=["lm_head"], task_type="CAUSAL_LM")
    policy = get_peft_model(model, config)
    begin, token = (tokenizer.convert_tokens_to_ids(x) for x in ("<|assistant|>", first_token))
    weights = {name: weight for name, weight in policy.named_parameters() if "lora_" in name}
    with torch.no_grad():
        for name, weight in weights.items():
            weight.zero_()
            if "lora_A" in name:
                weight[0, begin] = 1.0
            else:
                weight[token, 0] = 5.0
        policy.get_base_model().lm_head.base_layer.weight[tokenizer.convert_tokens_to_ids("<|end|>"), token] = 1.0
    return policy


def question(user: str = "2+2=") -> Query:
    return Query("", user, lambda text: float(text) if text.isdigit() else None)


def test_checkpoint_as_judge(tmp_path: Path) -> None:
    model, tokenizer = chain_model("7")
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    usage = Usage()
    judge = Local(LocalSpec(path=str(tmp_path), batch_size=2, max_tokens=5))
    found = asyncio.run(judge.ask([question(), question("12+30="), question(), question("1")], usage))
    assert found == [Answer(7.0)] * 4
    assert (usage.tokens_in, usage.tokens_out) == (4 + 2 + 6 + 2 + 1 + 2, 3)
    knobs: dict[str, Any] = {"judge": LocalSpec(path=str(tmp_path), max_tokens=5), "template": "{answer}"}
    assert asyncio.run(judge_score(["4", "?"], ["2+2="] * 2, scale="raw", **knobs)) == [7.0, 1.0]


@pytest.mark.parametrize(("generated", "why"), [(("7", "8", "9"), "cut off"), (("+",), "unreadable")])
def test_answers_without_a_verdict(generated: tuple[str, ...], why: str) -> None:
    judge_model = ModelHandle(*chain_model(*generated))
    assert generate_answers(judge_model, [question()], PolicySpec(policy="current", max_tokens=3), Usage()) == [
        Answer(None, why)
    ]


def judging(policy: str) -> Bound:
    """Return a bound reward whose judge is the policy."""
    knobs = {"judge": {"policy": policy, "max_tokens": 3}, "template": "{answer}", "scale": "raw"}
    return Part("rlm_rewards", "judge_score", "judge", judge_score).bind(knobs)


def score(reward: Bound, state: object = "training") -> list[float | None]:
    return compute_scores(trl_reward(Reward("it", reward)), {**BATCH, "trainer_state": state})


BATCH: dict[str, Any] = {"prompts": ["2+2="], "completions": ["4"], "completion_ids": [[1]]}


def test_policy_as_judge_with_adapter_off_or_on() -> None:
    model, tokenizer = chain_model("7")
    policy = adapted(model, tokenizer, "3").train()
    base, current = judging("base"), judging("current")
    setup_parts([base, current], policy, {}, tokenizer)
    drawn = torch.get_rng_state()
    training = SimpleNamespace(global_step=1)
    assert score(base, training) == [7.0]
    assert score(current, training) == [3.0]
    assert score(base, None) == [7.0], "a model that is judged judges as well"
    assert policy.training
    assert torch.equal(torch.get_rng_state(), drawn)
    assert any(weight.requires_grad for weight in policy.parameters())


def test_policy_judge_requires_a_policy_with_adapters() -> None:
    training, base = SimpleNamespace(global_step=1), judging("base")
    with pytest.raises(PartError, match="requires a policy"):
        score(base, training)
    assert score(base, None) == [None]
    setup_parts([base], *chain_model("7")[:1], {}, chain_model("7")[1])
    with pytest.raises(PartError, match="requires adapters"):
        score(base, training)
    assert score(base, None) == [None], "rlm eval, of a model that has none"
    assert judging("base").knobs["judge"].handle is None, "another stage, another policy"


_registered = registered("judge")


@pytest.mark.slow
@pytest.mark.usefixtures("_registered")
@pytest.mark.parametrize(
    "recipe",
    [
        "recipe.yaml",
        *(pytest.param(f"recipes/{name}.yaml", marks=pytest.mark.full) for name in ("self_rewarding", "coevolving")),
    ],
)
def test_recipe_trains(recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlm_judge.fake import Fake

    monkeypatch.chdir(tmp_path)
    steps = [f"stages.{stage}.trainer.max_steps=2" for stage in (0, 1)]
    with Fake() as judge:
        here = [f"rewards.0.judge.url={judge.url}"] if recipe == "recipe.yaml" else []
        done = CliRunner().invoke(
            app, ["train", str(RECIPES / recipe), "--name", "run", *steps, "evaluation.rows=4", *here]
        )
    assert done.exit_code == 0, done.output
    (file,) = tmp_path.rglob("metrics.jsonl")
    logged = [json.loads(line) for line in file.read_text().splitlines()]
    assert any(line.get("judge_score/asked", 0) > 0 for line in logged)
    assert all(line.get("judge_score/retries", 0) == 0 for line in logged)
