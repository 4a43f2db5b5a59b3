"""A process reward model on disk: it reads a question and the steps of an answer, and says of each step if it was good.

Two kinds are read. One for *token classification* says at the last token of a step how good it was: σ of its one
logit, or the probability of the last of its labels (TRL's PRMTrainer, Qwen2.5-Math-PRM). A *causal language model* says
it by the word it would go on with: the probability of one token against another (Math-Shepherd's ``+`` and ``-``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from rlm_plugins.errors import RecipeError, RlmError
from rlm_plugins.lazy import torch
from rlm_process.reader import Asked, Reader

TOKENS, WORDS = "TokenClassification", "CausalLM"


def kind_of(path: str | Path) -> str:
    """Which of the two kinds a model is, by its config.

    Raises:
        RecipeError: Neither, or no config can be read.
    """
    from transformers import AutoConfig

    try:
        found = AutoConfig.from_pretrained(path).architectures or []
    except (OSError, ValueError) as error:
        raise RecipeError(f"no model can be read: {str(error).splitlines()[0]}", where="path") from error
    for kind in (TOKENS, WORDS):
        if any(name.endswith(kind) for name in found):
            return kind
    hint = "one score for a whole answer is the reward `reward_model`" if "Sequence" in str(found) else ""
    allowed = f"a model for {TOKENS} or {WORDS}"
    raise RecipeError(
        f"it is no process reward model: {', '.join(found) or '?'}", where="path", allowed=allowed, hint=hint
    )


@lru_cache(maxsize=2)
def loaded(path: str, device: Any) -> tuple[Any, Any]:
    """A model and its tokenizer; a reward and a shaper that name the same one share it."""
    return load(path, device)


def load(path: str, device: Any) -> tuple[Any, Any]:
    """The same, as it lies there now."""
    from transformers import AutoModelForCausalLM, AutoModelForTokenClassification, AutoTokenizer

    kind = AutoModelForCausalLM if kind_of(path) == WORDS else AutoModelForTokenClassification
    model = kind.from_pretrained(path, dtype="auto").to(device).eval().requires_grad_(False)
    return model, AutoTokenizer.from_pretrained(path)


class Grader:
    """Scores the steps of answers, between 0 and 1.

    Args:
        model: Of either kind; nothing is learned here.
        tokenizer: The model's.
        separator: Stands after each step; the score is read at its last token.
        words: What a causal language model says after a good step, and after a bad one.
        longest: Of a question and its answer so many tokens are read; a step that ends beyond has the score 0.
        batch_size: How many answers are read at once.
    """

    def __init__(
        self, model: Any, tokenizer: Any, *, separator: str, words: tuple[str, str], longest: int, batch_size: int
    ) -> None:
        self._model, self.tokenizer = model, tokenizer
        self.asked = Reader(tokenizer, separator=separator, longest=longest).asked
        self._causal, self._batch_size = type(model).__name__.endswith(WORDS), batch_size
        self._words = [self._token(word) for word in words] if self._causal else []
        if self._causal and self._words[0] == self._words[1]:
            raise RlmError(f"'{words[0]}' and '{words[1]}' are one token to this model", where="words")

    def _token(self, word: str) -> int:
        ids = self.tokenizer(word, add_special_tokens=False)["input_ids"]
        if not ids:
            raise RlmError(f"'{word}' is no token of this model", where="words")
        return int(ids[-1])

    def scores(self, rows: Sequence[Asked]) -> list[list[float]]:
        """The score of each step of each row; rows of like length are read together."""
        order = sorted(range(len(rows)), key=lambda row: len(rows[row].ids))
        found: list[list[float]] = [[0.0] * row.unread for row in rows]
        for first in range(0, len(order), self._batch_size):
            some = [row for row in order[first : first + self._batch_size] if rows[row].places]
            if some:
                for row, scores in zip(some, self._read([rows[row] for row in some]), strict=True):
                    found[row] = scores + found[row]
        return found

    def _read(self, rows: Sequence[Asked]) -> list[list[float]]:
        width, device = max(len(row.ids) for row in rows), self._model.device
        ids = torch.tensor([row.ids + [0] * (width - len(row.ids)) for row in rows], device=device)
        there = torch.tensor([[1] * len(row.ids) + [0] * (width - len(row.ids)) for row in rows], device=device)
        where = [(row, place) for row, asked in enumerate(rows) for place in asked.places]
        which, places = torch.tensor(where, device=device).unbind(1)
        with torch.no_grad():
            if self._causal:
                hidden = self._model.base_model(input_ids=ids, attention_mask=there).last_hidden_state
                logits = self._model.get_output_embeddings()(hidden[which, places])[:, self._words].flip(1)
            else:
                logits = self._model(input_ids=ids, attention_mask=there).logits[which, places]
        logits = logits.double()
        good = logits.softmax(-1)[:, -1] if logits.shape[1] > 1 else logits.sigmoid()[:, 0]
        scores = iter(good.tolist())
        return [[next(scores) for _ in row.places] for row in rows]
