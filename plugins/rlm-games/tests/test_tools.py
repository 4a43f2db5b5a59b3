"""Worlds of tools: what they compute and refuse, and that a tiny model plays them from a recipe."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from rlm_games import calculator, interpreter
from rlm_games.sums import computed
from transformers.utils import get_json_schema

from rlm_plugins.errors import RecipeError
from rlm_plugins.models.scratch import build_tokenizer
from rlm_plugins.rollout.episodes import EpisodeRunner
from rlm_plugins.rollout.tools import tools_of
from rlm_plugins.testing import conformance

test_calculator = conformance("rlm_environments", calculator, knobs={"train_rows": 40, "test_rows": 10})
CHARACTERS = "0123456789+-*()= \nacdehilnoprstuxy"


def _isolated() -> None:
    """Skips where programs cannot be run."""
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
def test_what_is_computed(expression: str, value: int) -> None:
    assert computed(expression) == value


@pytest.mark.parametrize(
    "expression",
    ["", "2**9**9", "1/2", "1//0", "1.5", "True", "abs(1)", "__import__('os')", "9" * 300, "(" * 150, "a+1", "1 2",
     "*".join(["9" * 9] * 12), "1<<9", "[1]*9", "'a'*9"],
)  # fmt: skip
def test_what_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"comput|characters|too large"):
        computed(expression)


@pytest.mark.parametrize(
    ("tool", "called", "told"),
    [
        ("calculate", "calculate(expression='{sum}')", "> {answer}"),
        ("python", "python(code='print({sum})')", "> {answer}\n"),
    ],
)
def test_a_sum_is_worked_out_by_the_tool(tool: Any, called: str, told: str) -> None:
    """As a `scratch` model would write it: what it is shown parses as a call, and the answer is what it is told."""
    if tool == "python":
        _isolated()
    environment_spec = calculator(train_rows=20, test_rows=4, tool=tool, show="moves", skill=1.0)
    call, said = environment_spec.train[0], environment_spec.train[1]
    words = build_tokenizer(CHARACTERS, tools=True)
    assert words.unk_token_id not in words(call["demonstration"])["input_ids"]

    def write(ids: list[list[int]]) -> tuple[list[list[int]], None]:
        rows = [said if words.convert_tokens_to_ids("<|tool|>") in row else call for row in ids]
        return [words(row["demonstration"] + "<|end|>")["input_ids"] for row in rows], None

    table = EpisodeRunner(environment_spec, words, ends=[words.eos_token_id], room=80)
    (row,) = table.play([call["prompt"]], [call], write)
    assert row.episode.transcript == "\n".join([called.format(**call), told.format(**call), call["answer"]])
    assert row.episode.done
    prompt = words.apply_chat_template(said["prompt"], add_generation_prompt=True, tokenize=True, return_dict=True)
    whole = [*row.prompt_ids, *row.completion_ids]
    assert whole[: len(prompt["input_ids"])] == prompt["input_ids"], "what it is shown is what it will meet"


def test_a_question_asks_for_the_sum() -> None:
    with pytest.raises(RecipeError, match="asks the same of every row") as told:
        calculator(question="sum?")
    assert (told.value.where, told.value.allowed) == ("environment.question", "text with {sum} in it")


def test_the_tools_can_be_shown_to_a_model() -> None:
    (tool,) = tools_of(calculator(train_rows=9, test_rows=1).environment())  # type: ignore[misc]
    assert "expression" in get_json_schema(tool)["function"]["parameters"]["properties"]


# ------------------------------------------------------------------ Python


@pytest.fixture
def problems(tmp_path: Path) -> dict[str, Any]:
    file = tmp_path / "problems.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"{n}!", "answer": n}) + "\n" for n in range(6)))
    return {"path": str(file), "test_rows": 2}


def test_programs_run_in_the_sandbox(problems: dict[str, Any]) -> None:
    _isolated()
    environment_spec = interpreter(data=problems)
    assert len(environment_spec.train) == 4
    tool: Any = environment_spec.environment()  # type: ignore[misc]
    assert tool.python("import math\nprint(math.factorial(5))") == "120\n"
    assert tool.python("1/0").startswith("error: ZeroDivisionError")
    assert "error" in tool.python("open('/etc/passwd').read()")
    assert "expression" not in get_json_schema(tool.python)["function"]["parameters"]["properties"]


def test_a_run_stops_where_no_program_can_be_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is told what a tool raises: it would learn that every program fails."""
    sandbox = pytest.importorskip("rlm_sandbox", reason="needs rlm-sandbox")

    def refuses(self: object) -> None:
        raise sandbox.SandboxError("there are no locks")

    monkeypatch.setattr(type(sandbox.shared()), "start", refuses)
    environment_spec, words = (
        calculator(train_rows=20, test_rows=4, tool="python"),
        build_tokenizer(CHARACTERS, tools=True),
    )
    table = EpisodeRunner(environment_spec, words, ends=[words.eos_token_id], room=80)
    (row,) = table.play([environment_spec.train[0]["prompt"]], [environment_spec.train[0]], lambda rows: ([], None))
    assert row.over
    assert "`reset` failed in turn 0: SandboxError: there are no locks" in str(row.episode.fault)


def test_an_interpreter_needs_a_sandbox_and_problems(problems: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["rlm_games.interpreter"]
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(RecipeError, match=r"rlm-games\[interpreter\]"):
        interpreter(data=problems)
    with pytest.raises(RecipeError, match=r"rlm-games\[interpreter\]"):
        calculator(tool="python")
    monkeypatch.setattr(module, "find_spec", find_spec)
    if find_spec("rlm_sandbox"):
        with pytest.raises(RecipeError, match="names no `path`"):
            interpreter(data={})
