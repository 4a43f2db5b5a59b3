"""Tool environments: arithmetic, rejected input, and episodes with a tiny model's tokenizer."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from rlm_testing import conformance
from rlm_worlds import calculator, interpreter
from rlm_worlds.tools import evaluate
from transformers.utils import get_json_schema

from rlm_plugins.errors import RecipeError
from rlm_plugins.models.scratch import build_tokenizer
from rlm_plugins.rollout.episodes import EpisodeRunner

test_calculator = conformance("rlm_environments", calculator, knobs={"train_rows": 40, "test_rows": 10})
CHARACTERS = "0123456789+-*()= \nacdehilnoprstuxy"


def _require_isolation() -> None:
    """Skip the test where programs cannot be isolated."""
    pytest.importorskip("rlm_sandbox", reason="needs rlm-sandbox")
    from rlm_sandbox import SandboxError, shared

    try:
        shared().start()
    except SandboxError as error:
        pytest.skip(f"no isolation here: {error}")


@pytest.mark.parametrize(
    ("expression", "value"),
    [("37*48+5", 1781), ("-(2+3)*4", -20), ("7//2", 3), (" 1 ", 1), ("1--1", 2)],
)
def test_evaluate(expression: str, value: int) -> None:
    assert evaluate(expression) == value


@pytest.mark.parametrize(
    "expression",
    ["", "2**9**9", "1//0", "1.5", "True", "__import__('os')", "9" * 300, "(" * 150, "*".join(["9" * 9] * 12), "[1]*9"],
)  # fmt: skip
def test_evaluate_rejects(expression: str) -> None:
    with pytest.raises(ValueError, match=r"comput|characters|too large"):
        evaluate(expression)


@pytest.mark.parametrize(
    ("tool", "call_text", "result_text"),
    [
        ("calculate", "calculate(expression='{sum}')", "> {answer}"),
        ("python", "python(code='print({sum})')", "> {answer}\n"),
    ],
)
def test_episode_with_tool_call(tool: Any, call_text: str, result_text: str) -> None:
    """A demonstration of the `scratch` format parses as a call, and the tool returns the reference answer."""
    if tool == "python":
        _require_isolation()
    environment_spec = calculator(train_rows=20, test_rows=4, tool=tool, show="moves", skill=1.0)
    call, answer = environment_spec.train[0], environment_spec.train[1]
    tokenizer = build_tokenizer(CHARACTERS, tools=True)
    assert tokenizer.unk_token_id not in tokenizer(call["demonstration"])["input_ids"]

    def generate(ids: list[list[int]]) -> tuple[list[list[int]], None]:
        targets = [answer if tokenizer.convert_tokens_to_ids("<|tool|>") in row else call for row in ids]
        return [tokenizer(row["demonstration"] + "<|end|>")["input_ids"] for row in targets], None

    table = EpisodeRunner(environment_spec, tokenizer, end_token_ids=[tokenizer.eos_token_id], max_completion_length=80)
    (row,) = table.play([call["prompt"]], [call], generate)
    assert row.episode.transcript == "\n".join([call_text.format(**call), result_text.format(**call), call["answer"]])
    assert row.episode.done
    prompt = tokenizer.apply_chat_template(
        answer["prompt"], add_generation_prompt=True, tokenize=True, return_dict=True
    )
    ids_of_episode = [*row.prompt_ids, *row.completion_ids]
    assert ids_of_episode[: len(prompt["input_ids"])] == prompt["input_ids"], (
        "the demonstration's prompt equals the episode's tokens"
    )


@pytest.fixture
def data_set(tmp_path: Path) -> dict[str, Any]:
    file = tmp_path / "problems.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"{n}!", "answer": n}) + "\n" for n in range(6)))
    return {"path": str(file), "test_rows": 2}


def test_programs_run_in_the_sandbox(data_set: dict[str, Any]) -> None:
    _require_isolation()
    environment_spec = interpreter(data=data_set)
    assert len(environment_spec.train) == 4
    tool: Any = environment_spec.environment()  # type: ignore[misc]
    assert tool.python("import math\nprint(math.factorial(5))") == "120\n"
    assert tool.python("1/0").startswith("error: ZeroDivisionError")
    assert "error" in tool.python("open('/etc/passwd').read()")
    assert "expression" not in get_json_schema(tool.python)["function"]["parameters"]["properties"]


def test_missing_isolation_is_a_fault_of_the_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool's exception would reach the model, which would learn that every program fails."""
    sandbox = pytest.importorskip("rlm_sandbox", reason="needs rlm-sandbox")

    def refuses(self: object) -> None:
        raise sandbox.SandboxError("there are no locks")

    monkeypatch.setattr(type(sandbox.shared()), "start", refuses)
    environment_spec, tokenizer = (
        calculator(train_rows=20, test_rows=4, tool="python"),
        build_tokenizer(CHARACTERS, tools=True),
    )
    table = EpisodeRunner(environment_spec, tokenizer, end_token_ids=[tokenizer.eos_token_id], max_completion_length=80)
    (row,) = table.play([environment_spec.train[0]["prompt"]], [environment_spec.train[0]], lambda rows: ([], None))
    assert row.ended
    assert "`reset` failed in turn 0: SandboxError: there are no locks" in str(row.episode.fault)


def test_interpreter_requires_sandbox_and_path(data_set: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["rlm_worlds.tools"]
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(RecipeError, match=r"rlm-worlds\[interpreter\]"):
        interpreter(data=data_set)
    with pytest.raises(RecipeError, match=r"rlm-worlds\[interpreter\]"):
        calculator(tool="python")
    monkeypatch.setattr(module, "find_spec", find_spec)
    if find_spec("rlm_sandbox"):
        with pytest.raises(RecipeError, match="`data` requires `path`"):
            interpreter(data={})
