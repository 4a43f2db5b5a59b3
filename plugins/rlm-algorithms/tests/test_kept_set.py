"""The section `kept_set`: exact expectations over all completions of a model with few tokens, and runs."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from rlm_algorithms.kept_passes import KeptSetPasses
from transformers import LlamaConfig, LlamaForCausalLM

from rlm_plugins import recipe
from rlm_plugins.errors import RecipeError
from rlm_plugins.registry import Registry
from rlm_plugins.run.train import train

TOKENS, LENGTH, PROMPT = 6, 3, [1, 2]
ALL = [list(ids) for ids in itertools.product(range(TOKENS), repeat=LENGTH)]
RECIPE = """
model: {name: scratch, hidden: 16, layers: 1, lora: {r: 2, target_modules: all-linear}}
environment: {name: addition, digits: 1, train_rows: 8, test_rows: 0}
rewards: [accuracy]
algorithm: {name: grpo, penalties: [{name: kl, beta: 0.1}]}
speed: none
generator: fast
kept_set: {}
trainer: {max_steps: 2, per_device_train_batch_size: 4, num_generations: 4, max_completion_length: 4, top_k: 3}
"""


@pytest.fixture
def policy() -> Any:
    """Return a policy with random weights and a random adapter, in float64."""
    torch.manual_seed(0)
    size = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=TOKENS, initializer_range=1.0, **size)).double()
    policy = get_peft_model(model, LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False)).double()
    return policy.eval()


def passes_of(policy: Any, **rules: Any) -> KeptSetPasses:
    args = SimpleNamespace(**{"top_k": 0, "top_p": 1.0, "min_p": None, **rules})
    accelerator = SimpleNamespace(unwrap_model=lambda model: model, autocast=lambda: torch.no_grad())
    context = SimpleNamespace(model=policy, accelerator=accelerator, temperature=1.0, args=args)

    def full(model: Any, ids: torch.Tensor, mask: torch.Tensor, width: int, *_: Any) -> Any:
        logits = model(input_ids=ids).logits[:, -width - 1 : -1]
        return logits.log_softmax(-1).gather(-1, ids[:, -width:, None])[..., 0], None, None

    return KeptSetPasses({}, context, full)


def log_probs(passes: KeptSetPasses, policy: Any) -> torch.Tensor:
    ids = torch.tensor([PROMPT + completion for completion in ALL])
    return passes.compute(policy, ids, torch.ones_like(ids), LENGTH)[0]


def sampling_probabilities(policy: Any, **rules: Any) -> torch.Tensor:
    """Return the probability of each completion under `generate`, from the scores that it samples from."""
    found = []
    for completion in ALL:
        p = 1.0
        for t, token in enumerate(completion):
            ids = torch.tensor([PROMPT + completion[:t]])
            out = policy.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=True, max_new_tokens=1, pad_token_id=0,
                output_scores=True, return_dict_in_generate=True, **{"top_k": 0, **rules},
            )  # fmt: skip
            p *= out.scores[0].double().softmax(-1)[0, token].item()
        found.append(p)
    return torch.tensor(found, dtype=torch.float64)


OTHERS = [pytest.param(rules, marks=pytest.mark.full) for rules in ({"top_k": 3}, {"top_p": 0.8}, {"min_p": 0.2})]


@pytest.mark.parametrize("rules", [{"top_k": 4, "top_p": 0.7}, *OTHERS], ids=str)
def test_ratio_has_mean_one(policy: Any, rules: dict[str, Any]) -> None:
    """E[w] = Σ_y p(y) w(y), with p the distribution of `generate`, before and after a change of the adapter."""
    p = sampling_probabilities(policy, **rules)
    kept, full = passes_of(policy, **rules), passes_of(policy)
    old, old_full = log_probs(kept, policy), log_probs(full, policy)
    sampled = p > 0
    torch.testing.assert_close(old.sum(1).exp()[sampled], p[sampled], rtol=1e-5, atol=1e-9)  # scores are in float32
    p = torch.where(sampled, old.sum(1).exp(), 0.0)
    with torch.no_grad():
        for name, x in policy.named_parameters():
            if "lora" in name:
                x += 0.3 * torch.randn_like(x)
    new, new_full = log_probs(kept, policy), log_probs(full, policy)
    assert abs((p * (new - old).sum(1).exp()).sum().item() - 1) < 1e-12
    assert abs((p * (new_full - old_full).sum(1).exp()).sum().item() - 1) > 0.01, "the control: full log-probs"


def test_a_reference_is_over_all_tokens(policy: Any) -> None:
    passes, full = passes_of(policy, top_k=2), passes_of(policy)
    with policy.disable_adapter():
        assert torch.equal(log_probs(passes, policy), log_probs(full, policy))
    assert not passes._kept


def test_value_and_gradient_are_those_of_each_position_alone(policy: Any) -> None:
    completion = [3, 0, 5]
    ids = torch.tensor([PROMPT + completion])
    passes = passes_of(policy, top_k=3)
    passes.context.accelerator.autocast = torch.enable_grad
    logp, entropy, _ = passes.compute(policy, ids, torch.ones_like(ids), LENGTH, compute_entropy=True)
    expected = []
    for t, token in enumerate(completion):
        logits = policy(input_ids=torch.tensor([PROMPT + completion[:t]])).logits[0, -1]
        kept = sorted({*logits.topk(3).indices.tolist(), token})
        over_kept = torch.distributions.Categorical(logits=logits[kept])
        expected.append(torch.stack([over_kept.log_prob(torch.tensor(kept.index(token))), over_kept.entropy()]))
    assert entropy is not None
    ours, theirs = torch.stack([logp[0], entropy[0]], 1), torch.stack(expected)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    weights = [x for name, x in policy.named_parameters() if "lora" in name]
    for mine, other in zip(*(torch.autograd.grad(x.sum(), weights) for x in (ours, theirs)), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-12)


def trained(folder: Path, *overrides: str) -> list[dict[str, Any]]:
    (folder / "recipe.yaml").write_text(RECIPE)
    run = train(recipe.load(folder / "recipe.yaml", overrides), Registry(), folder / "run")
    return list(run.records())


def test_run_with_two_updates_a_batch_starts_at_ratio_one(tmp_path: Path) -> None:
    (first, *_) = [line for line in trained(tmp_path, "trainer.num_iterations=2") if "loss" in line]
    assert first["entropy"] <= torch.tensor(3.0).log() + 1e-6, "of three tokens"
    assert first["clip_ratio/region_mean"] == 0.0


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("trainer.top_k=0", "every token is kept"),
        ("trainer.stale=1", "`stale`"),
        ("trainer.repetition_penalty=1.2", "`repetition_penalty`"),
        ("trainer.generation_kwargs={top_k: 2}", "`generation_kwargs`"),
        ("speed={}", "both replace the forward passes"),
    ],
)
def test_what_has_no_kept_set_is_refused(tmp_path: Path, override: str, problem: str) -> None:
    with pytest.raises(RecipeError, match=problem):
        trained(tmp_path, override)
