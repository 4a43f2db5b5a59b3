"""The section `references`: each reward is called on reference answers before training; one that pays none is named."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest
from rlm_audit.references import score_references
from rlm_testing.fake_packages import registered
from typer.testing import CliRunner

from rlm_plugins import recipe
from rlm_plugins.builtin.rewards import accuracy
from rlm_plugins.cli import app
from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Part
from rlm_plugins.specs import EnvironmentSpec
from rlm_plugins.stage import Reward

FUNCTIONS = """
import time

def inside(completions, answer):
    return [float(str(right) in text) for text, right in zip(completions, answer)]

def taken(completions, **columns):
    return [float(str(right) in text) for text, right in zip(completions, columns["answer"])]

def never(completions, answer):
    return [0.0] * len(completions)

def of_messages(completions: list[list[dict[str, str]]], answer, **columns):
    return [float(str(right) in text) for text, right in zip(completions, answer)]

def fails(completions, answer):
    return [message["content"] for message in completions]

def brief(completions):
    return [float(1 - len(text)) for text in completions]

def clock(completions):
    return [time.time() for _ in completions]

def odd(completions, answer):
    return [float(int(right) % 2 and right in text) for text, right in zip(completions, answer)]

async def asks(completions):
    return [0.0] * len(completions)
"""
mathematics = registered("math")
SENTENCE = "the reward '{}' pays its own reference answer nothing: given {}, it pays 0 for"


def written_recipe(folder: Path, *rewards: str) -> Path:
    (folder / "mine.py").write_text(FUNCTIONS)
    path = folder / "recipe.yaml"
    path.write_text(f"""
