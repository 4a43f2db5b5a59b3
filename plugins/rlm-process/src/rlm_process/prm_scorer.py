"""Scoring of steps by a process reward model (PRM) from disk.

Two kinds are supported. A model for *token classification* scores a step at its last token: σ of its one
logit, or the probability of the last of its labels (TRL's PRMTrainer, Qwen2.5-Math-PRM). A *causal language model*
scores it by its next token: the probability of one token against another (Math-Shepherd's ``+`` and ``-``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from rlm_plugins.errors import RecipeError, RlmError
from rlm_plugins.lazy import torch
from rlm_process.prm_inputs import PRMInput, PRMTokenizer

TOKENS, WORDS = "TokenClassification", "CausalLM"


def model_kind(path: str | Path) -> str:
    """Return the kind of a model, by its config."""
    from transformers import AutoConfig

    try:
        architectures = AutoConfig.from_pretrained(path, trust_remote_code=False).architectures or []
    except (OSError, ValueError) as error:
        raise RecipeError(f"unreadable model: {str(error).splitlines()[0]}", where="path") from error
    for kind in (TOKENS, WORDS):
        if any(name.endswith(kind) for name in architectures):
            return kind
    hint = "for one score per completion, use the reward `reward_model`" if "Sequence" in str(architectures) else ""
    allowed = f"a model for {TOKENS} or {WORDS}"
    raise RecipeError(
        f"not a process reward model: {', '.join(architectures) or '?'}", where="path", allowed=allowed, hint=hint
    )


@lru_cache(maxsize=2)
def load_cached(path: str, device: Any) -> tuple[Any, Any]:
    """Return a model and its tokenizer, cached, so that a reward and a shaper with the same path share it."""
    return load(path, device)


def load(path: str, device: Any) -> tuple[Any, Any]:
    """Load a model and its tokenizer."""
    from transformers import AutoModelForCausalLM, AutoModelForTokenClassification, AutoTokenizer

    kind = AutoModelForCausalLM if model_kind(path) == WORDS else AutoModelForTokenClassification
    model = kind.from_pretrained(path, dtype="auto", trust_remote_code=False)
    tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    return model.to(device).eval().requires_grad_(False), tokenizer


class StepScorer:
    """Scorer of the steps of completions, between 0 and 1.

    Args:
        model: The model, of either kind; it is not trained.
        tokenizer: The model's tokenizer.
        separator: Text after each step; the score is read at its last token.
        words: Tokens of a causal language model for a good and a bad step.
        longest: Largest number of tokens of prompt and completion; a step that ends later has the score 0.
        batch_size: Completions per forward pass.
    """

    def __init__(
        self, model: Any, tokenizer: Any, *, separator: str, words: tuple[str, str], longest: int, batch_size: int
    ) -> None:
        self._model, self.tokenizer = model, tokenizer
        self.encode = PRMTokenizer(tokenizer, separator=separator, longest=longest).encode
        self._causal, self._batch_size = type(model).__name__.endswith(WORDS), batch_size
        self._words = [self._token(word) for word in words] if self._causal else []
        if self._causal and self._words[0] == self._words[1]:
            raise RlmError(
                f"`words` requires two tokens; '{words[0]}' and '{words[1]}' are the same to this model", where="words"
            )

    def _token(self, word: str) -> int:
        ids = self.tokenizer(word, add_special_tokens=False)["input_ids"]
        if not ids:
            raise RlmError(f"'{word}' has no token in this model", where="words")
        return int(ids[-1])

    def scores(self, inputs: Sequence[PRMInput]) -> list[list[float]]:
        """Score each step of each completion, in batches of similar length."""
        order = sorted(range(len(inputs)), key=lambda index: len(inputs[index].ids))
        scores_of: list[list[float]] = [[0.0] * prm_input.num_unread for prm_input in inputs]
        for start in range(0, len(order), self._batch_size):
            batch = [index for index in order[start : start + self._batch_size] if inputs[index].places]
            if batch:
                for index, scores in zip(batch, self._score_batch([inputs[index] for index in batch]), strict=True):
                    scores_of[index] = scores + scores_of[index]
        return scores_of

    def _score_batch(self, inputs: Sequence[PRMInput]) -> list[list[float]]:
        width, device = max(len(prm_input.ids) for prm_input in inputs), self._model.device
        padding = [width - len(prm_input.ids) for prm_input in inputs]
        ids = torch.tensor([x.ids + [0] * pad for x, pad in zip(inputs, padding, strict=True)], device=device)
        attention_mask = torch.tensor([[1] * (width - pad) + [0] * pad for pad in padding], device=device)
        locations = [(index, position) for index, prm_input in enumerate(inputs) for position in prm_input.places]
        indices, positions = torch.tensor(locations, device=device).unbind(1)
        with torch.no_grad():
            if self._causal:
                hidden = self._model.base_model(input_ids=ids, attention_mask=attention_mask).last_hidden_state
                logits = self._model.get_output_embeddings()(hidden[indices, positions])[:, self._words].flip(1)
            else:
                logits = self._model(input_ids=ids, attention_mask=attention_mask).logits[indices, positions]
        logits = logits.double()
        good = logits.softmax(-1)[:, -1] if logits.shape[1] > 1 else logits.sigmoid()[:, 0]
        scores = iter(good.tolist())
        return [[next(scores) for _ in prm_input.places] for prm_input in inputs]
