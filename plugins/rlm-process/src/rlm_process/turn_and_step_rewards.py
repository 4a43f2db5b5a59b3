"""Rewards of turns and of steps: from a user's function, or the format and correctness of tool calls."""

from __future__ import annotations

import inspect
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any

from jaxtyping import Bool, Float

from rlm_plugins.errors import PartError, RecipeError, nearest
from rlm_plugins.lazy import torch
from rlm_plugins.registry.loading import await_all, call_with_accepted, import_function
from rlm_plugins.rewards.fault import Fault, brief, validate_score
from rlm_process.advantages import turns
from rlm_process.step_boundaries import Address, Steps, step_cutter, step_spans, token_texts, zero_rewards

Ids = Sequence[Sequence[int]]


class PerTurn:
    """Reward each turn, on its last token, with the value of a user's function.

    r′ᵢₜ = rᵢₜ + weight · f(turn) on the last token t of a turn; `by` is the address of f.

    f is called once per completion with the arguments that it names: `texts`, the text of each turn; `observations`,
    the text between it and the previous turn (empty for the first: the prompt is not included); and columns of the data
    set. It returns one number per turn, or None for a turn without a score.

    A turn is a run of tokens that are trained on: see :func:`turns`.
    """

    provided = ("texts", "observations")

    def __init__(self, *, by: Address, weight: float = 1.0) -> None:
        self.by, self.weight = by, weight

    def check(self, columns: Collection[str]) -> None:
        check_named(self.by, self.provided, columns)

    def __call__(
        self, completion_ids: Ids, mask: Bool[torch.Tensor, "B T"], inputs: Sequence[Mapping[str, Any]], tokenizer: Any
    ) -> Float[torch.Tensor, "B T"]:
        function = import_function(self.by, where="by")
        rewards = torch.zeros(mask.shape, device=mask.device)
        for row, (ids, owner) in enumerate(zip(completion_ids, turns(mask).tolist(), strict=True)):
            count = max(owner, default=-1) + 1
            texts, observations = [""] * count, [""] * (count + 1)
            last_tokens, next_turn = [0] * count, 0
            for token, text in enumerate(token_texts(ids, tokenizer)):
                if owner[token] < 0:
                    observations[next_turn] += text
                else:
                    texts[owner[token]] += text
                    last_tokens[owner[token]], next_turn = token, owner[token] + 1
            arguments = {**inputs[row], "texts": texts, "observations": observations[:count]}
            for position, score in zip(last_tokens, _scores(function, arguments, self.by, "per_turn"), strict=True):
                rewards[row, position] = self.weight * score
        return rewards


class PerStep:
    """Reward each step, on its last token, with the value of a user's function.

    r′ᵢₜ = rᵢₜ + weight · f(step) on the last token t of a step; `by` is the address of f, and `steps` defines a step.

    f is called once per completion with the arguments that it names: `texts`, the text of each step, and columns of the
    data set. It returns one number per step, or None for a step without a score. In a multi-turn environment a step
    never extends beyond its turn.

    Pitfall: if each step is rewarded, generating more steps pays. `step_relative` with `alike: number`
    compares a step with those at the same position, so that more steps gain nothing.
    """

    provided = ("texts",)

    def __init__(self, *, by: Address, steps: Steps = "lines", weight: float = 1.0) -> None:
        self.by, self.steps, self.weight = by, steps, weight

    def check(self, columns: Collection[str]) -> None:
        check_named(self.by, self.provided, columns)

    def __call__(
        self,
        completion_ids: Ids,
        mask: Bool[torch.Tensor, "B T"],
        inputs: Sequence[Mapping[str, Any]],
        tokenizer: Any,
        turn_rewards: Float[torch.Tensor, "B T"] | None = None,
    ) -> Float[torch.Tensor, "B T"]:
        function, rewards = import_function(self.by, where="by"), zero_rewards(mask, turn_rewards)
        cut_steps = step_cutter(self.steps, tokenizer, where="shapers: per_step.steps")
        spans = step_spans(completion_ids, cut_steps, None if turn_rewards is None else mask)
        for row, steps in enumerate(spans):
            texts = token_texts(completion_ids[row], tokenizer)
            arguments = {**inputs[row], "texts": ["".join(texts[a:b]) for a, b in steps]}
            for (_, end), score in zip(steps, _scores(function, arguments, self.by, "per_step"), strict=True):
                rewards[row, end - 1] = self.weight * score
        return rewards.where(mask, 0.0)


def check_named(by: str, provided: Collection[str], columns: Collection[str]) -> None:
    """Check that a function can be called with the available arguments.

    Args:
        by: Its address.
        provided: Names of the arguments beside the columns.
        columns: Columns of the data set; empty: unknown.
    """
    available = {*provided, *columns}
    if not columns:  # the columns of a stream are unknown before it is read
        return
    for name, parameter in inspect.signature(import_function(by, where="by")).parameters.items():
        is_variadic = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        if name not in available and not is_variadic and parameter.default is parameter.empty:
            problem = f"'{by}' requires '{name}', which is not available"
            raise RecipeError(problem, where="by", allowed=", ".join(sorted(available)), hint=nearest(name, available))


def _scores(function: Callable[..., Any], arguments: Mapping[str, Any], by: str, part: str) -> list[float]:
    """Call the function and return its scores as a list; 0 where it returned None."""
    count, returned = len(arguments["texts"]), await_all([call_with_accepted(function, arguments)])[0]
    scores, problem = returned.tolist() if hasattr(returned, "tolist") else returned, f"returned {brief(returned)}"
    if isinstance(scores, Sequence) and not isinstance(scores, str) and len(scores) == count:
        try:
            return [validate_score(x) or 0.0 for x in scores]
        except Fault as fault:
            problem = fault.problem
    allowed = f"{count} finite numbers (None: no score), one per entry of `texts`"
    raise PartError(f"'{by}' {problem}", where=f"shapers: {part}.by", allowed=allowed)


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
