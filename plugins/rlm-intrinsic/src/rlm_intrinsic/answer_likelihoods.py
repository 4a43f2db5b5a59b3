"""Likelihoods of several answers from intermediate positions (states) of a completion."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

from jaxtyping import Float
from pydantic import AfterValidator

from rlm_plugins.errors import PartError
from rlm_plugins.lazy import torch


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
        """
        from rlm_plugins.models.adapters import evaluation_mode

        if not ends:
            return []
        prompt_ids, lead_ids = self._prompt_ids(prompt), self._ids(lead)
        answer_ids = [self._ids(text) for text in answers]
        if not all(answer_ids):
            raise PartError("an answer has no token", hint="does the policy's tokenizer have its characters?")
        prefixes = [[*prompt_ids, *ids[:end], *lead_ids] for end in ends]
        with evaluation_mode(self._model):
            return mean_nll(self._model, prefixes, answer_ids).tolist()

    def _prompt_ids(self, prompt: Any) -> list[int]:
        if isinstance(prompt, str):
            return list(self._tokenizer(prompt)["input_ids"])
        inputs = self._tokenizer.apply_chat_template(
            prompt, add_generation_prompt=True, tokenize=True, return_dict=True
        )
        return list(inputs["input_ids"])

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])


def mean_nll(
    model: Any, prefixes: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]
) -> Float[torch.Tensor, "S K"]:
    """Compute the mean −log π of each answer (column) after each prefix (line), in one right-padded batch."""
    pairs = [(prefix, answer) for prefix in prefixes for answer in answers]
    sequences = [torch.tensor([*prefix, *answer]) for prefix, answer in pairs]
    ids = torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True).to(model.device)
    lengths = torch.tensor([len(sequence) for sequence in sequences], device=model.device)
    attention_mask = (torch.arange(ids.shape[1], device=model.device) < lengths[:, None]).long()
    logits = model(input_ids=ids, attention_mask=attention_mask, use_cache=False).logits
    values = []
    for row, (prefix, answer) in enumerate(pairs):
        logp = logits[row, len(prefix) - 1 : len(prefix) + len(answer) - 1].float().log_softmax(-1)
        target = ids[row, len(prefix) : len(prefix) + len(answer)]
        values.append(-logp.gather(1, target[:, None]).mean())
    return torch.stack(values).view(len(prefixes), len(answers))
