"""Rewards with the signatures of TRL, verl, OpenRLHF and verifiers by one line of a recipe."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fixtures_third_party import scores_of

from rlm_plugins.errors import RecipeError
from rlm_plugins.registry import Registry
from rlm_plugins.rewards.fault import Fault

SCORES = """
import torch


def trl_style(completions: list[list[dict[str, str]]], solution, **kwargs):
    assert kwargs["prompts"] and kwargs["completion_ids"]
    return [None if s == "" else float(c[0]["content"] == s) for c, s in zip(completions, solution)]


async def trl_async(prompts, completions: list[list[dict[str, str]]], solution):
    return [float(c[0]["content"] == s) for c, s in zip(completions, solution)]


def compute_score(data_source, solution_str, ground_truth, extra_info=None, bonus=0.0):
    assert extra_info == {"num_turns": None, "rollout_reward_scores": {}, "index": 3}
    return {"score": (solution_str == ground_truth) + bonus, "acc": solution_str == ground_truth, "source": data_source}


async def compute_score_async(solution_str, ground_truth, **kwargs):
    return float(solution_str == ground_truth), "why"


def compute_scores(data_sources, solution_strs, ground_truths, extra_infos):
    return [float(s == g) for s, g in zip(solution_strs, ground_truths)]


def reward_func(queries, prompts, labels, **kwargs):
    assert all(query.startswith(prompt) for query, prompt in zip(queries, prompts))
    right = torch.tensor([float(q[len(p):] == label) for q, p, label in zip(queries, prompts, labels)])
    return {"rewards": right, "scores": right, "extra_logs": {"accuracy": right.mean(), "dummy": right}}


def plain_tensor(queries, prompts, labels):
    return torch.tensor([0.0, 1.0])


def misnamed(**known):
    return {"scores": 1.0}


def breaks(solution_str, ground_truth):
    raise KeyError(ground_truth)


