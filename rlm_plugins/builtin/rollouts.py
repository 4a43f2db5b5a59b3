"""y: who writes rows beside the policy (hook ``rlm_rollouts``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import PositiveFloat

from rlm_plugins import hookimpl
from rlm_plugins.builtin.replay_rollouts import Replay
from rlm_plugins.builtin.tree_rollouts import Branches
from rlm_plugins.errors import PartError

Found = dict[str, list[Any]]
Write = Callable[..., list[list[int]]]


def policy(prompts: Sequence[Any], trainer: Any, *, temperature: PositiveFloat | None = None) -> Found:
    """The policy itself, for who wants to say its rows or its temperature.

    `temperature` divides the logits where the policy writes (its rows, and those that other sources have it write) and
    where it is read, so that a ratio is 1 on policy. By default it is `trainer.temperature`.
    """
    if temperature is not None:
        trainer.set_temperature(temperature)
    return {"completion_ids": [None] * len(prompts)}


def greedy(prompts: Sequence[Any], generate: Write) -> Found:
    """What the policy would write without chance: rewarded, to be compared with, never trained on.

    ReMax's baseline (arXiv 2310.10505): `num_completions: 1`, and the advantage `greedy_baseline`. Several rows of a
    group are all the same.
    """
    rows = generate(prompts, greedy=True)
    return {"completion_ids": list(rows), "mask": [[False] * len(row) for row in rows]}


class Demonstrations:
    """Completions from a column of the data set, as LUFFY, SRFT and HPT mix them among the policy's rows.

    The column holds text, or a list of texts of which each row of a group gets its own; a row that finds none is left
    to the policy. A text is given its end token, in a conversation that of the assistant's turn; what is longer than
    `max_completion_length` is cut and counts as truncated (`sources/demonstrations/truncated` in the log).
    """

    def __init__(self, *, column: str = "demonstration") -> None:
        self.column = column
        self.columns = (column,)

    def __call__(
        self, prompts: Sequence[Any], inputs: Sequence[Mapping[str, Any]], source_index: Sequence[int], trainer: Any
    ) -> Found:
        rows: list[Any] = []
        for prompt, row, number in zip(prompts, inputs, source_index, strict=True):
            text = self._text(row[self.column], number)
            rows.append(trainer.answer_ids(prompt, text) if text else None)
        return {"completion_ids": rows}

    def _text(self, found: Any, number: int) -> str | None:
        texts = [found] if isinstance(found, str) or found is None else list(found)
        text = texts[number] if number < len(texts) else None
        if text is None or isinstance(text, str):
            return text
        allowed = "text, or a list of texts"
        raise PartError(f"found {type(text).__name__} in the column '{self.column}'", allowed=allowed)


@hookimpl
def rlm_rollouts() -> dict[str, object]:
    return {
        "policy": policy,
        "greedy": greedy,
        "demonstrations": Demonstrations,
        "replay": Replay,
        "branches": Branches,
    }
