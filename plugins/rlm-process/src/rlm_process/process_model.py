"""Scores of a process reward model (PRM): one reward per completion, or one per step (a reward and a shaper)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from jaxtyping import Bool, Float
from pydantic import Field, PositiveInt

from rlm_plugins.data import tables
from rlm_plugins.errors import RecipeError, RlmError
from rlm_plugins.lazy import torch
from rlm_process.step_boundaries import Spans, Steps, step_cutter, step_spans, token_texts, zero_rewards

if TYPE_CHECKING:
    from torch import device


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
    """Tokenizer of prompts and steps."""

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


class ProcessModelPart:
    """A process reward model by its path, and the definition of a step; `settings` are those of :class:`StepScorer`."""

    def __init__(self, path: str, steps: Steps, **settings: Any) -> None:
        self.path, self._steps, self._settings = path, steps, settings
        self._device: device | None = None
        self._grader: StepScorer | None = None

    def check(self) -> None:
        """Check that the path holds a process reward model.

        Raises:
            RecipeError: It does not.
        """
        folder = tables.locate(self.path, where="path")
        if folder is not None:
            model_kind(folder)

    def setup(self, policy: Any, results: Mapping[str, Path]) -> None:
        self._device = policy.device

    @property
    def scorer(self) -> StepScorer:
        if self._grader is None:
            from rlm_plugins.workers.distributed import processes

            self._grader = StepScorer(*load_cached(self.path, self._device or processes().device), **self._settings)
        return self._grader


Separator = Annotated[str, Field(min_length=1)]
Over = Literal["min", "product", "last", "mean"]


class ProcessReward(ProcessModelPart):
    """r = min, product, last or mean of a process reward model's scores of a completion's steps, each in [0, 1].

    `path` is the folder (or hub name) of a model for token classification or of a causal language model. The first
    scores at the last token of a step (TRL's PRMTrainer, Qwen2.5-Math-PRM), the second by its next token, `good` or
    `bad` (Math-Shepherd, arXiv 2312.08935). `separator` is the text after each step in its training data:
    ``"\\n"`` is TRL's, ``"<extra_0>"`` Qwen's, ``" ки"`` Math-Shepherd's. `steps` defines a step: a name,
    ``{pattern: …}``, ``{every: …}`` or ``module:function``. `over` aggregates the scores: the worst step, the product
    (as in arXiv 2305.20050), the last, the mean. A completion without text gets 0, and so does a step that ends more
    than `longest` tokens after the start of the prompt.

    Pitfall: the mean rewards many easy steps, the product few; policies exploit both. Keep a metric in the
    recipe that does not depend on the model, `{name: accuracy, weight: 0}`.
    """

    def __init__(
        self,
        *,
        path: str,
        steps: Steps = "lines",
        over: Over = "min",
        separator: Separator = "\n",
        good: Separator = "+",
        bad: Separator = "-",
        longest: PositiveInt = 4096,
        batch_size: PositiveInt = 8,
    ) -> None:
        words = good, bad
        super().__init__(path, steps, separator=separator, words=words, longest=longest, batch_size=batch_size)
        self.over = over

    def __call__(self, prompt_messages: Sequence[Any], completions: Sequence[str]) -> list[float]:
        scorer, inputs = self.scorer, []
        cut_steps = step_cutter(self._steps, scorer.tokenizer, where="rewards: process_model.steps")
        for prompt, text in zip(prompt_messages, completions, strict=True):  # tokenized with the model's tokenizer
            ids = scorer.tokenizer(text, add_special_tokens=False)["input_ids"][: self._settings["longest"] + 1]
            inputs.append(
                scorer.encode(prompt, nonblank_texts(ids, scorer.tokenizer, step_spans([ids], cut_steps)[0])[0])
            )
        return [aggregate(scores, self.over) for scores in scorer.scores(inputs)]


class ProcessRewards(ProcessModelPart):
    """A reward for every step, on its last token: weight · score of a process reward model, in [0, 1].

    Knobs as of the reward `process_model`; `weight` is the coefficient. A step's reward also counts for all earlier
    tokens if the advantage sums future rewards (`batch_whitened`, `gae`). In a multi-turn environment only the policy's
    turns are scored, and a step never extends beyond its turn.

    Pitfall: scores are positive, so the sum over many mediocre steps exceeds that over few good ones. Use a baseline:
    the other completions of a group, or a critic.
    """

    def __init__(
        self,
        *,
        path: str,
        steps: Steps = "lines",
        weight: float = 1.0,
        separator: Separator = "\n",
        good: Separator = "+",
        bad: Separator = "-",
        longest: PositiveInt = 4096,
        batch_size: PositiveInt = 8,
    ) -> None:
        words = good, bad
        super().__init__(path, steps, separator=separator, words=words, longest=longest, batch_size=batch_size)
        self.weight = weight

    def __call__(
        self,
        mask: Bool[torch.Tensor, "B T"],
        prompts: Sequence[Any],
        completion_ids: Sequence[Sequence[int]],
        tokenizer: Any,
        turn_rewards: Float[torch.Tensor, "B T"] | None = None,
    ) -> Float[torch.Tensor, "B T"]:
        from rlm_plugins.workers.distributed import gather_lists, rank_slice

        cut_steps = step_cutter(self._steps, tokenizer, where="shapers: process_model.steps")
        spans = step_spans(completion_ids, cut_steps, None if turn_rewards is None else mask)
        own_range, inputs, positions_of = rank_slice(len(prompts)), [], []
        for prompt, ids, own_spans in zip(prompts[own_range], completion_ids[own_range], spans[own_range], strict=True):
            steps, positions = nonblank_texts(ids, tokenizer, own_spans)
            inputs.append(self.scorer.encode(prompt, steps))
            positions_of.append(positions)
        scores = gather_lists(list(zip(positions_of, self.scorer.scores(inputs), strict=True)))
        dense = zero_rewards(mask, turn_rewards)
        for index, (positions, step_scores) in enumerate(scores):
            dense[index, positions] = self.weight * torch.tensor(step_scores, dtype=dense.dtype, device=mask.device)
        return dense * mask


def nonblank_texts(ids: Sequence[int], tokenizer: Any, spans: Spans) -> tuple[list[str], list[int]]:
    """Return the text of each non-blank step, and the position of its last token."""
    texts_of_tokens, steps, positions = token_texts(ids, tokenizer), [], []
    for start, end in spans:
        text = "".join(texts_of_tokens[start:end])
        if text.strip():
            steps.append(text)
            positions.append(end - 1)
    return steps, positions


def aggregate(scores: Sequence[float], over: Over) -> float:
    """Aggregate the scores of a completion's steps; 0 without a step.

    >>> [aggregate([0.5, 0.25, 1.0], over) for over in ("min", "product", "last")]
    [0.25, 0.125, 1.0]
    """
    if not scores:
        return 0.0
    if over == "mean":
        return sum(scores) / len(scores)
    return {"min": min(scores), "product": math.prod(scores), "last": scores[-1]}[over]
