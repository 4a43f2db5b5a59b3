"""Rows of an earlier run, from a pool on disk. (Offered by `rollouts`.)"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from rlm_plugins.errors import RecipeError
from rlm_plugins.messages import short

Pool = dict[str, list[str]]


class Replay:
    """Successes of an earlier run, drawn again beside new rows: RLEP, arXiv 2507.07451, two per prompt.

    `path` is a file of JSON lines with ``prompt`` (as in the data set), ``completion`` (text) and ``reward``, such as
    the ``successes.jsonl`` that the callback `keep_successes` writes. Lines with a reward below `at_least` are not
    read, and a completion counts once.

    Which ones are drawn depends on (seed, step, prompt) alone, so that a resumed run draws the same; no completion
    twice in a group. A row for which the pool has nothing (left) is written by the policy: `sources/replay/filled`
    in the log is the share of the others. A pool that knows none of the prompts is refused.
    """

    def __init__(self, *, path: str = "successes.jsonl", at_least: float = 1.0) -> None:
        self.path, self.at_least = Path(path), at_least

    def __call__(
        self, prompts: Sequence[Any], source_index: Sequence[int], step: int, seed: int, trainer: Any
    ) -> dict[str, Any]:
        rows: list[Any] = []
        for prompt, number in zip(prompts, source_index, strict=True):
            drawn = self._drawn(_key(prompt), step, seed)
            rows.append(trainer.answer_ids(prompt, drawn[number]) if number < len(drawn) else None)
        return {"completion_ids": rows}

    def check(self, prompts: Sequence[Any] | None = None) -> None:
        """Reads the pool.

        Args:
            prompts: Those that will be asked; None: nobody knows (a stream).

        Raises:
            RecipeError: There is none, it cannot be read, nothing in it is good enough, or nothing answers a prompt.
        """
        if not self.pool:
            problem = f"no completion in {self.path} has a reward of {self.at_least:g} or more"
            raise RecipeError(problem, where="at_least", hint="a lower `at_least`, or a pool of a better run")
        if prompts is not None and not any(_key(prompt) in self.pool for prompt in prompts):
            problem = f"no prompt of the training rows is in {self.path}: nothing would be replayed"
            asked, known = (short(text) for text in (_key(next(iter(prompts))), next(iter(self.pool))))
            hint = f"a prompt must be the same, letter for letter; the first row asks {asked!r}, the pool has {known!r}"
            raise RecipeError(problem, where="path", hint=hint)

    @cached_property
    def pool(self) -> Pool:
        """Prompt → its completions, in the order of the file."""
        if not self.path.is_file():
            hint = "train with `callbacks: [keep_successes]` first: it writes RUN/successes.jsonl"
            raise RecipeError(f"there is no pool '{self.path}'", where="path", hint=hint)
        pool: dict[str, dict[str, None]] = {}
        for number, line in enumerate(self._text().splitlines(), 1):
            prompt, completion, reward = self._entry(line, number)
            if reward >= self.at_least:
                pool.setdefault(_key(prompt), {})[completion] = None
        return {prompt: list(completions) for prompt, completions in pool.items()}

    def _text(self) -> str:
        try:
            return self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise RecipeError(f"the pool {self.path} cannot be read: {error}", where="path") from None

    def _entry(self, line: str, number: int) -> tuple[Any, str, float]:
        try:
            entry = json.loads(line)
            return entry["prompt"], str(entry["completion"]), float(entry["reward"])
        except (ValueError, KeyError, TypeError) as error:
            problem = f"line {number} of {self.path} is no entry of a pool: {type(error).__name__}: {error}"
            allowed = '{"prompt": …, "completion": "…", "reward": 1.0}'
            raise RecipeError(problem, where="path", allowed=allowed) from None

    def _drawn(self, prompt: str, step: int, seed: int) -> list[str]:
        """The completions of a prompt in the order in which this step draws them."""
        found = list(self.pool.get(prompt, ()))
        random.Random(f"{seed}/{step}/{prompt}").shuffle(found)
        return found


def _key(prompt: Any) -> str:
    return prompt if isinstance(prompt, str) else json.dumps(prompt, sort_keys=True, ensure_ascii=False)
