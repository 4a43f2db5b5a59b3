"""recipes/papers: one recipe per algorithm, every number with its source, each trained for two steps."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
import yaml
from datasets import Dataset
from golden_run import CANNED, paper, write_pool
from golden_run import PAPERS as FILES
from repetition import one_in
from rlm_algorithms.replay_rollouts import Replay
from safetensors.torch import load_file
from typer.testing import CliRunner

from rlm_plugins import recipe
from rlm_plugins.builtin import dataset_environment
from rlm_plugins.cli import app
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry
from rlm_plugins.run.folder import Run
from rlm_plugins.run.train import train

PACKAGES = Path(__file__).parent / "paper_packages.py"
REGISTRY, WITH_CANNED = Registry([PACKAGES]), Registry([CANNED, PACKAGES])
MISSING = {"dpo", "kto", "process_reward_model", "critique_reward_model", "ettrl", "hierarchical"}
"""Without a recipe here: two train no policy, `ettrl` is in survey/, preferences are in rlm-algorithms, and
`hierarchical` needs roles."""

SOURCE = re.compile(r"arXiv \d{4}\.\d{5}|(script|ours|TRL|verl|OpenRLHF|ROLL|DAPO): ?\S")
"""What a comment must say about a number."""

PUBLISHED = json.loads((Path(__file__).parent / "data/published_rows.json").read_text(encoding="utf-8"))
"""A row as each data set has it on the hub: the columns that the recipes map."""

ANSWER = r"so it is $\boxed{%d}$."
"""How a completion answers where its prompt asks for it."""

KEYS = (
    *("learning_rate", "lr_scheduler_type", "warmup_steps", "weight_decay", "adam_beta2"),
    *("num_train_epochs", "max_steps"),
    *("num_generations", "per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation"),
    *("num_iterations", "max_completion_length", "max_length", "temperature", "top_p", "top_k", "max_grad_norm"),
    *("use_vllm", "vllm_importance_sampling_correction"),
)
"""`trainer:` in one order, so that `diff` compares two files line by line."""


@pytest.fixture(autouse=True)
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to a folder with a pool of completions to replay."""
    monkeypatch.chdir(tmp_path)
    write_pool(Path("successes.jsonl"))


OF_GAMES = [file for file in FILES if file.stem in ("gigpo", "arpo", "echo")]
"""Recipes of an environment of turns; their package trains them."""
OF_DATA = [file for file in FILES if file not in OF_GAMES]
"""Recipes with a data set."""
papers = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def test_one_recipe_per_algorithm() -> None:
    rows = {part.name for part in REGISTRY if part.hook == "rlm_algorithms" and "@" not in part.name}
    files = {file.stem for file in FILES}
    assert rows - files == MISSING
    assert files <= rows
    assert all(recipe.load(file).bodies[0]["algorithm"]["name"] == file.stem for file in FILES)


@papers
def test_names_knobs_and_settings(file: Path) -> None:
    (stage,) = compose(recipe.load(file), REGISTRY, build_environment=False)
    assert stage.body["model"]["path"].count("/") == 1
    assert file in OF_GAMES or stage.body["environment"]["path"] in PUBLISHED


@papers
def test_trainer_settings_are_uniform(file: Path) -> None:
    trainer = recipe.load(file).bodies[0]["trainer"]
    assert list(trainer) == [key for key in KEYS if key in trainer]
    assert "warmup_steps" not in trainer or trainer["lr_scheduler_type"] != "constant", "constant knows no warm-up"
    assert trainer.get("steps_per_generation", 0) % trainer["gradient_accumulation_steps"] == 0, "whole updates"
    for line in file.read_text().splitlines():
        if told := re.search(r": (\d+) +#.* \((\d+) × (\d+)\)$", line):
            assert (int(told[2]), told[3]) == (trainer["per_device_train_batch_size"], told[1])


