"""The adapter between TRL and a reward: arguments by name, valid results, and errors that name the reward."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rlm_plugins.builtin.rewards import Trl
from rlm_plugins.errors import PartError
from rlm_plugins.registry.part import Part
from rlm_plugins.rewards.columns import text_of
from rlm_plugins.rewards.trl_adapter import trl_reward
from rlm_plugins.stage import Reward

CHAT = [[{"role": "assistant", "content": "ab"}], [{"role": "assistant", "content": "c"}]]


def trl_reward_of(function: Callable[..., Any], **knobs: Any) -> Callable[..., Any]:
    part = Part("rlm_rewards", "it", "guest", function)
    part.check()
    return trl_reward(Reward("it", part.bind(knobs)))


def called(reward: Callable[..., Any], **more: Any) -> Any:
    given = {
        "prompts": [[{"role": "user", "content": "1+1"}]] * 2,
        "completions": CHAT,
        "completion_ids": [[1, 2], [3]],
        "answer": ["2", "2"],
        "trainer_state": SimpleNamespace(global_step=7),
        "log_extra": lambda *a: None,
        "log_metric": lambda *a: None,
    }
    return reward(**{**given, **more})


def test_part_gets_requested_data_as_text() -> None:
    def it(completions, answer, prompts, *, bonus: float = 0.5):
        assert prompts == ["1+1", "1+1"]
        return [len(c) + bonus + len(a) for c, a in zip(completions, answer, strict=True)]

    assert called(trl_reward_of(it)) == [3.5, 2.5]
    assert called(trl_reward_of(it, bonus=1.0)) == [4.0, 3.0]


def test_messages_and_ids_by_name() -> None:
    def it(completion_messages, completion_ids, trainer_state):
        return [
            m[0]["content"] == "ab" and len(i) == 2 for m, i in zip(completion_messages, completion_ids, strict=True)
        ]

    assert called(trl_reward_of(it)) == [1.0, 0.0]


def test_optional_data_is_left_out_when_absent() -> None:
    def it(completions, hint=None):
        return [0.0 if hint is None else 1.0] * len(completions)

    assert called(trl_reward_of(it)) == [0.0, 0.0]
    assert called(trl_reward_of(it), hint=["x", "y"]) == [1.0, 1.0]


def test_trl_function_gets_all_arguments_of_trl() -> None:
    def it(completions, **kwargs):
        assert completions == ["ab", "c"]
        assert kwargs["answer"] == ["2", "2"]
        assert kwargs["completion_messages"] == CHAT
        return [1.0, None]

    assert called(trl_reward_of(it)) == [1.0, None]


THINKS = "trl.rewards:think_format_reward"


def of_messages(completions: list[list[dict[str, str]]], **kwargs: Any) -> list[float]:
    return [float(message[-1]["content"] == "c") for message in completions]


def of_either(completions: "list[str] | list[list[dict[str, str]]]") -> list[float]:
    return [float(x == "c") for x in completions]


def of_one(completion: list[dict[str, Any]]) -> float:
    return float(completion[0]["content"] == "c")


def of_text(completions: list[str], **kwargs: Any) -> list[float]:
    return [float(x == "c") for x in completions]


@pytest.mark.parametrize("function", [of_messages, of_either, of_one, of_text])
def test_the_annotation_says_messages(function: Callable[..., Any]) -> None:
    """TRL's own functions have it, also by their address."""
    assert called(trl_reward_of(function)) == [0.0, 1.0]
    by_address = trl_reward(Reward("it", Part("rlm_rewards", "it", "guest", Trl).bind({"function": THINKS})))
    thought = [{"role": "assistant", "content": "<think>x</think>y"}]
    assert called(by_address, completions=[thought, *CHAT[:1]]) == [1.0, 0.0]


def test_reading_text_as_messages_names_the_key() -> None:
    def it(completions, **kwargs):
        return [float("a" in message[-1]["content"]) for message in completions]

    with pytest.raises(PartError, match=r"string indices.*\n.*set `messages: true` beside it"):
        called(trl_reward_of(it))
    part = Part("rlm_rewards", "it", "guest", it)
    assert called(trl_reward(Reward("it", part.bind({}), messages=True))) == [1.0, 0.0]


READERS: dict[str, tuple[Callable[..., Any], bool]] = {
    "in": (lambda completions, answer, **k: [float(a in x) for x, a in zip(completions, answer, strict=True)], True),
    "equal": (lambda completions, answer, **k: [float(x == a) for x, a in zip(completions, answer, strict=True)], True),
    "length": (lambda completions, **k: [float(len(x)) for x in completions], True),
    "key": (lambda completions, answer, **k: [float(answer[0] in x[-1]) for x in completions], True),
    "content": (lambda completions, **k: [float("b" in x[-1]["content"]) for x in completions], False),
    "either": (lambda completions, **k: [float("x" in (x if isinstance(x, str) else x[-1]["content"])) for x in completions], False),  # noqa: E501
    "constant": (lambda completions, **k: [0.0] * len(completions), False),
    "tokens": (lambda completion_ids, completions, **k: [len(completion_ids) / 2] * len(completions), False),
}  # fmt: skip
"""Function → whether it reads messages as if they were text."""


@pytest.mark.parametrize("name", READERS)
def test_messages_read_as_text_are_said_once(name: str, caplog: pytest.LogCaptureFixture) -> None:
    function, is_wrong = READERS[name]
    reward = Reward(name, Part("rlm_rewards", name, "guest", function).bind({}), messages=True)
    for _ in range(2):
        called(trl_reward(reward))
    warnings = [record for record in caplog.records if "reads messages as if they were text" in record.message]
    assert len(warnings) == is_wrong


@pytest.mark.parametrize("scores", [torch.tensor([1.0, 2.0]), (1, True), [torch.tensor(1.0), 2]])
def test_scores_of_any_number_type(scores: Any) -> None:
    assert all(isinstance(x, float) for x in called(trl_reward_of(lambda completions: scores)))


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ([1.0], "1 scores for 2"),
        (["1", "2"], "sample 0"),
        ([1.0, float("nan")], "nan for sample 1"),
        ([float("inf"), 0.0], "inf for sample 0"),
        ([1e20, 0.0], "1e+20, beyond the limit of 1e+15 for sample 0"),
    ],
)
def test_impossible_results(result: Any, words: str) -> None:
    with pytest.raises(PartError, match=r"reward 'it'.*plugin 'guest'.*step 7") as error:
        called(trl_reward_of(lambda completions: result))
    assert words in str(error.value)
    assert "allowed: a list of 2 numbers" in str(error.value)


def test_control_c_is_not_caught() -> None:
    """A KeyboardInterrupt that the reward itself raises is a failure."""
    with pytest.raises(KeyboardInterrupt):
        called(trl_reward_of(lambda completions: signal.raise_signal(signal.SIGINT)))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("plain", "plain"),
        ([], ""),
        ([{"role": "system", "content": "s"}, {"role": "user", "content": "a"}], "a"),
        ([{"role": "assistant", "content": None}], ""),
        ([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}]}], "a"),
        (
            [
                {"role": "assistant", "content": "look"},
                {"role": "tool", "content": "42"},
                {"role": "assistant", "content": "it is 42"},
            ],
            "look\nit is 42",
        ),
    ],
)
def test_text_of(message: Any, text: str) -> None:
    assert text_of(message) == text