model: {{name: scratch, hidden: 16, heads: 2, intermediate: 16}}
environment: {{name: addition, digits: 2, test_rows: 2}}
rewards: [{", ".join(rewards)}]
algorithm: grpo
trainer: {{max_steps: 1, per_device_train_batch_size: 4, num_generations: 2, max_completion_length: 4}}
""")
    return path


def lines(folder: Path, *rewards: str) -> dict[str, str]:
    (stage,) = compose(recipe.load(written_recipe(folder, *rewards)), Registry())
    return {entry["reward"]: entry["scores"] for entry in stage.sections["references"].check_data(stage, None)}


def mine(*names: str) -> list[str]:
    return [f'"./mine.py:{name}"' for name in names]


def test_each_reward_says_what_it_was_given_and_paid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    functions = mine("inside", "taken", "never", "of_messages", "fails", "brief", "asks", "clock", "odd")
    found = lines(tmp_path, *functions, "accuracy", "format", "{name: accuracy, tag: x, untagged: wrong, as: tagged}")
    for name in ("inside", "taken", "accuracy", "format", "tagged"):
        assert found[name].startswith("given text, pays 1 for '"), name
        assert found[name].endswith(", 0 for an empty completion")
    assert "<x>" in found["tagged"]
    assert found["of_messages"].startswith("given messages, pays 0 for")
    assert found["brief"].endswith("pays -1 for '89', 1 for an empty completion")
    assert found["asks"] == "not called: it is asynchronous, as one that asks a server"
    assert found["fails"].startswith("given text, failed: raised TypeError: string indices must be integers")
    for number, name, given in ((2, "never", "text"), (3, "of_messages", "messages")):
        assert f"rewards[{number}]: {SENTENCE.format(name, given)}" in caplog.text
    assert "rewards[4]: the reward 'fails', given text, failed on a reference answer" in caplog.text
    assert "rewards[7]: the reward 'clock' pays 1" in caplog.text
    assert "it depends on chance, time or earlier calls" in caplog.text
    assert re.search(r"rewards\[8\]: the reward 'odd' pays \d+ of 16 reference answers nothing", caplog.text)
    for name in ("inside", "taken", "accuracy", "format", "brief", "asks"):
        assert f"the reward '{name}'" not in caplog.text


@pytest.mark.parametrize(
    "command", ["train", *(pytest.param(name, marks=pytest.mark.full) for name in ("check", "signal"))]
)
def test_every_command_names_it_before_a_weight_is_loaded(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = [command, str(written_recipe(tmp_path, *mine("never"))), "--trust"]
    with caplog.at_level(logging.WARNING):
        result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert SENTENCE.format("never", "text") in caplog.text + result.output


def table(folder: Path, answers: list[Any], **sections: Any) -> Any:
    import datasets

    rows = [{"prompt": f"{n}+1=?", "answer": answer} for n, answer in enumerate(answers)]
    datasets.Dataset.from_list(rows).to_parquet(str(folder / "rows.parquet"))
    model = {"name": "scratch", "hidden": 16, "heads": 2, "intermediate": 16, "characters": "0123456789+=?a[]\"' ,"}
    trainer = {"per_device_train_batch_size": 2, "num_generations": 2, "max_completion_length": 4}
    environment = {"name": "dataset", "path": str(folder / "rows.parquet"), "chat": False}
    whole = {"model": model, "environment": environment, "algorithm": "grpo", "trainer": trainer, **sections}
    return compose(recipe.of_mapping(whole), Registry())


def test_a_comparison_that_pays_no_reference_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mathematics: None
) -> None:
    """The answer inside a list as text is not paid; a list of accepted answers is; weight 0 only warns."""
    as_text = [f'["{n}"]' for n in range(4)]
    for name in ("math_accuracy", "accuracy"):
        with pytest.raises(RecipeError, match=f"'{name}' pays its own reference answer nothing") as failure:
            table(tmp_path, as_text, rewards=[name])
        assert failure.value.where.startswith("rewards[0]")
        assert failure.value.problem.endswith("the column 'answer' has '[\"0\"]'")
    listed = [[str(n), f"a{n}"] for n in range(4)]
    table(tmp_path, listed, rewards=["accuracy", {"name": "math_accuracy", "weight": 0}])
    assert "rewards[1]: the reward 'math_accuracy' pays its own" in caplog.text
    assert "rewards[0]" not in caplog.text
    table(tmp_path, [*"0123456", '["7"]'], rewards=["math_accuracy"])
    assert "pays 1 of 8 reference answers nothing: given text, it pays no score for '7'" in caplog.text


PROSE = "The sky is blue because short waves are scattered much more strongly by the air, as number {} says."


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("She sold {0}.\n#### {0}", "'accuracy' pays its own reference answer nothing"),
        (r"So it is $\boxed{{{}}}$.", "'accuracy' pays its own reference answer nothing"),
        ("diff --git a/x b/x\n-{}\n+1\n", "the references here are patches"),
        ('{{"inputs": ["1 2"], "outputs": ["{}"]}}', "the references here are tests of programs"),
        (PROSE, "'accuracy' compares text, and the references here are free text"),
    ],
)
def test_references_that_no_completion_equals_are_refused(answer: str, problem: str, tmp_path: Path) -> None:
    """A second reward does not help; a reward that pays a part of the words does."""
    answers = [answer.format(n) for n in range(4)]
    with pytest.raises(RecipeError, match=problem):
        table(tmp_path, answers, rewards=["accuracy", "format"])


def test_free_text_is_paid_by_shared_words(tmp_path: Path) -> None:
    pytest.importorskip("rlm_worlds")
    with pytest.raises(RecipeError, match="no token for"):  # after the check of the references
        table(tmp_path, [PROSE.format(n) for n in range(4)], rewards=["token_f1"])


def test_models_state_and_episodes_are_not_called(tmp_path: Path) -> None:
    class Refuses:
        def __call__(self, completions: list[str]) -> list[float]:
            raise AssertionError("called")

    class WithModel(Refuses):
        def setup(self, policy: Any, results: Any) -> None: ...

    class WithState(Refuses):
        def state_dict(self) -> Any: ...

        def load_state_dict(self, state: Any) -> None: ...

    def episodic(episodes: Any) -> list[float]:
        raise AssertionError("called")

    spec = EnvironmentSpec(train=[{"prompt": "1+1=?", "answer": "2"}])
    targets = {WithModel: "a model", WithState: "state", episodic: "episodes of an environment"}
    for target, reason in targets.items():
        reward = Reward("it", Part("rlm_rewards", "it", "guest", target).bind({}))
        assert score_references(reward, spec).line.endswith(reason)
    unnamed = Reward("it", Part("rlm_rewards", "it", "guest", accuracy).bind({}))
    line = score_references(unnamed, EnvironmentSpec(train=[{"prompt": "1+1=?"}])).line
    assert line == "not called: the examples have no column 'answer' yet"
