"""A question and the steps of an answer as a process reward model reads them, while it learns and while it judges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Asked:
    """A question and an answer, as the model reads them.

    Args:
        ids: Token ids.
        places: Of the last token of each step, with its separator.
        unread: How many steps follow that are not read.
    """

    ids: list[int]
    places: list[int]
    unread: int = 0


class Reader:
    """Turns them into tokens.

    Args:
        tokenizer: The model's.
        separator: Stands after each step; the score is read at its last token.
        longest: Of a question and its answer so many tokens are read.
    """

    def __init__(self, tokenizer: Any, *, separator: str, longest: int) -> None:
        self.tokenizer, self._separator, self._longest = tokenizer, separator, longest

    def asked(self, prompt: Any, steps: Sequence[str]) -> Asked:
        """A question and the steps of an answer as token ids.

        Args:
            prompt: Text, or chat messages; to a model without chat template the words of the last speaker.
            steps: Their texts. White space at their ends goes behind the separator, or makes way for one that is white.
        """
        from rlm_plugins.rewards.columns import text_of

        if isinstance(prompt, str) or self.tokenizer.chat_template is None:
            prompt = text_of(prompt)
            ids = list(self.tokenizer(prompt)["input_ids"])
            ids = ids[:-1] if ids and ids[-1] == self.tokenizer.eos_token_id else ids
        else:
            chat = self.tokenizer.apply_chat_template(list(prompt), add_generation_prompt=True, return_dict=True)
            ids = list(chat["input_ids"])
        places, gap = [], ""
        for step in steps:
            text = step.rstrip()
            ids += self._ids(gap + text) + self._ids(self._separator)
            places.append(len(ids) - 1)
            gap = "" if self._separator.isspace() else step[len(text) :]
        read = [place for place in places if place < self._longest]
        return Asked(ids[: read[-1] + 1] if read else [], read, len(places) - len(read))

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"]) if text else []
