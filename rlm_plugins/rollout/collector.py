"""Completions of a generation batch: from the policy, and from the recipe's rollout sources."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlm_plugins.equation.dispatch import attribute_errors, location
from rlm_plugins.errors import PartError
from rlm_plugins.registry.part import Bound
from rlm_plugins.rollout.group_layout import POLICY, assign_sources, label, labels


@dataclass
class CollectedBatch:
    """Completions of one process, with their prompts and sources.

    Args:
        source: Per completion, the position of its source in the labels; 0 is the policy.
        prompt_ids, completion_ids: Per completion, token ids.
        logprobs: Per completion and token, as its source reports them; None: not reported.
        mask: Per completion and token, True if it is trained on; None: all are.
        columns: Further columns that sources return, for the rewards; other completions keep the data set's value.
    """

    source: list[int]
    prompt_ids: list[list[int]]
    completion_ids: list[list[int]]
    logprobs: list[Sequence[float | None] | None]
    mask: list[Sequence[bool] | None]
    columns: dict[str, list[Any]] = field(default_factory=dict)


class RolloutCollector:
    """Generates each completion of a batch with its source."""

    def __init__(self, sources: Sequence[Bound], generations: int, *, plays: bool = False) -> None:
        self.sources, self._plays = sources, plays
        self.labels = labels(sources)
        self.assignment = assign_sources(sources, generations)
        self._source_index = [self.assignment[:i].count(number) for i, number in enumerate(self.assignment)]

    def share(self, name: str) -> float:
        """Return the share of a group that the recipe assigns to the source labeled `name`; 0 for the policy."""
        numbers = [number for number, source in enumerate(self.sources, 1) if label(source) == name != POLICY]
        return sum(self.assignment.count(number) for number in numbers) / len(self.assignment)

    def __call__(
        self, prompts: Sequence[Any], inputs: Sequence[Mapping[str, Any]], first: int, trainer: Any
    ) -> CollectedBatch:
        """Return all completions of this process.

        Every source is called on every process, also where it has no completions. What it does collectively
        (generating with a sharded policy, setting a temperature) then happens on all of them.
        """
        n = len(prompts)
        batch = CollectedBatch([0] * n, trainer.prompt_ids(prompts), [[] for _ in range(n)], [None] * n, [None] * n)
        vocab_size = trainer.model.get_input_embeddings().num_embeddings if self.sources else None
        in_group = [(first + i) % len(self.assignment) for i in range(n)]
        for number, source in enumerate(self.sources, 1):
            indices = [i for i in range(n) if self.assignment[in_group[i]] == number]
            data = {
                "tokenizer": trainer.tokenizer,
                "step": trainer.state.global_step,
                "seed": trainer.args.seed,
                "trainer": trainer,
                "generate": checked_generate(source, trainer.generate, vocab_size),
                "prompts": [prompts[i] for i in indices],
                "inputs": [inputs[i] for i in indices],
                "source_index": [self._source_index[in_group[i]] for i in indices],
            }
            output = _truncate(call_source(source, data, vocab_size), trainer.max_completion_length)
            _write_output(batch, inputs, self.labels.index(label(source)), indices, output)
        # The policy generates its own completions, and those for which a source returned None.
        unassigned = [i for i, ids in enumerate(batch.completion_ids) if not ids]
        policy_prompts = [prompts[i] for i in unassigned]
        policy_inputs = [inputs[i] for i in unassigned]
        generated = self._by_policy(trainer, policy_prompts, policy_inputs)
        _write_output(batch, inputs, 0, unassigned, generated)
        return batch

    def _by_policy(self, trainer: Any, prompts: list[Any], inputs: list[Any]) -> Mapping[str, list[Any]]:
        if self._plays:
            output: Mapping[str, list[Any]] = trainer.play(prompts, inputs)
            return output
        ids, logprobs = trainer.generate(prompts)
        return {"completion_ids": ids, "logprobs": logprobs or [None] * len(prompts)}


def _truncate(output: dict[str, list[Any]], max_length: int) -> dict[str, list[Any]]:
    """Cut completions to `max_length` tokens; without an end token they count as truncated."""
    truncated = dict(output)
    for name in ("completion_ids", *PER_TOKEN):
        if name in output:
            truncated[name] = [values and values[:max_length] for values in output[name]]
    return truncated


def _write_output(
    batch: CollectedBatch,
    inputs: Sequence[Mapping[str, Any]],
    source: int,
    indices: Sequence[int],
    output: Mapping[str, Any],
) -> None:
    """Write a source's output into the batch at `indices`, except completions for which it returned None."""
    fields: dict[str, list[Any]] = {"prompt_ids": batch.prompt_ids, "logprobs": batch.logprobs, "mask": batch.mask}
    for k, i in enumerate(indices):
        if not output["completion_ids"][k]:
            continue
        batch.source[i], batch.completion_ids[i] = source, list(output["completion_ids"][k])
        for name in output.keys() - {"completion_ids"}:
            if name not in fields:
                fields[name] = batch.columns.setdefault(name, [example.get(name) for example in inputs])
            fields[name][i] = output[name][k]


