"""Decoding with vLLM in an evaluation: a model whose `generate` is vLLM's."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import Any

import torch


class VllmModel(torch.nn.Module):
    """A model that generates with vLLM. It has no weights of its own: vLLM loads a copy of those of `model`.

    Args:
        model: A causal language model, without adapters.
        tokenizer: Its tokenizer.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        import vllm

        super().__init__()
        self.config, self.generation_config = model.config, model.generation_config
        self.device = torch.device("cpu")
        self._pad, self._end = tokenizer.pad_token_id, tokenizer.eos_token_id
        with TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            self._engine = vllm.LLM(model=folder)

    def generate(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, generation_config: Any) -> torch.Tensor:
        """Return prompts and completions (B, P + T), padded on the right.

        Args:
            input_ids: (B, P) prompts, padded on the left.
            attention_mask: (B, P) 1 where a token is no padding.
            generation_config: Length and sampling.
        """
        requests = [{"prompt_token_ids": ids} for ids in unpadded(input_ids, attention_mask)]
        results = self._engine.generate(requests, self._sampling(generation_config), use_tqdm=False)
        return joined(input_ids, [list(result.outputs[0].token_ids) for result in results], self._pad)

    def _sampling(self, config: Any) -> Any:
        import vllm

        fields = sampling_of(config)
        fields["max_tokens"] = fields.pop("max_completion_length")
        return vllm.SamplingParams(**fields, stop_token_ids=[self._end])


class TrainingEngine(torch.nn.Module):
    """The policy in training, which generates with TRL's vLLM (`use_vllm`). Its current weights are copied there first.

    Args:
        trainer: TRL's trainer.
    """

    def __init__(self, trainer: Any) -> None:
        super().__init__()
        policy = trainer.accelerator.unwrap_model(trainer.model)
        self.config, self.generation_config, self.device = policy.config, policy.generation_config, policy.device
        self._engine, self._pad = trainer.vllm_generation, trainer._tokenizer.pad_token_id
        self._engine.sync_weights()

    def generate(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, generation_config: Any) -> torch.Tensor:
        """Return prompts and completions (B, P + T), padded on the right; the settings of the engine are restored.

        Args:
            input_ids: (B, P) prompts, padded on the left.
            attention_mask: (B, P) 1 where a token is no padding.
            generation_config: Length and sampling.
        """
        fields = sampling_of(generation_config)
        original = {name: getattr(self._engine, name) for name in fields}
        vars(self._engine).update(fields)
        try:
            _, completions, *_ = self._engine.generate(unpadded(input_ids, attention_mask), None, 1)
        finally:
            vars(self._engine).update(original)
        return joined(input_ids, completions, self._pad)


def sampling_of(config: Any) -> dict[str, Any]:
    """Return the fields of vLLM's sampling, by the names of TRL's engine, for a `GenerationConfig`."""
    fields = {"top_p": (config.top_p, 1.0), "top_k": (config.top_k, -1), "min_p": (config.min_p, 0.0)}
    return {
        "max_completion_length": config.max_new_tokens,
        "temperature": config.temperature if config.do_sample else 0.0,
        "repetition_penalty": config.repetition_penalty or 1.0,
        **{name: value if config.do_sample and value else unset for name, (value, unset) in fields.items()},
    }


def unpadded(input_ids: torch.Tensor, attention_mask: torch.Tensor) -> list[list[int]]:
    """Return the token ids of each prompt (B, P), without padding."""
    return [ids[mask.bool()].tolist() for ids, mask in zip(input_ids, attention_mask, strict=True)]


def joined(input_ids: torch.Tensor, completions: list[list[int]], pad: int) -> torch.Tensor:
    """Return prompts (B, P) with their completions, padded on the right (B, P + T)."""
    width = max(map(len, completions))
    padded = [ids + [pad] * (width - len(ids)) for ids in completions]
    return torch.cat([input_ids, torch.tensor(padded, dtype=input_ids.dtype, device=input_ids.device)], 1)
