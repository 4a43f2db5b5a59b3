"""What a scoring part may try on completions that nobody is taught: read them, write on from them, have them judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from rlm_plugins.distributed import gather_lists, rank_slice
from rlm_plugins.errors import PartError
from rlm_plugins.rewards.fault_log import agree
from rlm_plugins.rewards.trl_adapter import answered
from rlm_plugins.rollout.completion_cache import rows_of
from rlm_plugins.trainer.reward_prefetch import Hurrying


class Trying(Hurrying):
    """The same, with the words of the scoring room that are no numbers of its rows.

    A scoring part runs on every process, on the rows of all. So every process asks for the same continuations and the
    same scores: each works on its share, and all get the whole.
    """

    def _words(self, out: dict[str, Any]) -> dict[str, Any]:
        """What the rows of all processes are made of, where a scoring part names it, and the verbs."""

        def ids(name: str) -> list[list[int]]:
            there = out[f"{name}_mask"].bool()
            return [row[here].tolist() for row, here in zip(out[f"{name}_ids"], there, strict=True)]

        make: dict[str, Callable[[], list[Any]]] = {
            "prompts": lambda: [row["prompt"] for row in self._inputs],
            "inputs": lambda: list(self._inputs),
            "prompt_ids": lambda: ids("prompt"),
            "completion_ids": lambda: ids("completion"),
        }
        return {name: gather_lists(rows()) for name, rows in make.items() if self._scoring_names(name)} | {
            "logprobs_of": self._try_reading,
            "generate": self._try_writing,
            "rewards_of": self._try_judging,
            "tokenizer": self._tokenizer,
            "log": lambda name, x: self._ledger[name].append(float(x)),
        }

    def _try_reading(self, prompt_ids: Sequence[Sequence[int]], completion_ids: Sequence[Sequence[int]]) -> Any:
        """(n, longest) log-probabilities under the model as its adapters stand, with a gradient where one is wanted.

        The only one of the three that shares no work: who learns from it knows best what to share.
        """
        _same_length("logprobs_of", prompt_ids, completion_ids)
        prompts, completions = ([torch.tensor(x).long() for x in ids] for ids in (prompt_ids, completion_ids))
        rows = rows_of(prompts, completions, self._tokenizer.pad_token_id)
        return self._read(self.model, {name: x.to(self.accelerator.device) for name, x in rows.items()})[0]

    def _try_writing(
        self, prompts: Sequence[Any], prefixes: Sequence[Sequence[int]] | None = None, *, greedy: bool = False
    ) -> list[list[int]]:
        """What the policy writes, as many rows at a time as it does of a generation batch."""
        starts = [[]] * len(prompts) if prefixes is None else prefixes
        _same_length("generate", prompts, starts)
        mine, written = rank_slice(len(prompts)), []
        size = self.args.per_device_train_batch_size * self.args.steps_per_generation
        for first in range(0, mine.stop - mine.start, size):  # as often on every process
            rows = slice(mine.start + first, min(mine.start + first + size, mine.stop))
            written += self.write(prompts[rows], starts[rows], greedy=greedy)[0]
        return gather_lists(written)

    def _try_judging(
        self, prompts: Sequence[Any], completion_ids: Sequence[Sequence[int]], inputs: Sequence[Mapping[str, Any]]
    ) -> torch.Tensor:
        """(n,) Σ weight · reward, NaN where no reward applied; nothing is logged but faults.

        Raises:
            Fault: Of a reward that stops the run; on every process.
        """
        _same_length("rewards_of", prompts, completion_ids, inputs)
        mine = rank_slice(len(prompts))
        said = gather_lists(self._judged(prompts[mine], completion_ids[mine], inputs[mine]))
        return self._weighted(torch.tensor(said, device=self.accelerator.device).view(-1, len(self._rewards)))

    def _judged(
        self, prompts: Sequence[Any], completion_ids: Sequence[Sequence[int]], inputs: Sequence[Mapping[str, Any]]
    ) -> list[list[float]]:
        """What each reward says of some rows; of one that failed and is skipped all are NaN."""
        if self._faults is not None:
            self._faults.clear()
        here = {"trainer_state": self.state, "log_extra": _ignore, "log_metric": _ignore}
        given = self._columns_of(prompts, completion_ids, inputs, **here) if prompts else {}
        said = [answered(reward, given) if prompts else [] for reward in self.reward_funcs]
        skipped: set[int] = set()
        if self._faults is not None:
            agree(self._faults.stop)
            skipped = self._faults.skipped
            records = gather_lists(self._faults.records)
            if records and self._note is not None:
                self._note(records)
        rows = zip(*said, strict=True)
        return [[torch.nan if i in skipped or x is None else x for x in row] for i, row in enumerate(rows)]


def _same_length(verb: str, *columns: Sequence[Any]) -> None:
    if len(set(map(len, columns))) > 1:
        said = ", ".join(str(len(column)) for column in columns)
        raise PartError(f"called `{verb}` with lists of {said} entries", allowed="one entry per row in each")


def _ignore(*_: Any) -> None:
    """The ledger is for rows that are taught."""