def numbers(text: str) -> list[int]:
    """Return the line of each number, from 0."""

    def walk(node: yaml.Node) -> list[yaml.Node]:
        if isinstance(node, yaml.MappingNode):
            return [found for _, value in node.value for found in walk(value)]
        if isinstance(node, yaml.SequenceNode):
            return [found for value in node.value for found in walk(value)]
        return [node]

    plain = [node for node in walk(yaml.compose(text)) if isinstance(node, yaml.ScalarNode) and node.style is None]
    return [node.start_mark.line for node in plain if re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?", node.value)]


def test_numbers_are_found() -> None:
    assert numbers("a: 1\nb: {c: 1e-6, d: x1}\ne: [2.5, '3']\nf: -4\n") == [0, 1, 2, 3]


@papers
def test_every_number_has_its_source(file: Path) -> None:
    lines, found = file.read_text().splitlines(), numbers(file.read_text())
    assert len(found) == len(set(found)), "one number per line, or a comment does not say which one it means"
    assert [lines[n] for n in found if not SOURCE.search(lines[n].partition(" # ")[2])] == []


@papers
def test_the_header(file: Path) -> None:
    text = file.read_text()
    header = re.match(r"(#.*\n)+", text)
    assert header is not None
    assert 3 <= header[0].count("\n") <= 6
    assert "# Formula" in header[0]
    assert "# Not reproduced: " in header[0] or "There is no published run" in header[0]
    assert ("# script: " in text) == ("# Script: " in header[0])
    for name in ("DAPO", "ROLL"):
        assert (f"# {name}: " not in text) or f"alled {name}: " in header[0]


@pytest.mark.parametrize("file", OF_DATA, ids=lambda file: file.stem)
def test_data_become_prompts_that_rewards_can_score(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def rows(path: str, split: str, **_: Any) -> Dataset:
        opened.append(split)
        row = json.dumps(PUBLISHED[path])
        return Dataset.from_list([json.loads(row if len(opened) == 1 else row.replace("1+1", "2+2"))] * 8)

    monkeypatch.setattr(dataset_environment, "open_split", rows)
    found = recipe.load(file, ["model={name: scratch, lora: {r: 2}}"])
    monkeypatch.setattr("rlm_plugins.recipe.compose.check_size", lambda *_: None)  # eight examples, not a generation
    monkeypatch.setattr("rlm_engines.vllm_engine.check_package", lambda *_: None)  # no vLLM on this machine
    monkeypatch.setattr("rlm_plugins.recipe.compose.check_installed", lambda *_: None)
    monkeypatch.setattr("rlm_plugins.recipe.compose.check_stage_texts", lambda *_: None)  # a model for digits only
    monkeypatch.setattr(Replay, "check", lambda self: None)  # the pool is of another world
    (stage,) = compose(found, REGISTRY)
    assert opened[0] == stage.body["environment"]["split"]
    assert opened[0].startswith("train")
    path, row = stage.body["environment"]["path"], stage.environment_spec.train[0]
    assert row["prompt"][-1]["content"].startswith("What is $1+1$?")
    if not stage.rewards:
        wanted = {"sft": "solution", "dft": "solution"}
        for column in stage.trainer.columns:
            assert row[column] == PUBLISHED[path][wanted.get(file.stem, column)]
        return
    completions = [ANSWER % 2, ANSWER % 3]
    assert row["prompt"][-1]["content"].endswith(r"\boxed{}.")
    reward = stage.rewards[0]
    assert reward.part.call({"completions": completions, "answer": [row["answer"]] * 2}) == [1.0, 0.0]
    shown = row.get("demonstration", [])
    assert reward.part.call({"completions": shown, "answer": [row["answer"]] * len(shown)}) == [1.0] * len(shown)


def two_steps(file: Path, folder: Path, *further: str, has_engine: bool = False) -> Run:
    """Train two steps with `algorithm:` unchanged; the reward `accuracy` is random. An engine reports log-probs."""
    torch.set_num_threads(1)
    changes = [*paper(file, recipe.load(file).bodies[0]), "trainer.save_strategy='no'"]
    if has_engine:
        changes = [change for change in changes if not change.startswith("algorithm.rollouts")]
    if file.stem == "flash_reinforce" and not has_engine:
        changes += ["trainer.stale=1"]  # its gate drops completions whose log-probs are far from the policy's
    if file.stem == "kpop" and not has_engine:
        changes += ["algorithm.rollouts=[{name: canned, logprob: -4.5}]"]
    if file.stem == "prime":
        changes += ["algorithm.filters=[accuracy_band]"]  # its other filter drops truncated ones, here all
    if file.stem == "a2po":
        changes += ["algorithm.policy_loss.beta=1.0"]  # with its 1e-3 gradients are as small
    return train(recipe.load(file, [*changes, *further]), WITH_CANNED, folder)


def learned_from(run: Run) -> list[dict[str, Any]]:
    return [record for record in run.records() if "loss" in record]


@pytest.mark.parametrize("file", one_in(4, OF_DATA), ids=lambda file: file.stem)
def test_two_steps(file: Path, tmp_path: Path) -> None:
    steps = learned_from(two_steps(file, tmp_path / "run"))
    assert [step["step"] for step in steps] == [1, 2]
    assert all(math.isfinite(step["loss"]) for step in steps)
    assert any(step["grad_norm"] > 0 for step in steps), "two steps, and nothing was learned from"


SHORTCUTS = ("padding_free", "skip_zero_advantage", "group_micro_batches", "reuse_old_logprobs", "fused_lora")
SPEEDS = {
    "stock": ["speed=none", "generator=none"],
    "usual": ["speed={}"],
    "budget": [f"speed={{{', '.join(f'{name}: true' for name in SHORTCUTS)}, max_tokens_per_micro_batch: 40}}"],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "file", one_in(18, [f for f in OF_DATA if recipe.load(f).bodies[0].get("rewards")]), ids=lambda f: f.stem
)
def test_fast_paths_change_no_algorithm(file: Path, tmp_path: Path) -> None:
    """A generation has two updates of two shuffled and split micro-batches; some groups have an advantage."""
    pieces = ["per_device_train_batch_size=8", "gradient_accumulation_steps=2", "steps_per_generation=4"]
    changes = [*(f"trainer.{each}" for each in pieces), "rewards=[{name: some_coins, as: accuracy}]"]
    if recipe.load(file).bodies[0].get("teacher"):  # the policy with another prompt, to which `scratch` is deaf
        changes += ["model={name: decided, lora: {r: 2, target_modules: all-linear}}"]
    weights, norms = {}, {}
    for name, said in SPEEDS.items():
        run = two_steps(file, tmp_path / name, *changes, *said)
        found = sorted((tmp_path / name).rglob("*.safetensors"))
        weights[name] = torch.cat([x.flatten() for path in found for x in load_file(path).values()])
        norms[name] = [step["grad_norm"] for step in learned_from(run)]
    assert any(norm > 1e-3 for norm in norms["stock"])
    for name in SPEEDS:
        assert norms[name] == pytest.approx(norms["stock"], rel=1e-4, abs=1e-6)
        assert (weights[name] - weights["stock"]).norm() < 1e-5 * weights["stock"].norm()


def test_offline_error_has_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    run, file = CliRunner(), str(FILES[0].with_name("grpo.yaml"))
    told = run.invoke(app, ["check", file, "trainer.use_vllm=false"], env={"COLUMNS": "200"})
    assert told.exit_code == 2
    assert "model (grpo.yaml line " in told.stderr
    assert "the path of a local copy" in told.stderr
    (advice,) = re.findall(r"`rlm check RECIPE (.*?)`", told.stderr)
    rest = run.invoke(app, ["check", file, *advice.split(), "trainer.use_vllm=false"], env={"COLUMNS": "200"})
    assert rest.exit_code == 0
    assert "16 prompts × 64 = 1024 completions" in rest.stdout
