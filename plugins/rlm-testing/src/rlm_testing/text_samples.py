"""Sampled columns of rewards: whole groups, and completions that no data set contains."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import strategies as st

from rlm_plugins.environment import Episode
from rlm_plugins.errors import PluginError
from rlm_testing.law import Draw
from rlm_testing.part_under_test import Subject

UNUSUAL = (
    *("", " ", "\n\n", "\x00", "\ufffd", "\u202e4", "👩‍👩‍👧", "²½", "١٢٣", "1,000", "-0", "1e999", "NaN", "∞", "1/0"),
    *("<answer></answer>", "</answer><answer>", "<answer>4", "\\boxed{", "{{{%s", "(" * 200, "9" * 5000, "a " * 20000),
)
"""Completions that no data set contains, and every training run does."""

Columns = dict[str, Any]


def sample_columns(subject: Subject, draw: Draw) -> Columns:
    """Return columns as TRL passes them: whole groups, each of one example."""
    size, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    strategies = _strategies(subject)
    texts = [draw(strategies["completions"]) for _ in range(size * groups)]
    chat = draw(st.booleans())
    questions = [draw(strategies["prompts"]) for _ in range(groups)]
    columns: Columns = {
        "prompts": [_message("user", text, chat) for text in questions for _ in range(size)],
        "completions": [_message("assistant", text, chat) for text in texts],
        "completion_ids": [list(text.encode())[:100] for text in texts],
        "episodes": [Episode(None, "", turn_rewards=[float(len(text) % 3), 1.0]) for text in texts],
        "trainer_state": SimpleNamespace(global_step=draw(st.integers(0, 9)), epoch=0.0, max_steps=10),
        "log_extra": lambda column, values: None,
        "log_metric": lambda name, value: None,
    }
    for name in sorted(strategies.keys() - {"prompts", "completions"}):
        values = {text: draw(strategies[name]) for text in dict.fromkeys(questions)}  # one example per prompt
        columns[name] = [values[text] for text in questions for _ in range(size)]
    return columns


def _message(role: str, text: str, chat: bool) -> Any:
    return [{"role": role, "content": text}] if chat else text


def _strategies(subject: Subject) -> dict[str, st.SearchStrategy[Any]]:
    declared = {
        name: values if isinstance(values, st.SearchStrategy) else st.sampled_from(list(values))
        for name, values in subject.columns.items()
    }
    unusual = st.sampled_from(UNUSUAL) | st.text(max_size=20)
    completions = declared.get("completions")
    return {
        "prompts": st.sampled_from(["2*2=", "2*3=", ""]),
        **declared,
        "completions": completions | unusual if completions is not None else unusual,
    }


def require_columns(subject: Subject) -> None:
    """Check that all columns of a reward are described.

    Raises:
        PluginError: One is not; with the argument to add.
    """
    supplied = {*subject.part.sample} - {"environments"} | {*subject.columns}
    for name in subject.part.required_data if subject.part.hook == "rlm_rewards" else ():
        if name not in supplied:
            raise PluginError(
                f"'{subject.part.name}' requires the column '{name}'",
                where="conformance",
                hint=f"describe the values of such a column: columns={{'{name}': [value, value, …]}}",
            )


def example_data(columns: Columns) -> dict[str, object]:
    """Return the columns that are data, for printing."""
    return {name: value for name, value in columns.items() if isinstance(value, list) and name != "completion_ids"}


def select(columns: Columns, indices: list[int]) -> Columns:
    """Return the columns at `indices`."""
    return {k: [v[i] for i in indices] if isinstance(v, list) else v for k, v in columns.items()}