PER_TOKEN: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "logprobs": ("finite numbers (None: unknown)", lambda x: x is None or math.isfinite(x)),
    "mask": ("True or False (1 or 0)", lambda x: x in (0, 1)),
}
"""Per-token outputs of a source: name → allowed values in words, and a check of one value."""


def call_source(source: Bound, data: Mapping[str, Any], vocab_size: int | None = None) -> dict[str, list[Any]]:
    """Return the validated output of a source: one entry per completion, per-token lists of its length."""
    with attribute_errors(source):
        names = source.part.data
        result = source.call({name: data[name] for name in names}, data["step"])
    size = len(data["prompts"])
    columns = result if isinstance(result, Mapping) else {}
    sizes = {name: len(values) for name, values in columns.items() if hasattr(values, "__len__")}
    if "completion_ids" not in sizes or set(sizes.values()) != {size} or len(sizes) < len(columns):
        counts = ", ".join(f"{n} {name}" for name, n in sizes.items()) or type(result).__name__
        allowed = f"completion_ids (and further columns): a list of {size} entries each"
        raise PartError(f"returned {counts}", where=location(source), allowed=allowed)
    output = {("mask" if name == "env_mask" else name): list(values) for name, values in columns.items()}
    completions: list[Any] = []
    for ids in output["completion_ids"]:  # None leaves a completion to the policy
        action = "returned the completion"
        completions.append(None if ids is None else _token_ids(source, ids, action, vocab_size, "None, or "))
    output["completion_ids"] = completions
    for name in (name for name in PER_TOKEN if name in output):
        pairs = zip(output["completion_ids"], output[name], strict=True)
        output[name] = [_per_token(source, name, number, *pair) for number, pair in enumerate(pairs)]
    return output


def checked_generate(
    source: Bound, generate: Callable[..., tuple[list[list[int]], Any]], vocab_size: int | None = None
) -> Callable[..., list[list[int]]]:
    """Return the data ``generate`` of one source: the policy's generation, with prefixes checked."""

    def checked(prompts: Sequence[Any], prefixes: Any = None, **options: Any) -> list[list[int]]:
        if prefixes is not None:
            starts = list(prefixes)
            if len(starts) != len(prompts):
                problem = f"called `generate` with {len(starts)} prefixes for {len(prompts)} prompts"
                allowed = "one list of token ids per prompt (an empty one: none)"
                raise PartError(problem, where=location(source), allowed=allowed)
            numbered = [(ids, f"called `generate` with the prefix {n},") for n, ids in enumerate(starts)]
            options["prefixes"] = [_token_ids(source, ids, action, vocab_size) for ids, action in numbered]
        return generate(prompts, **options)[0]

    return checked


def _token_ids(source: Bound, tokens: Any, action: str, vocab_size: int | None, otherwise: str = "") -> list[int]:
    """Return token ids of the model's vocabulary, or raise an error that names the source's action."""
    allowed = f"{otherwise}a list of token ids" + (f" from 0 to {vocab_size - 1}" if vocab_size else "")
    try:
        ids = [operator.index(token) for token in tokens]
    except TypeError:
        raise PartError(f"{action} {tokens!r:.80}", where=location(source), allowed=allowed) from None
    for token in ids:
        if token < 0 or (vocab_size and token >= vocab_size):
            problem = f"{action} {ids!r:.80} with the token id {token}"
            raise PartError(problem, where=location(source), allowed=allowed)
    return ids


def _per_token(source: Bound, name: str, number: int, ids: list[int] | None, values: Any) -> list[Any] | None:
    """Return a source's values for the tokens of its completion `number`; None: not reported."""
    if not ids or values is None:
        return None
    values = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(values, Sequence) or len(values) != len(ids):
        actual = f"{len(values)} entries" if isinstance(values, Sequence) else f"type {type(values).__name__}"
        problem = f"returned a {name} of {actual} for a completion of {len(ids)} tokens"
        raise PartError(problem, where=location(source), allowed="one entry per token, or None for the completion")
    allowed, is_allowed = PER_TOKEN[name]
    for token, value in enumerate(values):
        if not _is_valid(is_allowed, value):
            problem = f"returned {value!r:.40} in its {name}: completion {number}, token {token}"
            raise PartError(problem, where=location(source), allowed=allowed)
    return list(values)


def _is_valid(check: Callable[[Any], bool], value: Any) -> bool:
    try:
        return check(value.item() if hasattr(value, "item") else value)
    except TypeError:
        return False
