"""r of a turn that calls tools: its form, and how much of the calls is right (hook ``rlm_rewards``)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

TAGS = ("think", "tool_call", "response")


def tool_format(completions: Sequence[str], answer: Sequence[str]) -> list[float]:
    """Whether a turn is built like the one to be written.

    r = 1 if it is ``<think>…</think>`` and then ``<tool_call>…</tool_call>`` and ``<response>…</response>``, as far as
    the reference has these two, in this order, once each and nothing else; 0 otherwise. ToolRL, arXiv
    2504.13958. The reference is the column `answer`.

    >>> wanted = '<tool_call>{"name": "f", "parameters": {}}</tool_call>'
    >>> tool_format(["<think>so</think>" + wanted, wanted], [wanted, wanted])
    [1.0, 0.0]
    """
    return [float(_built(said, gold)) for said, gold in zip(completions, answer, strict=True)]


def _built(said: str, gold: str) -> bool:
    wanted = [tag for tag in TAGS if tag == "think" or f"<{tag}>" in gold]
    blocks = r"\s*".join(rf"<{tag}>.*?</{tag}>" for tag in wanted)
    once = all(said.count(f"<{slash}{tag}>") == (tag in wanted) for tag in TAGS for slash in ("", "/"))
    return once and re.fullmatch(blocks, said.strip(), re.DOTALL) is not None


def tool_calls(completions: Sequence[str], answer: Sequence[str]) -> list[float | None]:
    """How much of the tool calls of a turn is right, from −3 (nothing, or unreadable) to 3 (everything).

    r = 6 R / S − 3, with R = J(names) + Σⱼ (J(parameters of call j) + Σₖ 1[value k of call j is right]) and S what R is
    where all is right, 1 + Σⱼ (1 + number of parameters). J is the size of what two collections share over that of
    what is in either. ToolRL, arXiv 2504.13958 §3.3.

    Each reference call is held against the best of those that bear its name and are not taken, in the order of the
    reference. Calls stand one per line in ``<tool_call>``, as JSON with ``name`` and ``parameters``; the reference is
    the column `answer`. None where it calls no tool (there the authors' code pays 0).

    Raises:
        ValueError: A reference whose calls cannot be read, which no turn could match.

    >>> gold = '<tool_call>{"name": "f", "parameters": {"x": 1}}</tool_call>'
    >>> tool_calls([gold, gold.replace("1", "2"), "f(1)"], [gold] * 3)
    [3.0, 1.0, -3.0]
    """
    return [
        None if (wanted := _reference(gold)) is None else _score(wanted, calls(said))
        for said, gold in zip(completions, answer, strict=True)
    ]


Call = tuple[str, Mapping[str, Any]]


def calls(turn: str) -> list[Call] | None:
    """The tool calls of a turn: names and parameters; None where it has none that can be read."""
    block = re.search(r"<tool_call>(.*?)</tool_call>", turn, re.DOTALL)
    if block is None:
        return None
    found = []
    for line in block[1].strip().splitlines():
        try:
            call = json.loads(line)
            name, parameters = call["name"], call["parameters"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        if not isinstance(name, str) or not isinstance(parameters, Mapping):
            return None
        found.append((name, parameters))
    return found or None


def _reference(gold: str) -> list[Call] | None:
    if "<tool_call>" not in gold:
        return None
    if (wanted := calls(gold)) is None:
        raise ValueError(f"the calls of the column `answer` cannot be read as JSON, one per line: {gold!r:.200}")
    return wanted


def _score(wanted: list[Call], found: list[Call] | None) -> float:
    if found is None:
        return -3.0
    most = 1.0 + sum(1 + len(parameters) for _, parameters in wanted)
    right = shared((name for name, _ in wanted), (name for name, _ in found))
    free = list(found)
    for name, parameters in wanted:
        worth = [(_matches(parameters, other), n) for n, (called, other) in enumerate(free) if called == name]
        if worth:
            score, n = max(worth, key=lambda each: each[0])
            right += score
            free.pop(n)
    return 6.0 * right / most - 3.0


def _matches(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> float:
    """J of the names of two calls' parameters, and one for each value that is right."""
    return shared(wanted, found) + sum(1.0 for name, value in wanted.items() if name in found and found[name] == value)


def shared(a: Iterable[Hashable], b: Iterable[Hashable]) -> float:
    """What two collections have in common, over what is in either; 1 where both are empty.

    >>> shared("aab", "abc")
    0.5
    """
    one, two = Counter([*a]), Counter([*b])
    either = (one | two).total()
    return (one & two).total() / either if either else 1.0
