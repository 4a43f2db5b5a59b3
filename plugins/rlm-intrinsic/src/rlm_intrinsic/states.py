"""What the policy thinks of several answers in the middle of a text (the states of a path)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator

from rlm_intrinsic.branches import Branch, read_rows, read_tree
from rlm_plugins.errors import PartError

CLOSE = 1e-3
"""How far the two ways of reading may be apart, in nats."""


def _readable(pattern: str) -> str:
    try:
        empty = re.compile(pattern).fullmatch("")
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from None
    if empty:
        raise ValueError("fits between any two letters; say what ends a step")
    return pattern


Regex = Annotated[str, AfterValidator(_readable)]


def states(pieces: Sequence[str], separator: str, most: int) -> list[int]:
    """After how many tokens each step ends but the last, which holds the answer; `most` of them at the most, evenly.

    Args:
        pieces: The text of each token; a step ends with the token in which its separator ends.
        separator: A regular expression.
        most: How many at most.

    >>> states(["1+1", "=2", ";", "2+1=", "3;", "so 3"], ";", 15)
    [3, 5]
    """
    text = "".join(pieces).rstrip()
    borders = {match.end() for match in re.finditer(separator, text) if match.end() < len(text)}
    found, length = [], 0
    for count, piece in enumerate(pieces, start=1):
        if borders & {*range(length + 1, length + len(piece) + 1)}:
            found.append(count)
        length += len(piece)
    kept = min(most, len(found))
    return [found[(place + 1) * len(found) // kept - 1] for place in range(kept)]


class Reader:
    """Reads answers from the middle of a text.

    Args:
        model: A causal language model, with or without adapters.
        tokenizer: Its tokenizer.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self._model, self._tokenizer = model, tokenizer
        self._as_tree: bool | None = None

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The text of each token; none for special ones, so that the end token ends no step."""
        return [str(self._tokenizer.decode([token], skip_special_tokens=True)) for token in ids]

    def distances(
        self, prompt: Any, ids: Sequence[int], ends: Sequence[int], lead: str, answers: Sequence[str]
    ) -> list[list[float]]:
        """−1/|y| Σ log π(y | prompt, ids[:end], lead), of each end (a line) and answer y (a column).

        Args:
            prompt: Text or messages.
            ids: What was written after it.
            ends: After how many tokens of it to stop.
            lead: What is said before the answer.
            answers: The answers.

        Raises:
            PartError: The tokenizer knows nothing of an answer.
        """
        from rlm_plugins.models.adapters import evaluation_mode

        if not ends:
            return []
        asked, before = self._asked(prompt), self._ids(lead)
        branches: list[Branch] = [(before, self._ids(text)) for text in answers]
        if not all(tokens for _, tokens in branches):
            raise PartError("an answer has no token", hint="does the policy's tokenizer know its letters?")
        with evaluation_mode(self._model):
            return self._read([*asked, *ids], [len(asked) + end for end in ends], branches)

    def _read(self, trunk: list[int], cuts: list[int], branches: Sequence[Branch]) -> list[list[float]]:
        """As a tree where that is the same: the first text is read both ways."""
        read = read_tree if self._as_tree and self._all_seen(trunk, branches) else read_rows
        found = read(self._model, trunk, cuts, branches)
        if self._as_tree is None:
            self._as_tree = self._takes_trees() and bool(
                (read_tree(self._model, trunk, cuts, branches) - found).abs().max() <= CLOSE
            )
        return found.tolist()

    def _takes_trees(self) -> bool:
        """Whether its attention hears a mask that says of each token whom it sees."""
        kind = str(self._model.config._attn_implementation).removeprefix("rlm_")
        return kind in ("sdpa", "eager")

    def _all_seen(self, trunk: Sequence[int], branches: Sequence[Branch]) -> bool:
        """Whether no sliding window ends within the text, and the model reads all of it alike."""
        from rlm_plugins.packing import max_packed_length

        most = max_packed_length(self._model.config)
        return most is None or len(trunk) + max(len(lead) + len(answer) for lead, answer in branches) <= most

    def _asked(self, prompt: Any) -> list[int]:
        if isinstance(prompt, str):
            return list(self._tokenizer(prompt)["input_ids"])
        given = self._tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=True, return_dict=True)
        return list(given["input_ids"])

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])
