"""Methods of the trainer that rollout sources, parts and the stage call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from rlm_plugins.durable.sealed import publish_sealed
from rlm_plugins.models.critic import Critic
from rlm_plugins.rollout.chat_tokens import Fork
from rlm_plugins.trainer.checkpoint import saving
from rlm_plugins.trainer.collaborators import Collaborators
from rlm_plugins.trainer.generation import Completions
from rlm_plugins.trainer.passes import temperature_cell


class PolicyInterface:
    """Mixin for :class:`rlm_plugins.trainer.EquationTrainer`: tokens, generation, episodes, temperature, critic."""

    components: Collaborators
    args: Any
    accelerator: Any
    model: Any
    ref_model: Any
    temperature: float
    use_vllm: bool
    vllm_generation: Any
    generation_config: Any
    generation_kwargs: dict[str, Any]
    _tokenizer: Any

    @property
    def critic(self) -> Critic | None:
        """Critic, None without one."""
        return self.components.critic.critic

    def save_critic(self, folder: Path) -> None:
        """Save the critic, if there is one, into a folder of its own."""
        if self.critic is not None and self.args.should_save:
            staged = folder.with_name(".critic")
            with saving(folder, staged):
                self.critic.save(staged)
                publish_sealed(staged, folder)
        self.accelerator.wait_for_everyone()

    @property
    def tokenizer(self) -> Any:
        """Tokenizer, unwrapped from a processor."""
        return self._tokenizer

    def prompt_ids(self, prompts: Sequence[Any]) -> list[list[int]]:
        """Return the token ids of prompts."""
        return self.components.tokens.prompt_ids(prompts)

    def answer_ids(self, prompt: Any, text: str) -> list[int]:
        """Return `text` as the policy would generate it after `prompt`: token ids up to the end token."""
        return self.components.tokens.answer_ids(prompt, text)

    def generate(
        self, prompts: Sequence[Any], prefixes: Sequence[Sequence[int]] | None = None, *, greedy: bool = False
    ) -> Completions:
        """Generate with the policy.

        Args:
            prompts: One per completion; may be empty.
            prefixes: Per completion, token ids that it starts with; they are not returned.
            greedy: Decode greedily.

        Returns:
            Token ids per completion, and their log-probs if the inference engine reports them (vLLM).
        """
        return self.components.generation.generate(prompts, prefixes, greedy=greedy)

    def play(
        self,
        prompts: Sequence[Any],
        inputs: Sequence[Mapping[str, Any]],
        starts: Sequence[Fork | None] | None = None,
    ) -> dict[str, list[Any]]:
        """Play one episode per prompt in the environment, as a rollout source returns it.

        Args:
            prompts: One per episode.
            inputs: The columns of each.
            starts: Per episode, the turns of another episode that are replayed first; None: none.
        """
        return self.components.rollout.play(prompts, inputs, starts)

    def token_statistics(
        self, prompt_ids: Sequence[Sequence[int]], completion_ids: Sequence[Sequence[int]]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log-probs and entropies (n, longest) of completions under the policy that generates, in nats."""
        return self.components.tools.statistics_of(prompt_ids, completion_ids)

    def set_temperature(self, temperature: float) -> None:
        """Sample at this temperature from now on, and divide the logits of every forward pass by it."""
        self.temperature = temperature
        if self.use_vllm:
            self.vllm_generation.temperature = temperature
        else:
            self.generation_config.temperature = self.generation_kwargs["temperature"] = temperature
        for model in (self.model, self.ref_model):
            if model is not None:
                temperature_cell(self.accelerator.unwrap_model(model)).cell_contents = temperature
