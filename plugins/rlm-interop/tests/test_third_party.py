"""Rewards and environments of TRL, verl, OpenRLHF and verifiers: the scores of the libraries themselves.

Each test runs where its library is installed; `make test-third-party` installs them all, in their own environment.
"""

from __future__ import annotations

import asyncio
import json
import re
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch
from fixtures_third_party import COLUMNS, chats, scores_of

from rlm_plugins.errors import RecipeError
from rlm_plugins.registry import Registry


def test_trl() -> None:
    knobs = {"function": "trl.rewards:think_format_reward"}
    assert scores_of("trl", knobs, completions=chats("<think>so</think>4", "4"))[0] == [1.0, 0.0]
    pytest.importorskip("math_verify", reason="trl.rewards.accuracy_reward needs math-verify")
    knobs = {"function": "trl.rewards:accuracy_reward"}
    assert scores_of("trl", knobs, completions=chats(r"\boxed{4}", r"\boxed{5}"), solution=["$4$"] * 2)[0] == [1.0, 0.0]


SCORED = [  # data source, ground truth, an answer that is right, one that is not
    ("openai/gsm8k", "4", "2+2\n#### 4", "#### 5"),
    ("DigitalLearningGmbH/MATH-lighteval", r"\frac{1}{2}", r"So \boxed{\frac12}.", r"So \boxed{2}."),
    ("math_dapo", "4", "Answer: 4", "Answer: 5"),
    ("numina_olympiads", "4", r"So \boxed{4}.", r"So \boxed{5}."),
    ("searchR1_nq", {"target": ["Bonn", "Berlin"]}, "<answer>Berlin</answer>", "<answer>Rome</answer>"),
]


def of_verl_itself(source: str, truth: Any, texts: tuple[str, str], extra: list[dict[str, Any]]) -> list[float]:
    """Return the rewards of verl's naive reward manager."""
    import numpy as np
    from verl import DataProto
    from verl.workers.reward_manager import get_reward_manager_cls

    class Letters:
        eos_token = ""

        def decode(self, ids: torch.Tensor, **_: Any) -> str:
            return "".join(chr(number) for number in ids.tolist())

    longest = max(map(len, texts))
    responses = torch.tensor([[*map(ord, text), *[0] * (longest - len(text))] for text in texts])
    prompts = torch.full((2, 1), ord("?"))
    mask = torch.cat([torch.ones_like(prompts), (responses != 0).long()], dim=1)
    columns = {"reward_model": [{"ground_truth": truth}] * 2, "data_source": [source] * 2, "extra_info": extra}
    data = DataProto.from_dict(
        tensors={"prompts": prompts, "responses": responses, "attention_mask": mask},
        non_tensors={name: np.array(column, dtype=object) for name, column in columns.items()},
    )
    found: list[float] = get_reward_manager_cls("naive")(Letters(), 0)(data).sum(dim=1).tolist()
    return found


@pytest.mark.parametrize(("source", "truth", "right", "wrong"), SCORED, ids=[row[0] for row in SCORED])
def test_verl(source: str, truth: Any, right: str, wrong: str) -> None:
    pytest.importorskip("verl.workers.reward_manager", reason="verl, or what it imports, is not installed")
    expected = of_verl_itself(source, truth, (right, wrong), [{"index": 0}, {"index": 1}])
    knobs = {"function": "verl.utils.reward_score:default_compute_score", "data_source": source}
    scores, _ = scores_of("verl", knobs, completions=chats(right, wrong), reward_model=[{"ground_truth": truth}] * 2)
    assert scores == pytest.approx(expected)
    assert scores[0] is not None
    assert scores[0] > (scores[1] or 0.0), "and they mean something"


