"""Every corpus of the table reads an example of its published format, from one local file."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rlm_testing.fake_packages import registered
from rlm_worlds.corpora import CORPORA, CORPUS_ENVIRONMENTS, JUDGE
from rlm_worlds.reward import token_f1

from rlm_plugins.builtin.rewards import accuracy
from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.checks.required_columns import check_columns
from rlm_plugins.registry import Registry
from rlm_plugins.stage import Reward

ROWS: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("published_rows.toml").read_text())


@pytest.mark.parametrize("name", [*CORPORA])
def test_row_of_the_published_shape_is_read(name: str, tmp_path: Path) -> None:
    """The file has no split; a repeated record and one with an empty question are left out."""
    expected, corpus = dict(ROWS[name]), CORPORA[name]
    row = expected.pop("row")
    (tmp_path / "rows.jsonl").write_text(f"{row}\n{row}\n")
    spec = CORPUS_ENVIRONMENTS[name](path=str(tmp_path / "rows.jsonl"))
    (actual,) = list(spec.train)
    assert {key: value for key, value in actual.items() if key != "prompt"} == expected
    assert actual["prompt"][-1]["content"].startswith(expected["question"])
    assert [*expected] == corpus.columns
    assert corpus.license in (CORPUS_ENVIRONMENTS[name].__doc__ or "")


@pytest.mark.parametrize("name", [name for name, corpus in CORPORA.items() if not corpus.path])
def test_corpus_that_is_not_on_the_hub_requires_a_file(name: str) -> None:
    with pytest.raises(RecipeError, match="empty `path`") as failure:
        CORPUS_ENVIRONMENTS[name]()
    assert failure.value.where == "environment.path"


others = registered("math", "process")


def scored(name: str, reward: str, folder: Path, **knobs: Any) -> str:
    """Return the line of `rlm check` on a reward and the published row of a corpus."""
    references = pytest.importorskip("rlm_audit.references")
    (folder / "rows.jsonl").write_text(ROWS[name]["row"] + "\n")
    spec = CORPUS_ENVIRONMENTS[name](path=str(folder / "rows.jsonl"))
    rewards = [Reward(reward, Registry().find("rlm_rewards", reward).bind(knobs))]
    check_columns(spec, "training", rewards, name, "rewards")
    (found,) = references.check_references(SimpleNamespace(environment_spec=spec, rewards=rewards), "rewards")
    return str(found.line)


@pytest.mark.parametrize("name", [name for name, corpus in CORPORA.items() if corpus.reward not in ("", JUDGE)])
def test_each_corpus_is_paid_by_the_reward_it_names(name: str, tmp_path: Path, others: None) -> None:
    corpus = CORPORA[name]
    top = "3" if corpus.reward == "tool_calls" else "1"
    line = scored(name, corpus.reward, tmp_path, **corpus.knobs)
    assert line.startswith(f"given text, pays {top} for ")


@pytest.mark.parametrize("name", [name for name, corpus in CORPORA.items() if corpus.reward == JUDGE])
def test_free_text_is_not_compared_as_text(name: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"'accuracy' compares text, and .* free text") as failure:
        scored(name, "accuracy", tmp_path)
    assert "judge_verify" in failure.value.allowed
    assert "pays 1 for" in scored(name, "token_f1", tmp_path)


@pytest.mark.parametrize("name", [name for name, corpus in CORPORA.items() if not corpus.reward])
def test_demonstrations_alone_are_refused_for_a_reward(name: str, tmp_path: Path) -> None:
    assert CORPORA[name].about.endswith("No reward here pays it.")
    with pytest.raises(RecipeError, match="requires the column 'answer'"):
        scored(name, "accuracy", tmp_path)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "x"}, "KeyError: 'answer'"),
        ({"prompt": "x", "answer": None}, "no row"),
        ({"prompt": " ", "answer": "1"}, "no row"),
    ],
)
def test_other_shapes_are_named(row: dict[str, Any], message: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row) + "\n")
    with pytest.raises(RecipeError, match=message) as failure:
        CORPUS_ENVIRONMENTS["limr"](path=str(file))
    assert failure.value.where == "environment.path"


def test_accepted_answers() -> None:
    """Any accepted answer is right, in any case; one of several contradicting answers is not."""
    texts = [
        "<answer>b</answer>",
        "<answer>The A. B.</answer>",
        "<answer>C</answer>",
        "<answer>B</answer><answer>C</answer>",
    ]
    assert accuracy(texts, [["A. B.", "B."]] * 4, mode="normalized") == [1.0, 1.0, 0.0, 0.0]
    assert accuracy(["1,000", "7"], [["7", 1000], []]) == [1.0, None]
    assert token_f1(texts, [["A. B.", "B."]] * 4) == [1.0, 1.0, 0.0, 0.0]
