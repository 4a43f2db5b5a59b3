"""``rlm sample``: completions of a trained model for prompts of the user."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import transformers

from rlm_plugins.cli.judged_model import model_of
from rlm_plugins.distributed import processes


class Sampler:
    """Samples completions from the model of a run, an adapter or a model, or from the initial model of a recipe.

    Args:
        source: The folder of a run, a recipe, the folder of an adapter or a model, or a name on the hub.
        stage: Name of a stage (default: the last finished one).
    """

    def __init__(self, source: Path, stage: str | None = None) -> None:
        transformers.utils.logging.disable_progress_bar()
        model, self._stage = model_of(source, stage, ())
        self._tokenizer = model.tokenizer()
        self._model = model.load().to(processes().device).eval()

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
        if isinstance(prompt, str) and self.is_chat:
            prompt = [{"role": "user", "content": prompt}]
        if isinstance(prompt, list):
            options: Any = {"add_generation_prompt": True, "return_dict": True, "return_tensors": "pt"}
            encoded = self._tokenizer.apply_chat_template(prompt, **options, **self._template)
        else:
            encoded = self._tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
        encoded = {name: encoded[name].to(self._model.device) for name in ("input_ids", "attention_mask")}
        sampling: dict[str, Any] = {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
        if temperature > 0:
            sampling = {"do_sample": True, "temperature": temperature, "top_p": 1.0, "top_k": 0}
        limit = max_new_tokens or self._limit
        out = self._model.generate(**encoded, **sampling, max_new_tokens=limit, num_return_sequences=count)
        return self._tokenizer.batch_decode(out[:, encoded["input_ids"].shape[1] :], skip_special_tokens=True)

    @property
    def is_chat(self) -> bool:
        """True if the prompts of the data set are lists of messages; of a model without one, if it has a template."""
        if self._stage is None:
            return bool(self._tokenizer.chat_template)
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
