"""Random actions in a multi-turn environment: text, or one call of every tool."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from rlm_plugins.environment import Message, has_step
from rlm_plugins.rollout.tools import call_tools, reset_environment, step_environment
from rlm_testing.text_samples import UNUSUAL

Tool = Callable[..., Any]
Actions = Sequence[Any]
_TEXTS = st.sampled_from(UNUSUAL) | st.text(max_size=8)
_BY_TYPE: Mapping[Any, st.SearchStrategy[Any]] = {
    str: _TEXTS,
    int: st.integers(-9, 99),
    float: st.floats(-9, 9),
    bool: st.booleans(),
}


def text_actions() -> st.SearchStrategy[Actions]:
    """Return a strategy of turns in an environment with `step`."""
    return st.lists(_TEXTS, max_size=4)


def tool_actions(tools: Sequence[Tool]) -> st.SearchStrategy[Actions]:
    """Return a strategy of turns that call each tool once, with arguments that its type hints allow.

    A tool with other hints than text, number, bool, choice or a list of them is left out.
    """
    known = [(tool.__name__, _arguments(tool)) for tool in tools]
    return st.tuples(*(_call(name, arguments) for name, arguments in known if arguments is not None))


def play(environment: Any, example: Mapping[str, Any], actions: Actions, functions: Sequence[Tool]) -> list[Any]:
    """Return all results of these actions, up to the end of the episode."""
    results: list[Any] = [reset_environment(environment, example)]
    for action in actions:
        if has_step(environment):
            results.append(step_environment(environment, action))
            done = results[-1][-1]
        else:
            tool_results = call_tools(environment, action, functions)
            results.append(tool_results.messages)
            done = tool_results.done
        if done:
            break
    return results


def _call(name: str, arguments: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[Message]:
    return arguments.map(
        lambda values: {"role": "assistant", "content": "", "tool_calls": [{"name": name, "arguments": values}]}
    )


def _arguments(tool: Tool) -> st.SearchStrategy[dict[str, Any]] | None:
    try:
        hints = get_type_hints(tool)
    except (NameError, AttributeError, TypeError):  # a name that is imported for type checkers only
        return None
    known = {name: _values(hints.get(name)) for name in inspect.signature(tool).parameters}
    supported = {name: values for name, values in known.items() if values is not None}
    return st.fixed_dictionaries(supported) if len(supported) == len(known) else None


def _values(hint: Any) -> st.SearchStrategy[Any] | None:
    """Return a strategy of values for a type hint; None: not supported."""
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if get_origin(hint) is list and (items := _values(*get_args(hint))) is not None:
        return st.lists(items, max_size=3)
    return _BY_TYPE.get(hint)
