"""Parts that own another language model: its declaration, the texts that it reads, and its policy gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rlm_plugins.errors import TRAIN_ADAPTER, PartError, RecipeError

if TYPE_CHECKING:
    import torch
    from jaxtyping import Float

    from rlm_algorithms.auxiliary_lm import AuxiliaryLM
    from rlm_plugins.stage import Stage


COPIES = 3
"""Copies per trained weight: itself and two moments of AdamW; the gradient is freed after each step."""


class AuxiliaryPart:
    """Base class of parts with auxiliary language models: check, setup, memory and checkpoint state.

    Args:
        name: Name of the part in a recipe, of the adapters, and of the models in errors.
        seeds: Seed of the initialization of each model.
        settings: The other keyword arguments of :class:`~rlm_algorithms.auxiliary_lm.AuxiliaryLM`.
    """

    def __init__(self, name: str, *, seeds: Sequence[int] = (0,), **settings: Any) -> None:
        self._name, self._seeds, self._settings = name, seeds, settings
        self._models: list[AuxiliaryLM] = []

    def check(self, lora: Mapping[str, Any] | None) -> None:
        """Check that the base of the policy stays frozen.

        Raises:
            RecipeError: All weights are trained.
        """
        if lora is None:
            problem = f"`{self._name}` requires a frozen base, and all weights of this policy are trained"
            raise RecipeError(problem, hint=TRAIN_ADAPTER)

    def setup(self, policy: Any, results: Mapping[str, Path]) -> None:
        """Create each model as an adapter beside the policy's."""
        from rlm_algorithms.auxiliary_lm import AuxiliaryLM

        self._models = [AuxiliaryLM(policy, self._name, seed=seed, **self._settings) for seed in self._seeds]

    def memory_bytes(self, stage: Stage) -> int:
        """Return the bytes of the adapters and their optimizer states; the base is the policy's."""
        from rlm_plugins.models.scratch import skeleton, trained_bytes

        lora = self._settings.get("lora") or stage.lora
        return COPIES * len(self._seeds) * trained_bytes(skeleton(stage.source.config, lora))

    @property
    def models(self) -> Sequence[AuxiliaryLM]:
        """The auxiliary models.

        Raises:
            PartError: There is no policy yet.
        """
        if not self._models:
            hint = "use it in a stage that trains"
            raise PartError("requires a policy, and none was set up", where=self._name, hint=hint)
        return self._models

    @property
    def model(self) -> AuxiliaryLM:
        """The auxiliary model of a part with one."""
        (model,) = self.models
        return model

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the model and its optimizer; empty before `setup`."""
        return self.model.state_dict() if self._models else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of the model and its optimizer."""
        if state:
            self.model.load_state_dict(state)


def policy_gradient_loss(
    advantages: Float[torch.Tensor, "B"],
    lengths: Sequence[int],
    aggregation: Literal["token_mean", "sequence_mean"] = "token_mean",
) -> Callable[[torch.Tensor, list[int]], torch.Tensor]:
    """Return −Σᵢ cᵢ Aᵢ Σₜ log π(yᵢₜ) as the `loss` of :meth:`~rlm_algorithms.auxiliary_lm.AuxiliaryLM.train_step`.

    c is 1 / Σⱼ |yⱼ| for `token_mean`, and 1 / (N |yᵢ|) for `sequence_mean`. REINFORCE, or GRPO's first update on a
    generation batch, where the ratio is 1.

    Args:
        advantages: A of each sequence.
        lengths: Tokens of each sequence.
        aggregation: Names as in `algorithm.aggregator`.

    >>> import torch
    >>> loss = policy_gradient_loss(torch.tensor([1.0, -1.0]), [1, 2])
    >>> loss(torch.tensor([[-0.3, 0.0], [-0.5, -1.0]]), [0, 1])
    tensor(-0.4000)
    """
    weights, tokens = advantages, sum(lengths)
    if aggregation == "sequence_mean":
        weights, tokens = advantages / advantages.new_tensor(lengths).clamp(min=1) / len(lengths), 1

    def loss(logp: Float[torch.Tensor, "b T"], rows: list[int]) -> Float[torch.Tensor, ""]:
        return -(weights[rows].to(logp.device).unsqueeze(1) * logp).sum() / tokens

    return loss


def without_special_tokens(tokenizer: Any, text: str) -> str:
    """Return a text with a space after the first character of each special token that it spells.

    A tokenizer makes a special token of ``<|im_end|>`` wherever it stands. A completion that spells it could end its
    own message, and write the next one to the model that scores it. Which tokens these are is read from the tokenizer;
    those of one character are kept.

    Args:
        tokenizer: Of the model that reads the text.
        text: A completion.
    """
    added = (token.content for token in tokenizer.added_tokens_decoder.values() if token.special)
    for token in sorted({*tokenizer.all_special_tokens, *added}, key=len, reverse=True):
        if len(token) > 1:
            text = text.replace(token, f"{token[0]} {token[1:]}")
    return text


def messages_without_special_tokens(tokenizer: Any, messages: Any) -> list[Any]:
    """Return chat messages of which each content that is a text is without special tokens."""
    return [
        {**message, "content": without_special_tokens(tokenizer, message["content"])}
        if isinstance(message.get("content"), str)
        else message
        for message in messages
    ]