number = 3
"""
ENVIRONMENT = '''
class Parser:
    def parse_answer(self, completion):
        return completion[-1]["content"]


class Rubric:
    """As verifiers has it: functions, weights, a parser, further objects."""

    def __init__(self, funcs, weights=None, parser=None):
        self.funcs, self.weights = funcs, weights or [1.0] * len(funcs)
        self.parser = parser or Parser()
        self.class_objects = {"parser": self.parser, "scale": 2.0}


class RubricGroup:
    def __init__(self, rubrics):
        self.rubrics = rubrics


def right(completion, answer, parser):
    return float(parser.parse_answer(completion) == answer)


async def short(completion, state, scale, **kwargs):
    assert state["completion"] is completion and kwargs["info"] == {"n": 1}
    return scale * (len(completion[-1]["content"]) < 2)


def alone(completions, answers):
    texts = [c[-1]["content"] for c in completions]
    return [float(texts.count(t) == 1) for t in texts]


def first(states) -> list[float]:
    return [float(not place) for place in range(len(states))]


def listed(**everything) -> list:
    return [float(state["level"] == 3) for state in everything["states"]]


class Environment:
    def __init__(self, rubric, rows):
        self.rubric, self.rows = rubric, rows

    def get_dataset(self):
        return self.rows

    def get_eval_dataset(self):
        return self.rows[:1]


class SingleTurnEnv(Environment):
    pass


class MultiTurnEnv(Environment):
    pass


rubric = RubricGroup([Rubric([right], [0.5]), Rubric([short, alone, first, listed], [1.0, 0.1, 10.0, 100.0])])


def load_environment(rows=3, turns=1):
    data = [{"prompt": [{"role": "user", "content": f"{n}?"}], "answer": str(n), "info": '{"n": 1}', "task": "t"}
            for n in range(rows)]
    return (SingleTurnEnv if turns == 1 else MultiTurnEnv)(rubric, data)
'''


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("foreign")
    (folder / "scores.py").write_text(SCORES)
    (folder / "env.py").write_text(ENVIRONMENT)
    return {"scores": str(folder / "scores.py"), "env": str(folder / "env.py")}


def test_trl(files: dict[str, str]) -> None:
    for function in ("trl_style", "trl_async"):
        scores, _ = scores_of("trl", {"function": f"{files['scores']}:{function}"}, solution=["4", "5"])
        assert scores == [1.0, 0.0]
    scores, _ = scores_of("trl", {"function": f"{files['scores']}:trl_style"}, solution=["", "five"])
    assert scores == [None, 1.0]
    with pytest.raises(Fault, match="solution"):
        scores_of("trl", {"function": f"{files['scores']}:trl_style"})


def test_verl(files: dict[str, str]) -> None:
    knobs = {"function": f"{files['scores']}:compute_score", "data_source": "here"}
    index = [{"index": 3}] * 2
    assert scores_of("verl", knobs, reward_model=[{"ground_truth": "4"}] * 2, extra_info=index) == (
        [1.0, 0.0],
        {"acc": 0.5},
    )
    assert scores_of("verl", {**knobs, "options": {"bonus": 0.5}}, answer=["4"] * 2, extra_info=index)[0] == [1.5, 0.5]
    for function in ("compute_score_async", "compute_scores"):
        knobs = {"function": f"{files['scores']}:{function}"}
        assert scores_of("verl", knobs, ground_truth=["4", "4"])[0] == [1.0, 0.0]
    with pytest.raises(Fault, match="no column 'ground_truth'"):
        scores_of("verl", knobs)
    with pytest.raises(Fault, match=r"reward 'verl'.*raised KeyError: '4'"):
        scores_of("verl", {"function": f"{files['scores']}:breaks"}, answer=["4", "4"])


def test_openrlhf(files: dict[str, str]) -> None:
    knobs = {"function": f"{files['scores']}:reward_func"}
    assert scores_of("openrlhf", knobs, label=["4", "4"]) == ([1.0, 0.0], {"accuracy": 0.5, "dummy": 0.5})
    assert scores_of("openrlhf", knobs, answer=["5", "five"], prompts=["2+2?"] * 2)[0] == [0.0, 1.0]
    assert scores_of("openrlhf", {"function": f"{files['scores']}:plain_tensor"}, answer=["", ""])[0] == [0.0, 1.0]


@pytest.mark.parametrize(("name", "key"), [("verl", "score"), ("openrlhf", "rewards")])
def test_mapping_without_a_score_is_an_error(name: str, key: str, files: dict[str, str]) -> None:
    with pytest.raises(Fault, match=rf"returned {{'scores': 1.0}}(.|\n)*a mapping with '{key}'"):
        scores_of(name, {"function": f"{files['scores']}:misnamed"}, answer=["4", "4"])


def test_verifiers(files: dict[str, str]) -> None:
    columns = {"answer": ["4", "4"], "info": ['{"n": 1}'] * 2, "level": [2, 3]}
    for place in ("rubric", "load_environment"):
        scores, logged = scores_of("verifiers", {"id": f"{files['env']}:{place}"}, **columns)
        assert scores == pytest.approx([0.5 + 2.0 + 0.1 + 10, 0.1 + 100])
        assert logged == {"right": 0.5, "short": 1.0, "alone": 1.0, "first": 0.5, "listed": 0.5}
    make = Registry().find("rlm_environments", "verifiers")
    environment_spec = make.bind({"id": f"{files['env']}:load_environment", "options": {"rows": 5}}).call({})
    assert [row["answer"] for row in environment_spec.train] == ["1", "2", "3", "4"], "without the row that is held out"
    assert [row["answer"] for row in environment_spec.test] == ["0"]
    same = make.bind({"id": f"{files['env']}:load_environment", "options": {"rows": 1}}).call({})
    assert (len(same.train), len(same.test)) == (1, 0), "who has no evaluation data set hands out the other"
    with pytest.raises(RecipeError, match="MultiTurnEnv"):
        make.bind({"id": f"{files['env']}:load_environment", "options": {"turns": 2}}).call({})


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("compute_score", "expected an address"),
        ("scores.py:f", "cannot be loaded: FileNotFoundError"),
        ("SCORES:compute_scor", "did you mean 'compute_score'"),
    ],
)
def test_unresolvable_address_is_an_error(address: str, words: str, files: dict[str, str]) -> None:
    part = Registry().find("rlm_rewards", "verl")
    with pytest.raises(RecipeError, match=re.escape(words)):
        part.bind({"function": address.replace("SCORES", files["scores"])})


def test_a_reward_by_its_address_alone(tmp_path: Path) -> None:
    """The file is beside the recipe, its name is the label, and required columns are checked before training."""
    from rlm_plugins import recipe
    from rlm_plugins.recipe.compose import compose
    from rlm_plugins.registry import Registry

    (tmp_path / "reward.py").write_text(
        "def digits(completions, answer, **columns):\n    return [1.0] * len(completions)\n"
        "def rubric(completions, rubrics, **columns):\n    return [1.0] * len(completions)\n"
    )
    (tmp_path / "recipe.yaml").write_text(
        "model: scratch\nenvironment: addition\nalgorithm: grpo\nrewards: ['./reward.py:digits']\n"
    )
    registry = Registry()
    (stage,) = compose(recipe.load(tmp_path / "recipe.yaml"), registry)
    assert [reward.label for reward in stage.rewards] == ["digits"]
    with pytest.raises(RecipeError, match="requires the column 'rubrics'"):
        compose(recipe.load(tmp_path / "recipe.yaml", ["rewards=['./reward.py:rubric']"]), registry)
    with pytest.raises(RecipeError, match="unknown name 'digit'"):
        compose(recipe.load(tmp_path / "recipe.yaml", ["rewards=['./reward.py:digit']"]), registry)
