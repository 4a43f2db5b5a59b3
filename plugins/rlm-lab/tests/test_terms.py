"""Terms of the field: each resolves to a name of ours and back, and every name has a sentence."""

from __future__ import annotations

import pytest
from rlm_lab.explain import explain, find
from rlm_lab.explain_text import render
from rlm_lab.recipe_keys import recipe_keys

from rlm_plugins.equation import batch, glossary
from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.errors import RlmError
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
        ("clip_range", "policy_loss/clip.epsilon"),
        ("cliprange_value", "penalties/value_loss.epsilon"),
        ("vf_coef", "penalties/value_loss"),
        ("loss_mask", "batch:mask"),
        ("dynamic sampling", "filters.refill"),
        ("packing", "speed.padding_free"),
        ("value function", "critic"),
        ("GAE-lambda", "advantage/gae.lam"),
        ("log_probs", "batch:logp"),
        ("clip_higher", "policy_loss/clip.epsilon_high"),
        ("approx_kl", "penalties/kl_old"),
        ("clipfrac", "metric:policy_loss/clipped_<low|high>"),
        ("ppo_epochs", "trainer.num_iterations"),
        ("group_size", "trainer.num_generations"),
        ("token-level loss", "aggregator/token_mean"),
        ("importance sampling", "importance"),
        ("off-policy correction", "token_weights/truncated_importance"),
        ("TIS", "token_weights/truncated_importance.cap"),
        ("entropy_coef", "penalties/entropy"),
        ("reference model", "batch:ref_logp"),
        ("overlong_buffer", "shapers/overlong"),
        ("seq_mean_token_sum", "aggregator/sequence_sum"),
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


def test_a_part_lists_the_terms_of_its_knobs() -> None:
    (clip,) = explain("clip", REGISTRY)
    text = render(clip)
    assert "known elsewhere as" in text
    assert "`epsilon` of `clip`: clip_range" in text


@pytest.mark.parametrize("name", ["packing", "padding_free", "temperature", "num_generations", "lora", "critic"])
def test_a_term_that_is_a_name_of_ours_is_explained_by_it(name: str) -> None:
    assert any(entry["kind"] in ("key", "setting") for entry in explain(name, REGISTRY))


def test_every_recipe_key_has_a_sentence() -> None:
    hooks = {hook.key for hook in HOOKS.values()}
    lacking = [path for path, key in recipe_keys().items() if not key["doc"] and path not in hooks]
    assert not lacking


def test_a_section_lists_its_keys_with_a_sentence_each() -> None:
    for name in ("critic", "evaluation"):
        (section,) = [entry for entry in explain(name, REGISTRY) if entry["kind"] == "key"]
        text = " ".join(render(section).split())
        assert section["keys"]
        for key in section["keys"]:
            assert key["doc"]
            assert " ".join(key["doc"].split()) in text


@pytest.mark.parametrize("name", ["trainer.learning_rate", "learning_rate"])
def test_a_trainer_setting_is_explained_by_its_own_help(name: str) -> None:
    (setting,) = [entry for entry in explain(name, REGISTRY) if entry["kind"] == "setting"]
    assert setting["default"] == 1e-6
    assert "AdamW" in setting["doc"]
    assert "trl.GRPOConfig" in render(setting)


def test_a_setting_that_the_algorithm_decides_names_its_place() -> None:
    (setting,) = [entry for entry in explain("trainer.loss_type", REGISTRY) if entry["kind"] == "setting"]
    assert "not a recipe key" in render(setting)
    assert "aggregator" in render(setting)


@pytest.mark.parametrize("name", sorted(batch.MEANINGS))
def test_a_field_of_the_batch_is_explained(name: str) -> None:
    (field,) = [entry for entry in explain(name, REGISTRY) if entry["kind"] == "batch"]
    assert batch.MEANINGS[name] in render(field)


def test_the_data_of_rewards_is_explained() -> None:
    for name, meaning in {**batch.SAMPLE, **batch.PER_COMPLETION}.items():
        (field,) = [entry for entry in explain(name, REGISTRY) if entry["kind"] == "batch"]
        assert batch.MEANINGS.get(name, meaning) in render(field)


def test_kind_prefix_selects_the_entry() -> None:
    assert [entry["kind"] for entry in explain("batch:entropy", REGISTRY)] == ["batch"]
    assert [entry["kind"] for entry in explain("metric:entropy", REGISTRY)] == ["metric"]
    assert [entry["kind"] for entry in explain("algorithm:grpo", REGISTRY)] == ["algorithm"]


def test_a_symbol_of_the_equation_is_explained_by_its_hook() -> None:
    assert [entry["name"] for entry in explain("Â", REGISTRY)] == ["rlm_advantages"]


def test_an_unknown_name() -> None:
    with pytest.raises(RlmError, match="unknown name 'qqqqqqqq'"):
        explain("qqqqqqqq", REGISTRY)
