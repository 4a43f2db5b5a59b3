"""Likelihoods of several answers from intermediate positions (states) of a completion."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator

from rlm_intrinsic.tree_forward import Branch, padded_forward, tree_forward
from rlm_plugins.errors import PartError

TOLERANCE = 1e-3
"""Largest difference between the tree-shaped and the padded forward pass, in nats."""


def _validate_pattern(pattern: str) -> str:
    try:
        empty = re.compile(pattern).fullmatch("")
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    if empty:
        raise ValueError("matches the empty string; it must match the end of a step")
    return pattern


Regex = Annotated[str, AfterValidator(_validate_pattern)]


def step_ends(token_texts: Sequence[str], separator: str, most: int) -> list[int]:
    """Return the token counts at which each step but the last ends, at most `most` of them, evenly spaced.

    Args:
        token_texts: Text of each token; a step ends with the token in which its separator ends.
        separator: A regular expression.
        most: Largest number of states.

    >>> step_ends(["1+1", "=2", ";", "2+1=", "3;", "so 3"], ";", 15)
    [3, 5]
    """
    text = "".join(token_texts).rstrip()
    boundaries = {match.end() for match in re.finditer(separator, text) if match.end() < len(text)}
    ends, length = [], 0
    for count, token_text in enumerate(token_texts, start=1):
        if boundaries & {*range(length + 1, length + len(token_text) + 1)}:
            ends.append(count)
        length += len(token_text)
    num_kept = min(most, len(ends))
    return [ends[(index + 1) * len(ends) // num_kept - 1] for index in range(num_kept)]


class AnswerLikelihoods:
    """Likelihoods of answers from positions within a text.

    Args:
        model: A causal language model, with or without adapters.
        tokenizer: Its tokenizer.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self._model, self._tokenizer = model, tokenizer
        self._as_tree: bool | None = None

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each token; empty for special ones, so that the end token ends no step."""
        return [str(self._tokenizer.decode([token], skip_special_tokens=True)) for token in ids]

    def distances(
        self, prompt: Any, ids: Sequence[int], ends: Sequence[int], lead: str, answers: Sequence[str]
    ) -> list[list[float]]:
        """Compute −1/|y| Σ log π(y | prompt, ids[:end], lead), for each end (line) and answer y (column).

        Args:
            prompt: Text or messages.
            ids: Token ids of the completion.
            ends: Numbers of its tokens before each state.
            lead: Text before the answer.
            answers: The answers.

        Raises:
            PartError: An answer has no token in the tokenizer.
        """
        from rlm_plugins.models.adapters import evaluation_mode

        if not ends:
            return []
        prompt_ids, lead_ids = self._prompt_ids(prompt), self._ids(lead)
        branches: list[Branch] = [(lead_ids, self._ids(text)) for text in answers]
        if not all(tokens for _, tokens in branches):
            raise PartError("an answer has no token", hint="does the policy's tokenizer have its characters?")
        with evaluation_mode(self._model):
            return self._forward([*prompt_ids, *ids], [len(prompt_ids) + end for end in ends], branches)

    def _forward(self, trunk: list[int], cuts: list[int], branches: Sequence[Branch]) -> list[list[float]]:
        """Run the forward pass, as a tree if a comparison on the first text shows that it is equivalent."""
        forward = tree_forward if self._as_tree and self._fits_context(trunk, branches) else padded_forward
        distances = forward(self._model, trunk, cuts, branches)
        if self._as_tree is None:
            self._as_tree = self._supports_trees() and bool(
                (tree_forward(self._model, trunk, cuts, branches) - distances).abs().max() <= TOLERANCE
            )
        return distances.tolist()

    def _supports_trees(self) -> bool:
        """Return True if the attention implementation supports a mask per pair of tokens."""
        kind = str(self._model.config._attn_implementation).removeprefix("rlm_")
        return kind in ("sdpa", "eager")

    def _fits_context(self, trunk: Sequence[int], branches: Sequence[Branch]) -> bool:
        """Return True if the tree fits the context without truncation by a sliding window."""
        from rlm_fast.packed_forward import max_packed_length

        max_length = max_packed_length(self._model.config)
        return (
            max_length is None or len(trunk) + max(len(lead) + len(answer) for lead, answer in branches) <= max_length
        )

    def _prompt_ids(self, prompt: Any) -> list[int]:
        if isinstance(prompt, str):
            return list(self._tokenizer(prompt)["input_ids"])
        inputs = self._tokenizer.apply_chat_template(
            prompt, add_generation_prompt=True, tokenize=True, return_dict=True
        )
        return list(inputs["input_ids"])

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])