def test_openrlhf(tmp_path: Path) -> None:
    """The `reward_func` of OpenRLHF's page has the same result here and in its own executor."""
    agent = pytest.importorskip("openrlhf.utils.agent", reason="OpenRLHF, or what it imports, is not installed")
    page = str(metadata.metadata("openrlhf").get_payload())
    (example,) = re.findall(r"```python\n(# reward_func\.py\n.*?)```", page, re.DOTALL)
    file = tmp_path / "reward_func.py"
    file.write_text(example, encoding="utf-8")
    executor, seen = agent.SingleTurnAgentExecutor(str(file)), set()
    for seed in range(8):
        torch.manual_seed(seed)
        ((theirs),) = asyncio.run(executor._fetch_rewards_via_func(["2+2?4"], ["2+2?"], ["4"]))
        torch.manual_seed(seed)
        one = {"prompts": ["2+2?"], "completions": ["4"], "completion_ids": [[1]], "answer": ["4"]}
        scores, logged = scores_of("openrlhf", {"function": f"{file}:reward_func"}, **one)
        assert scores == theirs["rewards"].tolist()
        assert logged == theirs["extra_logs"]
        seen.update(scores)
    assert seen == {0.0, 1.0}


ENVIRONMENT = """
import verifiers as vf
from datasets import Dataset

parser = vf.XMLParser(["working", "answer"], answer_field="answer")


def right(parser, completion, answer, state, info):
    assert state["completion"] == completion and info["level"] == 1
    return float(parser.parse_answer(completion) == answer)


async def alone(completions):
    texts = [completion[-1]["content"] for completion in completions]
    return [float(texts.count(text) == 1) for text in texts]


def first(states) -> list[float]:
    return [float(not place) for place in range(len(states))]


rubric = vf.Rubric(funcs=[right, parser.get_format_reward_func(), alone], weights=[1.0, 0.25, 0.125], parser=parser)
rubric.add_reward_func(first, weight=0.5)
rows = [{"question": f"{n}+1?", "answer": str(n + 1), "info": {"level": 1}} for n in range(4)]


def load_environment(system_prompt="Think."):
    return vf.SingleTurnEnv(dataset=Dataset.from_list(rows), system_prompt=system_prompt, parser=parser, rubric=rubric)
"""
TEXTS = ("<working>\nso\n</working>\n<answer>\n1\n</answer>", "1", "1")


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write an environment of verifiers to an importable module, and return its id."""
    found = pytest.importorskip("verifiers", reason="verifiers is not installed")
    if not hasattr(found, "Rubric"):
        pytest.skip(f"verifiers {found.__version__} has task sets: environments and rubrics were in 0.1 to 0.3")
    (tmp_path / "sums_by_verifiers.py").write_text(ENVIRONMENT, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return "sums-by-verifiers"


def test_verifiers(environment: str) -> None:
    import verifiers as vf

    home: Any = vf.load_environment(environment)
    environment_spec = Registry().find("rlm_environments", "verifiers").bind({"id": environment}).call({})
    row = environment_spec.train[0]
    assert [each["prompt"] for each in environment_spec.train] == home.get_dataset()["prompt"]

    states = [vf.State(input={**row, "info": _mapping(row["info"])}, trajectory=[]) for _ in TEXTS]
    for state, text in zip(states, TEXTS, strict=True):
        state["completion"] = chats(text)[0]
    asyncio.run(home.rubric.score_group(states))

    columns = {name: [row[name]] * len(TEXTS) for name in ("answer", "info", "question")}
    given = {
        "prompts": [row["prompt"]] * len(TEXTS),
        "completions": chats(*TEXTS),
        "completion_ids": [[1]] * len(TEXTS),
    }
    scores, logged = scores_of("verifiers", {"id": environment}, **given, **columns)
    assert scores == pytest.approx([state["reward"] for state in states])
    assert scores[0] == pytest.approx(1.0 + 0.25 + 0.125 + 0.5), "right, in the form, alone, and first"
    for name, number in states[0]["metrics"].items():
        assert logged[name] == pytest.approx(sum(state["metrics"][name] for state in states) / len(states)), (
            name,
            number,
        )


def test_verifiers_without_environments() -> None:
    """From 0.4 on verifiers has task sets; the error names the older version to install."""
    found = pytest.importorskip("verifiers", reason="verifiers is not installed")
    if hasattr(found, "load_environment"):
        pytest.skip("this one has environments")
    with pytest.raises(RecipeError, match=r"(?s)has no 'load_environment'.*verifiers<0\.4"):
        scores_of("verifiers", {"id": "gsm8k"}, answer=COLUMNS["completions"])


def _mapping(info: Any) -> Any:
    return json.loads(info) if isinstance(info, str) else info
