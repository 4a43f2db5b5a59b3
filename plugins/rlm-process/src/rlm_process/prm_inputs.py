"""Token ids of a prompt and a completion's steps for a process reward model, in training and scoring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SEPARATOR = "\n"
"""Text after each step, where a model is trained here."""
LONGEST = 4096
"""Largest number of tokens of a prompt and its completion, where a model is trained here."""


@dataclass(frozen=True)
class PRMInput:
    """A prompt and a completion as the model's input.

    Args:
        ids: Token ids.
        places: Position of the last token of each step, including its separator.
        num_unread: Number of steps beyond the length limit.
    """

    ids: list[int]
    places: list[int]
    num_unread: int = 0


class PRMTokenizer:
    """Tokenizer of prompts and steps.

    Args:
        tokenizer: The model's tokenizer.
        separator: Text after each step; the score is read at its last token.
        longest: Largest number of tokens of a prompt and its completion.
    """

    def __init__(self, tokenizer: Any, *, separator: str, longest: int) -> None:
        self.tokenizer, self._separator, self._longest = tokenizer, separator, longest

    def encode(self, prompt: Any, steps: Sequence[str]) -> PRMInput:
        """Tokenize a prompt and the steps of a completion.

        Args:
            prompt: Text, or chat messages; without a chat template only the text of the last message is used.
            steps: Their texts. Trailing white space follows the separator, or is dropped if the separator is white
                space.
        """
        from rlm_algorithms.auxiliary_part import without_special_tokens

        from rlm_plugins.rewards.columns import text_of

        if isinstance(prompt, str) or self.tokenizer.chat_template is None:
            prompt = text_of(prompt)
            ids = list(self.tokenizer(prompt)["input_ids"])
            ids = ids[:-1] if ids and ids[-1] == self.tokenizer.eos_token_id else ids
        else:
            encoded = self.tokenizer.apply_chat_template(list(prompt), add_generation_prompt=True, return_dict=True)
            ids = list(encoded["input_ids"])
        positions, trailing_space = [], ""
        for step in steps:
            text = without_special_tokens(self.tokenizer, step.rstrip())
            ids += self._ids(trailing_space + text) + self._ids(self._separator)
            positions.append(len(ids) - 1)
            trailing_space = "" if self._separator.isspace() else step[len(step.rstrip()) :]
        within_limit = [position for position in positions if position < self._longest]
        return PRMInput(
            ids[: within_limit[-1] + 1] if within_limit else [], within_limit, len(positions) - len(within_limit)
        )

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"]) if text else []
