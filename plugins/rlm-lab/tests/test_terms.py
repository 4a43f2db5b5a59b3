"""Terms of the field: each resolves to a name of ours and back, and every name has a sentence."""

from __future__ import annotations

import pytest
from rlm_lab.explain import explain, find
from rlm_lab.explain_text import render
from rlm_lab.recipe_keys import recipe_keys

from rlm_plugins.equation import batch, glossary
from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.registry import Registry

REGISTRY = Registry()
OF_ASYNC = ("trainer.stale", "trainer.old_policy", "trainer.generation_device")
TARGETS = sorted({target for targets in glossary.TERMS.values() for target in targets})


def without_plugin(address: str) -> str:
    """Return an address with the bare name of a part: ``penalties/kl`` of ``penalties/package/kl``."""
    if ":" in address:
        return address
    key, slash, name = address.partition("/")
    return f"{key}{slash}{name.rpartition('/')[2]}"


@pytest.mark.parametrize("target", TARGETS)
def test_each_term_has_one_target(target: str) -> None:
    if target in OF_ASYNC:
        pytest.importorskip("rlm_engines")
    first, *others = find(target, REGISTRY)
    assert without_plugin(first["address"]) == target
    assert not [entry for entry in others if entry["address"] == target]


@pytest.mark.parametrize(
    ("term", "target"),
    [
        ("kl_coef", "penalties.beta"),
        ("vf_coef", "penalties/value_loss"),
        ("dynamic sampling", "filters.refill"),
        ("value function", "critic"),
        ("clip_higher", "policy_loss/clip.epsilon_high"),
        ("ppo_epochs", "trainer.num_iterations"),
        ("token-level loss", "aggregator/token_mean"),
        ("off-policy correction", "token_weights/truncated_importance"),
        ("TIS", "token_weights/truncated_importance.cap"),
        ("overlong_buffer", "shapers/overlong"),
        ("actor_rollout_ref.actor.clip_ratio_high", "policy_loss/clip.epsilon_high"),
    ],
)
def test_term_and_name_refer_to_each_other(term: str, target: str) -> None:
    assert target in glossary.translate(term)
    entries = explain(term, REGISTRY)
    (entry,) = [entry for entry in entries if entry["kind"] == "term"]
    assert target in [found["address"] for found in entry["targets"]]
    assert f"rlm explain {target}" in render(entry)
    spelling = glossary.normalized(term).rpartition(".")[2]
    for ours in explain(target, REGISTRY):
        if ours["address"] == target:
            assert (spelling, target) in ours["elsewhere"]
            assert spelling in render(ours)


def test_every_recipe_key_has_a_sentence() -> None:
    hooks = {hook.key for hook in HOOKS.values()}
    lacking = [path for path, key in recipe_keys().items() if not key["doc"] and path not in hooks]
    assert not lacking


def test_a_setting_that_the_algorithm_decides_names_its_place() -> None:
    (setting,) = [entry for entry in explain("trainer.loss_type", REGISTRY) if entry["kind"] == "setting"]
    assert "not a recipe key" in render(setting)
    assert "aggregator" in render(setting)


@pytest.mark.parametrize("name", sorted(batch.MEANINGS))
def test_a_field_of_the_batch_is_explained(name: str) -> None:
    (field,) = [entry for entry in explain(name, REGISTRY) if entry["kind"] == "batch"]
    assert batch.MEANINGS[name] in render(field)


def test_kind_prefix_selects_the_entry() -> None:
    assert [entry["kind"] for entry in explain("batch:entropy", REGISTRY)] == ["batch"]
    assert [entry["kind"] for entry in explain("metric:entropy", REGISTRY)] == ["metric"]
    assert [entry["kind"] for entry in explain("algorithm:grpo", REGISTRY)] == ["algorithm"]


def test_a_symbol_of_the_equation_is_explained_by_its_hook() -> None:
    assert [entry["name"] for entry in explain("Â", REGISTRY)] == ["rlm_advantages"]
