"""What a model might do in a world that answers: words, or one call of every tool."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from rlm_plugins.environment import Message, has_step
from rlm_plugins.rollout.tools import begun, called, stepped
from rlm_plugins.testing.text_samples import ODD

Tool = Callable[..., Any]
Actions = Sequence[Any]
_WORDS = st.sampled_from(ODD) | st.text(max_size=8)
_PLAIN: Mapping[Any, st.SearchStrategy[Any]] = {
    str: _WORDS,
    int: st.integers(-9, 99),
    float: st.floats(-9, 9),
    bool: st.booleans(),
}


def spoken() -> st.SearchStrategy[Actions]:
    """Turns in a world of words."""
    return st.lists(_WORDS, max_size=4)


def calls(tools: Sequence[Tool]) -> st.SearchStrategy[Actions]:
    """Turns in a world of tools: each is called once, with arguments that its type hints allow.

    A tool whose hints are not understood (no text, number, truth value, choice or list of them) is left out.
    """
    known = [(tool.__name__, _arguments(tool)) for tool in tools]
    return st.tuples(*(_call(name, arguments) for name, arguments in known if arguments is not None))


def played(environment: Any, row: Mapping[str, Any], actions: Actions, functions: Sequence[Tool]) -> list[Any]:
    """Everything that the world says to these actions, up to its end."""
    said: list[Any] = [begun(environment, row)]
    for action in actions:
        if has_step(environment):
            said.append(stepped(environment, action))
            over = said[-1][-1]
        else:
            told = called(environment, action, functions)
            said.append(told.messages)
            over = told.done
        if over:
            break
    return said


def _call(name: str, arguments: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[Message]:
    return arguments.map(
        lambda given: {"role": "assistant", "content": "", "tool_calls": [{"name": name, "arguments": given}]}
    )


def _arguments(tool: Tool) -> st.SearchStrategy[dict[str, Any]] | None:
    try:
        hints = get_type_hints(tool)
    except (NameError, AttributeError, TypeError):  # a hint that only type checkers see
        return None
    known = {name: _values(hints.get(name)) for name in inspect.signature(tool).parameters}
    found = {name: values for name, values in known.items() if values is not None}
    return st.fixed_dictionaries(found) if len(found) == len(known) else None


def _values(hint: Any) -> st.SearchStrategy[Any] | None:
    """What a model may write for it; None: nobody knows."""
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if get_origin(hint) is list and (items := _values(*get_args(hint))) is not None:
        return st.lists(items, max_size=3)
    return _PLAIN.get(hint)
