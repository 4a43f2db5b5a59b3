"""``rlm sample``: completions of a trained model for prompts of the user."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import transformers

from rlm_plugins.cli.judged_model import model_of
from rlm_plugins.data.images import open_images
from rlm_plugins.distributed import processes
from rlm_plugins.errors import RlmError
from rlm_plugins.evaluation.completions import complete
from rlm_plugins.models.auto_class import tokenizer_of


class Sampler:
    """Samples completions from the model of a run, an adapter or a model, or from the initial model of a recipe.

    Args:
        source: The folder of a run, a recipe, the folder of an adapter or a model, or a name on the hub.
        stage: Name of a stage (default: the last finished one).
        images: Files of images, which belong to the first message of a user.

    Raises:
        RlmError: There is no such model, an image cannot be opened, or the model takes no images.
    """

    def __init__(self, source: Path, stage: str | None = None, images: Sequence[Path] = ()) -> None:
        transformers.utils.logging.disable_progress_bar()
        model, self._stage = model_of(source, stage, ())
        if images and model.processor is None:
            raise RlmError(f"the model '{model.origin}' takes no images", where="--image")
        self._images = open_images(images)
        self._processing_class = model.processing_class()
        self._model = model.load().to(processes().device)

    def complete(
        self, prompt: str | list[dict[str, str]], count: int = 1, temperature: float = 1.0, max_new_tokens: int = 0
    ) -> list[str]:
        """Return completions of a prompt.

        Args:
            prompt: Text, or messages. Text is the user's message if the prompts of the data set are chats.
            count: Number of completions.
            temperature: Sampling temperature; 0: greedy.
            max_new_tokens: Longest completion; 0: as in training.
        """
        if isinstance(prompt, str) and (self.is_chat or self._images):
            prompt = [{"role": "user", "content": prompt}]
        example = {"prompt": prompt, **({"images": self._images} if self._images else {})}
        sampling = {"do_sample": True, "temperature": temperature, "top_p": 1.0, "top_k": 0}
        completions = complete(
            self._model,
            self._processing_class,
            [example] * count,
            max_new_tokens or self._limit,
            self._template,
            sampling=sampling if temperature > 0 else None,
        )
        return [*completions.texts]

    @property
    def is_chat(self) -> bool:
        """True if the prompts of the data set are lists of messages; of a model without one, if it has a template."""
        if self._stage is None:
            return bool(tokenizer_of(self._processing_class).chat_template)
        return not isinstance(next(iter(self._stage.environment_spec.train))["prompt"], str)

    @property
    def _template(self) -> dict[str, Any]:
        return dict((self._stage.settings if self._stage else {}).get("chat_template_kwargs") or {})

    @property
    def _limit(self) -> int:
        evaluation = self._stage.evaluation if self._stage else None
        default = evaluation.max_new_tokens if evaluation else 256
        return int((self._stage.settings if self._stage else {}).get("max_completion_length") or default)


def chat(sampler: Sampler, ask: Callable[[], str], **options: Any) -> Iterator[str]:
    """Yield a completion for each line of input, until it ends; a chat keeps its messages.

    Args:
        sampler: Samples the completions.
        ask: Returns the next line; raises EOFError at the end.
        **options: Temperature and length, as in :meth:`Sampler.complete`.
    """
    messages: list[dict[str, str]] = []
    while True:
        try:
            line = ask()
        except EOFError:
            return
        if not line.strip():
            continue
        messages.append({"role": "user", "content": line})
        answer = sampler.complete(messages if sampler.is_chat else line, **options)[0]
        messages.append({"role": "assistant", "content": answer})
        yield answer
