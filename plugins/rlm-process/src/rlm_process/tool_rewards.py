"""Rewards of a turn with tool calls: its format, and the correctness of the calls (hook ``rlm_rewards``)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

TAGS = ("think", "tool_call", "response")


def tool_format(completions: Sequence[str], answer: Sequence[str]) -> list[float]:
    """Return 1 for a turn with the format of the reference, else 0.

    r = 1 if it is ``<think>…</think>`` followed by ``<tool_call>…</tool_call>`` and ``<response>…</response>``, as far
    as the reference has these two, in this order, once each and nothing else; 0 otherwise. ToolRL, arXiv
    2504.13958. The reference is the column `answer`.

    >>> reference = '<tool_call>{"name": "f", "parameters": {}}</tool_call>'
    >>> tool_format(["<think>so</think>" + reference, reference], [reference, reference])
    [1.0, 0.0]
    """
    return [float(_has_format(text, reference)) for text, reference in zip(completions, answer, strict=True)]


def _has_format(text: str, reference: str) -> bool:
    required_tags = [tag for tag in TAGS if tag == "think" or f"<{tag}>" in reference]
    blocks = r"\s*".join(rf"<{tag}>.*?</{tag}>" for tag in required_tags)
    each_once = all(text.count(f"<{slash}{tag}>") == (tag in required_tags) for tag in TAGS for slash in ("", "/"))
    return each_once and re.fullmatch(blocks, text.strip(), re.DOTALL) is not None


def tool_calls(completions: Sequence[str], answer: Sequence[str]) -> list[float | None]:
    """Return the correctness of a turn's tool calls, from −3 (nothing correct, or malformed) to 3 (everything).

    r = 6 R / S − 3, with R = J(names) + Σⱼ (J(parameters of call j) + Σₖ 1[value k of call j is correct]) and S the
    largest possible R, 1 + Σⱼ (1 + number of parameters). J is the Jaccard index: the size of the intersection of two
    collections over the size of their union. ToolRL, arXiv 2504.13958 §3.3.

    Each reference call is matched with the best unmatched call of the same name, in the order of the
    reference. Calls are one per line in ``<tool_call>``, as JSON with ``name`` and ``parameters``; the reference is
    the column `answer`. None where it calls no tool (there the authors' code gives 0).

    Raises:
        ValueError: The calls of a reference are malformed, so that no turn could match.

    >>> gold = '<tool_call>{"name": "f", "parameters": {"x": 1}}</tool_call>'
    >>> tool_calls([gold, gold.replace("1", "2"), "f(1)"], [gold] * 3)
    [3.0, 1.0, -3.0]
    """
    references = [_reference(gold) for gold in answer]
    return [
        None if reference is None else _score(reference, calls(text))
        for text, reference in zip(completions, references, strict=True)
    ]


Call = tuple[str, Mapping[str, Any]]


def calls(turn: str) -> list[Call] | None:
    """Parse the tool calls of a turn: names and parameters; None if there are none, or if any is malformed."""
    block = re.search(r"<tool_call>(.*?)</tool_call>", turn, re.DOTALL)
    if block is None:
        return None
    parsed = []
    for line in block[1].strip().splitlines():
        try:
            call = json.loads(line)
            name, parameters = call["name"], call["parameters"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        if not isinstance(name, str) or not isinstance(parameters, Mapping):
            return None
        parsed.append((name, parameters))
    return parsed or None


def _reference(gold: str) -> list[Call] | None:
    if "<tool_call>" not in gold:
        return None
    expected = calls(gold)
    if expected is None:
        raise ValueError(f"expected calls in the column `answer` as JSON, one per line, got {gold!r:.200}")
    return expected


def _score(expected: list[Call], generated: list[Call] | None) -> float:
    if generated is None:
        return -3.0
    max_score = 1.0 + sum(1 + len(parameters) for _, parameters in expected)
    total = jaccard((name for name, _ in expected), (name for name, _ in generated))
    unmatched = list(generated)
    for name, parameters in expected:
        candidates = [
            (_matches(parameters, other), index)
            for index, (other_name, other) in enumerate(unmatched)
            if other_name == name
        ]
        if candidates:
            match_score, index = max(candidates, key=lambda candidate: candidate[0])
            total += match_score
            unmatched.pop(index)
    return 6.0 * total / max_score - 3.0


def _matches(expected: Mapping[str, Any], generated: Mapping[str, Any]) -> float:
    """Return J of the parameter names of two calls, plus one for each correct value."""
    return jaccard(expected, generated) + sum(
        1.0 for name, value in expected.items() if name in generated and generated[name] == value
    )


def jaccard(a: Iterable[Hashable], b: Iterable[Hashable]) -> float:
    """Return the size of the intersection of two multisets over that of their union; 1 if both are empty.

    >>> jaccard("aab", "abc")
    0.5
    """
    first, second = Counter([*a]), Counter([*b])
    union = (first | second).total()
    return (first & second).total() / union if union else 1.0
