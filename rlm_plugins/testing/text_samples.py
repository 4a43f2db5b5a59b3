"""Rows of text as a reward meets them: whole groups, and completions that no data set shows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import strategies as st

from rlm_plugins.environment import Episode
from rlm_plugins.errors import PluginError
from rlm_plugins.testing.law import Draw
from rlm_plugins.testing.part_under_test import Subject

ODD = (
    *("", " ", "\n\n", "\x00", "\ufffd", "\u202e4", "👩‍👩‍👧", "²½", "١٢٣", "1,000", "-0", "1e999", "NaN", "∞", "1/0"),
    *("<answer></answer>", "</answer><answer>", "<answer>4", "\\boxed{", "{{{%s", "(" * 200, "9" * 5000, "a " * 20000),
)
"""Completions that no data set shows and every training run meets."""

Rows = dict[str, Any]


def rows(subject: Subject, draw: Draw) -> Rows:
    """Columns as TRL hands them over: whole groups, each of one problem."""
    size, problems = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    known = _strategies(subject)
    texts = [draw(known["completions"]) for _ in range(size * problems)]
    chat = draw(st.booleans())
    asked = [draw(known["prompts"]) for _ in range(problems)]
    columns: Rows = {
        "prompts": [_said("user", text, chat) for text in asked for _ in range(size)],
        "completions": [_said("assistant", text, chat) for text in texts],
        "completion_ids": [list(text.encode())[:100] for text in texts],
        "episodes": [Episode(None, "", turn_rewards=[float(len(text) % 3), 1.0]) for text in texts],
        "trainer_state": SimpleNamespace(global_step=draw(st.integers(0, 9)), epoch=0.0, max_steps=10),
        "log_extra": lambda column, values: None,
        "log_metric": lambda name, value: None,
    }
    for name in sorted(known.keys() - {"prompts", "completions"}):
        values = [draw(known[name]) for _ in range(problems)]
        columns[name] = [value for value in values for _ in range(size)]
    return columns


def _said(role: str, text: str, chat: bool) -> Any:
    return [{"role": role, "content": text}] if chat else text


def _strategies(subject: Subject) -> dict[str, st.SearchStrategy[Any]]:
    given = {
        name: values if isinstance(values, st.SearchStrategy) else st.sampled_from(list(values))
        for name, values in subject.columns.items()
    }
    odd = st.sampled_from(ODD) | st.text(max_size=20)
    completions = given.get("completions")
    return {
        "prompts": st.sampled_from(["2*2=", "2*3=", ""]),
        **given,
        "completions": completions | odd if completions is not None else odd,
    }


def require_columns(subject: Subject) -> None:
    """Stops when the reward needs a column nobody described.

    Raises:
        PluginError: It names the column and how to describe it.
    """
    supplied = {*subject.part.sample} - {"environments"} | {*subject.columns}
    for name in subject.part.needs if subject.part.hook == "rlm_rewards" else ():
        if name not in supplied:
            raise PluginError(
                f"'{subject.part.name}' asks for '{name}'",
                where="conformance",
                hint=f"tell the kit what such a column holds: columns={{'{name}': [value, value, …]}}",
            )


def shown(columns: Rows) -> dict[str, object]:
    """The columns that are data, to be printed."""
    return {name: value for name, value in columns.items() if isinstance(value, list) and name != "completion_ids"}


def some(columns: Rows, order: list[int]) -> Rows:
    """Some of the rows, or all in another order."""
    return {k: [v[i] for i in order] if isinstance(v, list) else v for k, v in columns.items()}
