"""The glossaries: every logged metric has an entry, each term occurs once, and an unknown name gets a hint."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from fixtures_trainer import clipped, logged, trainer
from rlm_lab.metrics import METRICS, Metric, find

from rlm_plugins.equation import glossary
from rlm_plugins.equation.glossary import ENTRIES
from rlm_plugins.registry import Registry
from rlm_plugins.run.launch import launch

RECIPE = """
environment: {name: addition, digits: 2, test_rows: 4}
rewards: [accuracy, {name: length, limit: 8, weight: 0.1}, token_sum]
plugins: {load: [token_sum.py]}
evaluation: {metric: length, every: 1, max_new_tokens: 4}
stages:
  - model: {name: scratch, hidden: 16, heads: 2, intermediate: 16}
    algorithm: sft
    trainer: {max_steps: 1, per_device_train_batch_size: 2, include_num_input_tokens_seen: true}
  - algorithm:
      name: grpo
      shapers: [overlong]
      filters: [nonzero_std]
      penalties: [{name: kl, beta: 0.1}, {name: entropy, beta: 0.01}, {name: kl_old, beta: 0.01}]
    trainer: {max_steps: 2, per_device_train_batch_size: 8, num_generations: 4, max_completion_length: 4}
  - algorithm: cispo
    trainer: {max_steps: 1, per_device_train_batch_size: 8, num_generations: 4, max_completion_length: 4}
"""


PLUGIN = """
from rlm_plugins import hookimpl

def token_sum(completion_ids):
    return [float(sum(ids)) for ids in completion_ids]

@hookimpl
def rlm_rewards():
    return {"token_sum": token_sum}
"""


def test_every_metric_is_documented() -> None:
    for metric in METRICS:
        assert metric.meaning, metric.name
        assert metric.healthy, metric.name


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_each_metric_finds_its_own_entry(metric: Metric) -> None:
    example = re.sub(r"<([^>|]+)[^>]*>", r"\1", metric.name)
    assert find(example) is metric


@pytest.mark.parametrize(
    ("logged", "entry"),
    [
        ("held_out/accuracy", "held_out/<label>"),
        ("held_out/low", "held_out/<low|high>"),
        ("rewards/code/unit/std", "rewards/<label>/<mean|std>"),
        ("policy_loss/mine", "<importance|policy_loss|token_weights|penalties|aggregator>/<name>"),
        ("completions/max_terminated_length", "completions/<mean|min|max>_terminated_length"),
    ],
)
def test_patterns(logged: str, entry: str) -> None:
    found = find(logged)
    assert found is not None
    assert found.name == entry


@pytest.mark.slow
def test_everything_a_run_logs_is_in_the_glossary(tmp_path: Path) -> None:
    (tmp_path / "token_sum.py").write_text(PLUGIN)
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    run = launch(tmp_path / "tiny.yaml", [], out=tmp_path / "run")
    logged = {name for record in run.records() for name in record}
    assert {"loss", "grad_norm", "held_out/accuracy", "penalties/kl", "filters/kept", "shapers/reward"} <= logged
    assert {"policy_loss/clipped_low", "policy_loss/capped", "entropy", "rewards/length/std"} <= logged
    unknown = sorted(name for name in logged if find(name) is None)
    assert not unknown, json.dumps(unknown)
    generic = next(metric for metric in METRICS if metric.name.startswith("<"))
    assert not [name for name in logged if find(name) is generic], "ours have entries of their own"


def test_the_spread_of_the_advantages_is_that_of_all_trained_tokens(tmp_path: Path) -> None:
    """Whitened over the n tokens of the batch with n − 1, they have a std of √((n − 1) / n)."""
    whitened = Registry().find("rlm_advantages", "batch_whitened").bind({"unbiased": True})
    equation_trainer = trainer(tmp_path, clipped(advantage=whitened), max_steps=1)
    equation_trainer.train()
    (tokens,) = logged(equation_trainer, "num_tokens")
    prompts = 8 * 4  # every question has four letters
    assert logged(equation_trainer, "advantage/std")[0] == pytest.approx(
        ((tokens - prompts - 1) / (tokens - prompts)) ** 0.5
    )


def test_no_term_occurs_twice() -> None:
    spellings = [spelling for spellings, _ in ENTRIES for spelling in spellings]
    assert len(spellings) == len(set(spellings)) == len(glossary.TERMS)
    assert len(ENTRIES) >= 90


@pytest.mark.parametrize(
    ("term", "allowed", "hint"),
    [
        ("clip_range", ["epsilon", "epsilon_high", "delta"], "did you mean 'epsilon'?"),
        ("packing", ["padding_free"], "did you mean 'padding_free'?"),
        ("loss_agg_mode", ["aggregator", "advantage"], "did you mean 'aggregator'?"),
        ("vf_coef", ["gamma", "lam"], "'vf_coef' is `penalties.beta` or `value_loss` (penalties): see `rlm explain"),
        ("epsilom", ["epsilon"], "did you mean 'epsilon'?"),
        ("nonsense", ["epsilon"], ""),
    ],
)
def test_the_hint_for_an_unknown_name(term: str, allowed: list[str], hint: str) -> None:
    assert glossary.suggest(term, allowed).startswith(hint)
    assert bool(glossary.suggest(term, allowed)) == bool(hint)
