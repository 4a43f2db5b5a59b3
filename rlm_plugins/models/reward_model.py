"""A reward model: one number for a conversation, read off the hidden state of its last token.

    r(x, y) = w · h(x, y)

h is the trunk's hidden state at the last token of prompt and answer, under the adapter that was trained with the head w
on pairs (Bradley–Terry: σ(r(x, y⁺) − r(x, y⁻)) is how likely y⁺ is preferred). The files are PEFT's and transformers'
own for sequence classification with one label, so that other programs read ours, and we theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Context = Callable[[], Any]


class ScoreHead(torch.nn.Linear):
    """h → w · h (+ b), in float32 whatever the trunk is; a new one prefers nothing."""

    def __init__(self, width: int, device: Any, bias: bool = False) -> None:
        super().__init__(width, 1, bias=bias, device=device, dtype=torch.float32)

    def reset_parameters(self) -> None:
        """Zero, and so no random number is drawn."""
        for x in self.parameters():
            torch.nn.init.zeros_(x)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """(…, H) → (…, 1)."""
        with torch.autocast(hidden.device.type, enabled=False):
            bias = None if self.bias is None else self.bias.float()
            return torch.nn.functional.linear(hidden.float(), self.weight.float(), bias)

    @classmethod
    def of(cls, weight: torch.Tensor, bias: torch.Tensor | None, device: Any) -> ScoreHead:
        """A head with these weights."""
        head = cls(weight.shape[1], device, bias is not None).requires_grad_(False)
        head.weight.copy_(weight)
        if bias is not None:
            head.bias.copy_(bias)
        return head


class RewardModel:
    """Scores conversations.

    Args:
        trunk: Token ids → hidden states; a transformer without its language head.
        head: (…, H) → (…, 1).
        tokenizer: The one it was trained with.
        reading: A context in which the trunk is this model's, in evaluation mode and without gradient.
        device: Where the trunk is.
    """

    def __init__(self, trunk: Any, head: Any, tokenizer: Any, active: Context, device: Any) -> None:
        self.trunk, self.head, self.tokenizer = trunk, head, tokenizer
        self._active, self._device = active, device

    def scores(self, rows: Sequence[list[int]], batch_size: int) -> list[float]:
        """One number per row of token ids; rows of like length are read together, which changes none."""
        order = sorted(range(len(rows)), key=lambda row: len(rows[row]))
        found = [0.0] * len(rows)
        with self._active():
            for start in range(0, len(order), batch_size):
                share = order[start : start + batch_size]
                for row, score in zip(share, self._read([rows[row] for row in share]), strict=True):
                    found[row] = score
        return found

    def _read(self, rows: list[list[int]]) -> list[float]:
        pad = self.tokenizer.pad_token_id
        width = max(map(len, rows))
        ids = torch.tensor([row + [pad] * (width - len(row)) for row in rows], device=self._device)
        there = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=self._device)
        hidden = self.trunk(input_ids=ids, attention_mask=there, use_cache=False).last_hidden_state
        last = ((ids != pad) * torch.arange(width, device=self._device)).argmax(1)  # as transformers finds it
        scores: list[float] = self.head(hidden[torch.arange(len(rows), device=self._device), last]).squeeze(-1).tolist()
        return scores


def conversation_ids(tokenizer: Any, prompt: Any, completion: Any) -> list[int]:
    """A question and its answer as a reward model reads them, while it learns and while it judges.

    Args:
        tokenizer: Of the reward model.
        prompt: Text, or chat messages.
        completion: Text (in a conversation: the assistant's words), or the messages that follow the prompt; a whole
            conversation that begins with the prompt is taken for what follows it.
    """
    if isinstance(prompt, str):
        end = tokenizer.eos_token
        text = prompt + completion
        return list(tokenizer(text if text.endswith(end) else text + end)["input_ids"])
    said = [{"role": "assistant", "content": completion}] if isinstance(completion, str) else list(completion)
    if said[: len(prompt)] != list(prompt):
        said = [*prompt, *said]
    return list(tokenizer.apply_chat_template(said, tokenize=True, return_dict=True)["input_ids"])
