"""Replay of completions of an earlier run, from a pool on disk; registered by `rollouts`."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from rlm_plugins.errors import RecipeError, short

Pool = dict[str, list[str]]


class Replay:
    """Successes of an earlier run, mixed with new completions: RLEP, arXiv 2507.07451, two per prompt.

    `path` is a file of JSON lines with ``prompt`` (as in the data set), ``completion`` (text) and ``reward``, such as
    the ``successes.jsonl`` of the callback `keep_successes`. Lines with a reward below `at_least` are ignored, and
    duplicates count once.

    The selection depends on (seed, step, prompt) only, so that a resumed run selects the same; no completion occurs
    twice in a group. If the pool has too few, the policy generates the rest: `sources/replay/filled` in the log is the
    share of replayed ones. A pool without any of the prompts is an error.
    """

    def __init__(self, *, path: str = "successes.jsonl", at_least: float = 1.0) -> None:
        self.path, self.at_least = Path(path), at_least

    def __call__(
        self, prompts: Sequence[Any], source_index: Sequence[int], step: int, seed: int, trainer: Any
    ) -> dict[str, Any]:
        completion_ids: list[Any] = []
        for prompt, number in zip(prompts, source_index, strict=True):
            texts = self._shuffled(_key(prompt), step, seed)
            completion_ids.append(trainer.answer_ids(prompt, texts[number]) if number < len(texts) else None)
        return {"completion_ids": completion_ids}

    def check(self, prompts: Sequence[Any] | None = None) -> None:
        """Load the pool and check it against the training prompts.

        Args:
            prompts: The training prompts; None: unknown (a stream).

        Raises:
            RecipeError: The pool is missing, invalid, or has no usable completion for any prompt.
        """
        if not self.pool:
            problem = f"no completion in {self.path} has a reward of {self.at_least:g} or more"
            raise RecipeError(problem, where="at_least", hint="a lower `at_least`, or the pool of a better run")
        if prompts is not None and not any(_key(prompt) in self.pool for prompt in prompts):
            problem = f"no training prompt is in {self.path}: nothing would be replayed"
            prompt, pool_prompt = short(_key(next(iter(prompts)))), short(next(iter(self.pool)))
            first = f"the first training prompt is {prompt!r}, the first of the pool {pool_prompt!r}"
            hint = f"prompts must match exactly; {first}"
            raise RecipeError(problem, where="path", hint=hint)

    @cached_property
    def pool(self) -> Pool:
        """Prompt → its completions, in the order of the file."""
        if not self.path.is_file():
            hint = "train with `callbacks: [keep_successes]` first, which saves RUN/successes.jsonl"
            raise RecipeError(f"the pool '{self.path}' does not exist", where="path", hint=hint)
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
            problem = f"line {number} of {self.path} is not an entry of a pool: {type(error).__name__}: {error}"
            allowed = '{"prompt": …, "completion": "…", "reward": 1.0}'
            raise RecipeError(problem, where="path", allowed=allowed) from None

    def _shuffled(self, prompt: str, step: int, seed: int) -> list[str]:
        """Return the completions of a prompt in the random order of this step."""
        completions = list(self.pool.get(prompt, ()))
        random.Random(f"{seed}/{step}/{prompt}").shuffle(completions)
        return completions


def _key(prompt: Any) -> str:
    return prompt if isinstance(prompt, str) else json.dumps(prompt, sort_keys=True, ensure_ascii=False)
