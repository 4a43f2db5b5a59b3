"""The reward model with generated critiques: scored text, the generating model, errors, and both stages."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from rlm_judge import preferences as module
from rlm_judge.learned_reward import CritiqueScore
from rlm_judge.preferences import CritiquePreferences
from rlm_judge.toy_sums import critiqued_sums
from rlm_testing import conformance
from rlm_testing.fake_packages import registered
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from rlm_plugins.cli import app
from rlm_plugins.errors import RecipeError
from rlm_plugins.stage import RunState

_registered = registered("judge", autouse=True)
test_environment = conformance("rlm_environments", critiqued_sums, knobs={"train_rows": 8})
RECIPE = Path(__file__).parents[1] / "recipes" / "cloud.yaml"
STAGE: Any = SimpleNamespace(name="reward", lora={"r": 2}, evaluation=None)


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """Replace the critic by one that numbers its critiques; return what it was asked, and with which seed."""
    calls: list[tuple[Any, Any]] = []

    def generated(stage: Any, requests: list[Any], seed: int | None) -> list[str]:
        calls.append((requests, seed))
        return [f"critique {number}" for number in range(len(requests))]

    monkeypatch.setattr(module, "_generated", generated)
    return calls


def test_each_answer_is_followed_by_its_own_critique(monkeypatch: pytest.MonkeyPatch) -> None:
    """The critic's prompt has prompt, answer and request; the scored text also has the critique."""
    calls = recorded(monkeypatch)
    rows = critiqued_sums(train_rows=2).train
    found = CritiquePreferences()._with_critiques(STAGE, rows, 7)
    ((requests, seed),) = calls
    assert seed == 7
    assert requests == [[*row["prompt"], *row[kind]] for row in rows for kind in ("chosen", "rejected")]
    for number, row in enumerate(found):
        assert row["chosen"] == [*rows[number]["chosen"], {"role": "assistant", "content": f"critique {2 * number}"}]
        assert row["rejected"][-1]["content"] == f"critique {2 * number + 1}"
    assert all(len(row["chosen"]) == 2 for row in rows), "the data set is not changed"


def test_greedy_critiques_are_written_once_and_samples_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = recorded(monkeypatch)
    trainer, rows = CritiquePreferences(), critiqued_sums(train_rows=1).test[:2]
    assert trainer._with_critiques(STAGE, rows, None) == trainer._with_critiques(STAGE, rows, None)
    assert len(calls) == 1
    trainer._with_critiques(STAGE, [rows[0], rows[0]], 1)
    assert len(calls[1][0]) == 4, "equal pairs get critiques of their own"


@pytest.mark.parametrize("chosen", ["15", [{"role": "assistant", "content": "15"}], []])
def test_answer_without_a_request_is_an_error(chosen: Any) -> None:
    row = {"prompt": [{"role": "user", "content": "7+8=?"}], "chosen": chosen, "rejected": chosen}
    with pytest.raises(RecipeError, match="end with a request") as failure:
        CritiquePreferences()._with_critiques(STAGE, [row], None)
    assert failure.value.where == "stage 'reward': environment"


def test_training_all_weights_is_refused() -> None:
    with pytest.raises(RecipeError, match="frozen base"):
        CritiquePreferences().build(SimpleNamespace(name="reward", lora=None), RunState())  # type: ignore[arg-type]


@pytest.mark.slow
def test_both_stages_run(tmp_path: Path) -> None:
    """The critic of the second stage is the model of the first; head and adapter are saved and loaded."""
    body = yaml.safe_load(RECIPE.read_text())
    first, second = body["stages"]
    first["environment"]["train_rows"], second["environment"]["train_rows"] = 64, 16
    first["model"] |= {"layers": 1, "hidden": 32, "heads": 2, "intermediate": 64}
    first["trainer"]["max_steps"] = second["trainer"]["max_steps"] = 2
    first["trainer"]["per_device_train_batch_size"] = second["trainer"]["per_device_train_batch_size"] = 8
    first["evaluation"]["rows"] = second["evaluation"]["rows"] = 8
    file = tmp_path / "recipe.yaml"
    file.write_text(yaml.safe_dump(body))
    done = CliRunner().invoke(app, ["train", str(file), "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    assert "held-out pair_accuracy" in done.output
    (note,) = (tmp_path / "run").glob("02-*/adapter/reward_model.json")
    assert "01-critiques" in json.loads(note.read_text())["base"]
    _scores_are_those_of_its_critiques(note.parent)


def _scores_are_those_of_its_critiques(folder: Path) -> None:
    """Check the reward: the base's greedy critique, scored by the reward model with prompt, answer and request."""
    from rlm_judge.reward_files import base_path, conversation_ids, load_with_own_base

    from rlm_plugins.evaluation.completions import complete

    critic = AutoModelForCausalLM.from_pretrained(base_path(folder))
    tokenizer, scorer = AutoTokenizer.from_pretrained(base_path(folder)), load_with_own_base(folder, "cpu")
    reward = CritiqueScore(path=str(folder), request="=", longest=4)
    reward.setup(critic, {})
    prompts = [[{"role": "user", "content": f"{a}+8=?"}] for a in (3, 5, 9)]
    answers = [[{"role": "assistant", "content": text}] for text in ("11", "14", "17")]
    expected = []
    for prompt, answer in zip(prompts, answers, strict=True):
        request = [*prompt, *answer, {"role": "user", "content": "="}]
        (critique,) = complete(critic, tokenizer, [{"prompt": request}], 4, {}).texts
        critiqued = [*request, {"role": "assistant", "content": critique}]
        expected += scorer.scores([conversation_ids(tokenizer, [], critiqued)], 1)
    assert reward(prompts, answers) == pytest.approx(expected, abs=1e-5)
    assert reward(prompts, [answers[0]] * 3) != reward(prompts, answers)
