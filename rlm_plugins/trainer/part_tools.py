"""Functions that scoring parts may call on extra completions: log-probs, generation and rewards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rlm_plugins.distributed import gather_lists, rank_slice
from rlm_plugins.errors import PartError
from rlm_plugins.rewards.fault import raise_on_all_processes
from rlm_plugins.rewards.trl_adapter import compute_scores
from rlm_plugins.rollout.completion_cache import pad_sequences
from rlm_plugins.trainer.context import TrainerContext
from rlm_plugins.trainer.generation import PolicyGeneration
from rlm_plugins.trainer.passes import ForwardPasses
from rlm_plugins.trainer.prompts import Prompts
from rlm_plugins.trainer.reward_prefetch import RewardPrefetch
from rlm_plugins.trainer.rewards import Rewards


@dataclass
class PartTools:
    """Provides the scoring data that are lists, and functions on extra completions.

    A scoring part runs on every process with the completions of all processes, so all make the same calls. Each
    computes its share and receives all results. The extra completions are not trained on.
    """

    context: TrainerContext
    prompts: Prompts
    generation: PolicyGeneration
    passes: ForwardPasses
    rewards: Rewards
    prefetch: RewardPrefetch

    def data(self, out: dict[str, Any]) -> dict[str, Any]:
        """Return name → lists of all processes, where a scoring part names them, and the functions.

        Args:
            out: TRL's dictionary for the completions of this process.
        """

        def ids(name: str) -> list[list[int]]:
            rows = zip(out[f"{name}_ids"], out[f"{name}_mask"].bool(), strict=True)
            return [row[mask].tolist() for row, mask in rows]

        lists: dict[str, Callable[[], list[Any]]] = {
            "prompts": lambda: [row["prompt"] for row in self.prompts.inputs],
            "inputs": lambda: list(self.prompts.inputs),
            "prompt_ids": lambda: ids("prompt"),
            "completion_ids": lambda: ids("completion"),
        }
        return {
            name: gather_lists(local_list())
            for name, local_list in lists.items()
            if self.context.is_observed(name) or self.context.needs.for_scoring(name)
        } | {
            "logprobs_of": self._observed("logprobs_of", self.logprobs_of),
            "generate": self._observed("generate", self.generate),
            "rewards_of": self._observed("rewards_of", self.rewards_of),
            "tokenizer": self.context.tokenizer,
            "log": lambda name, x: self.context.log(name, float(x)),
        }

    def _observed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function`, whose results are passed to the observers."""

        def call(*args: Any, **options: Any) -> Any:
            result = function(*args, **options)
            for observer in self.context.observers:
                observer.called(name, result)
            return result

        return call if self.context.observers else function

    def logprobs_of(self, prompt_ids: Sequence[Sequence[int]], completion_ids: Sequence[Sequence[int]]) -> torch.Tensor:
        """Return (n, longest) log-probs under the model with its current adapters; may carry a gradient.

        Every process computes all of them: a part that trains on them shares the work itself.
        """
        _check_lengths("logprobs_of", prompt_ids, completion_ids)
        logps: torch.Tensor = self.passes.of(self.context.model, self._padded(prompt_ids, completion_ids))[0]
        return logps

    def statistics_of(
        self, prompt_ids: Sequence[Sequence[int]], completion_ids: Sequence[Sequence[int]]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log-probs and entropies (n, longest) under the model, without gradient; each process its own."""
        _check_lengths("token_statistics", prompt_ids, completion_ids)
        inputs, size = self._padded(prompt_ids, completion_ids), self.context.args.per_device_train_batch_size
        with torch.no_grad():
            logp, entropy, _ = self.passes.of(self.context.model, inputs, size, compute_entropy=True)
        return logp, entropy

    def _padded(
        self, prompt_ids: Sequence[Sequence[int]], completion_ids: Sequence[Sequence[int]]
    ) -> dict[str, torch.Tensor]:
        prompts = [torch.tensor(ids).long() for ids in prompt_ids]
        completions = [torch.tensor(ids).long() for ids in completion_ids]
        inputs = pad_sequences(prompts, completions, self.context.tokenizer.pad_token_id)
        return {name: x.to(self.context.accelerator.device) for name, x in inputs.items()}

    def generate(
        self, prompts: Sequence[Any], prefixes: Sequence[Sequence[int]] | None = None, *, greedy: bool = False
    ) -> list[list[int]]:
        """Return token ids that the policy generates, in batches of the size of a generation batch."""
        starts = [[]] * len(prompts) if prefixes is None else prefixes
        _check_lengths("generate", prompts, starts)
        local, generated = rank_slice(len(prompts)), []
        size = self.context.args.per_device_train_batch_size * self.context.args.steps_per_generation
        for first in range(0, local.stop - local.start, size):  # equally often on every process
            rows = slice(local.start + first, min(local.start + first + size, local.stop))
            generated += self.generation.generate(prompts[rows], starts[rows], greedy=greedy)[0]
        return gather_lists(generated)

    def rewards_of(
        self, prompts: Sequence[Any], completion_ids: Sequence[Sequence[int]], inputs: Sequence[Mapping[str, Any]]
    ) -> torch.Tensor:
        """Return (n,) Σ weight · reward, NaN if no reward applies; only failures are logged.

        Raises:
            Fault: Of a reward that stops the run; on every process.
        """
        _check_lengths("rewards_of", prompts, completion_ids, inputs)
        local = rank_slice(len(prompts))
        scores = gather_lists(self._local_rewards(prompts[local], completion_ids[local], inputs[local]))
        per_function = torch.tensor(scores, device=self.context.accelerator.device)
        return self.rewards.weighted(per_function.view(-1, len(self.context.rewards)))

    def _local_rewards(
        self, prompts: Sequence[Any], completion_ids: Sequence[Sequence[int]], inputs: Sequence[Mapping[str, Any]]
    ) -> list[list[float]]:
        """Return each reward of some completions; NaN in a row that a failure excludes."""
        faults, skipped = self.rewards.faults, set[int]()
        if faults is not None:
            faults.clear()
        state = self.prefetch.arguments()["trainer_state"]
        arguments = {"trainer_state": state, "log_extra": _ignore, "log_metric": _ignore}
        columns = self.prefetch.columns(prompts, completion_ids, inputs, **arguments) if prompts else {}
        scores = [compute_scores(reward, columns) if prompts else [] for reward in self.prefetch.functions]
        if faults is not None:
            raise_on_all_processes(faults.stop)
            skipped = faults.skipped
            records = gather_lists(faults.records)
            if records and self.rewards.log_faults is not None:
                self.rewards.log_faults(records)
        rows = [[torch.nan if x is None else x for x in row] for row in zip(*scores, strict=True)]
        return [[torch.nan] * len(row) if i in skipped else row for i, row in enumerate(rows)]


def _check_lengths(function: str, *columns: Sequence[Any]) -> None:
    if len(set(map(len, columns))) > 1:
        lengths = ", ".join(str(len(column)) for column in columns)
        raise PartError(f"called `{function}` with lists of {lengths} entries", allowed="one entry per row in each")


def _ignore(*_: Any) -> None:
    """Discard what a reward logs of extra completions."""
