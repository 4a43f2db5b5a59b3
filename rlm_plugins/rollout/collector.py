"""Completions of a generation batch: from the policy, and from the recipe's rollout sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlm_plugins.registry.part import Bound
from rlm_plugins.rollout.group_layout import POLICY, assign_sources, label, labels
from rlm_plugins.rollout.source_output import PER_TOKEN, call_source, checked_generate


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
    """Generates each completion of a batch with its source.

    Args:
        sources: Rollout parts in the order of the recipe.
        generations: Completions per group.
        plays: True if the policy generates episodes of a multi-turn environment.

    Raises:
        RecipeError: The sources require more completions than a group has, or two share a label.
    """

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

        Args:
            prompts: One per completion of this process, groups repeated.
            inputs: The columns of each.
            first: Index of this process's first completion in the generation batch.
            trainer: An `EquationTrainer`: tokenizes, and generates with the policy.

        Raises:
            PartError: A source failed, or its output is invalid.
        """
        n = len(prompts)
        batch = CollectedBatch([0] * n, trainer.prompt_ids(prompts), [[] for _ in range(n)], [None] * n, [None] * n)
        vocab_size = trainer.model.get_input_embeddings().num_embeddings if self.sources else None
        in_group = [(first + i) % len(self.assignment) for i in range(n)]
        for number, source in enumerate(self.sources, 1):
            indices = [i for i in range(n) if self.assignment[in_group[i]] == number]
            data = {
                **_trainer_data(trainer),
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


def _trainer_data(trainer: Any) -> dict[str, Any]:
    return {
        "tokenizer": trainer.tokenizer,
        "step": trainer.state.global_step,
        "seed": trainer.args.seed,
        "trainer": trainer,
    }


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
            column = fields[name] if name in fields else _column(batch, inputs, name)
            column[i] = output[name][k]


def _column(batch: CollectedBatch, inputs: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    return batch.columns.setdefault(name, [example.get(name) for example in inputs])
