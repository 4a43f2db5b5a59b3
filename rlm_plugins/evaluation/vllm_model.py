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
        prompts = [ids[mask.bool()].tolist() for ids, mask in zip(input_ids, attention_mask, strict=True)]
        requests = [{"prompt_token_ids": ids} for ids in prompts]
        results = self._engine.generate(requests, self._sampling(generation_config), use_tqdm=False)
        completions = [list(result.outputs[0].token_ids) for result in results]
        width = max(map(len, completions))
        padded = [ids + [self._pad] * (width - len(ids)) for ids in completions]
        return torch.cat([input_ids, torch.tensor(padded, dtype=input_ids.dtype)], 1)

    def _sampling(self, config: Any) -> Any:
        import vllm

        return vllm.SamplingParams(
            max_tokens=config.max_new_tokens,
            temperature=config.temperature if config.do_sample else 0.0,
            top_p=config.top_p if config.do_sample and config.top_p else 1.0,
            top_k=config.top_k if config.do_sample and config.top_k else -1,
            min_p=config.min_p if config.do_sample and config.min_p else 0.0,
            repetition_penalty=config.repetition_penalty or 1.0,
            stop_token_ids=[self._end],
        )
