"""A reward model: a scalar head on the hidden state of the last token of a conversation.

    r(x, y) = w · h(x, y)

h is the trunk's hidden state at the last token of prompt and completion, with the adapter that was trained together
with the head w on pairs (Bradley–Terry: σ(r(x, y⁺) − r(x, y⁻)) is the probability that y⁺ is preferred). The files are
those of PEFT and transformers for sequence classification with one label, so they are interchangeable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from rlm_plugins.models.quoted_text import messages_without_special_tokens, without_special_tokens

Context = Callable[[], Any]


class ScoreHead(torch.nn.Linear):
    """h → w · h (+ b), in float32 for any trunk; initialized at zero."""

    def __init__(self, width: int, device: Any, bias: bool = False) -> None:
        super().__init__(width, 1, bias=bias, device=device, dtype=torch.float32)

    def reset_parameters(self) -> None:
        """Initialize with zeros, without using the RNG."""
        for x in self.parameters():
            torch.nn.init.zeros_(x)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the scores of hidden states, (…, H) → (…, 1)."""
        with torch.autocast(hidden.device.type, enabled=False):
            bias = None if self.bias is None else self.bias.float()
            return torch.nn.functional.linear(hidden.float(), self.weight.float(), bias)

    @classmethod
    def from_weights(cls, weight: torch.Tensor, bias: torch.Tensor | None, device: Any) -> ScoreHead:
        """Return a head with these weights."""
        head = cls(weight.shape[1], device, bias is not None).requires_grad_(False)
        head.weight.copy_(weight)
        if bias is not None:
            head.bias.copy_(bias)
        return head


class RewardModel:
    """A trunk and a head that score conversations.

    Args:
        trunk: Token ids → hidden states; a transformer without its language head.
        head: (…, H) → (…, 1).
        tokenizer: The tokenizer of its training.
        active: A context in which the trunk is this model's, in evaluation mode without gradient.
        device: Device of the trunk.
    """

    def __init__(self, trunk: Any, head: Any, tokenizer: Any, active: Context, device: Any) -> None:
        self.trunk, self.head, self.tokenizer = trunk, head, tokenizer
        self._active, self._device = active, device

    def scores(self, sequences: Sequence[list[int]], batch_size: int) -> list[float]:
        """Return one score per sequence of token ids; batches are formed by length, which changes no score."""
        order = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
        scores = [0.0] * len(sequences)
        with self._active():
            for start in range(0, len(order), batch_size):
                indices = order[start : start + batch_size]
                for i, score in zip(indices, self._forward([sequences[i] for i in indices]), strict=True):
                    scores[i] = score
        return scores

    def _forward(self, rows: list[list[int]]) -> list[float]:
        pad = self.tokenizer.pad_token_id
        width = max(map(len, rows))
        ids = torch.tensor([row + [pad] * (width - len(row)) for row in rows], device=self._device)
        attention_mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=self._device)
        hidden = self.trunk(input_ids=ids, attention_mask=attention_mask, use_cache=False).last_hidden_state
        last = ((ids != pad) * torch.arange(width, device=self._device)).argmax(1)  # as in transformers
        scores: list[float] = self.head(hidden[torch.arange(len(rows), device=self._device), last]).squeeze(-1).tolist()
        return scores


def conversation_ids(tokenizer: Any, prompt: Any, completion: Any) -> list[int]:
    """Return the input of a reward model for a prompt and a completion, in training and in scoring.

    A special token that the completion spells is broken up.

    Args:
        tokenizer: Of the reward model.
        prompt: Text, or chat messages.
        completion: Text (in a conversation: the assistant's message), or the messages that follow the prompt; also a
            conversation that begins with the prompt.
    """
    if isinstance(prompt, str):
        end = tokenizer.eos_token
        completion = without_special_tokens(tokenizer, completion.removesuffix(end))
        return list(tokenizer(prompt + completion + end)["input_ids"])
    messages = [{"role": "assistant", "content": completion}] if isinstance(completion, str) else list(completion)
    own = messages[len(prompt) :] if messages[: len(prompt)] == list(prompt) else messages
    messages = [*prompt, *messages_without_special_tokens(tokenizer, own)]
    return list(tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True)["input_ids"])
