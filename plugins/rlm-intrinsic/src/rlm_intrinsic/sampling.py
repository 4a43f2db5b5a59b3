"""Sampling of several completions per prompt at temperature 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

BATCH_SIZE = 256
"""Largest number of completions generated in one batch."""


def sample_completions(
    model: str,
    prompts: Sequence[Any],
    *,
    adapter: str | None = None,
    samples: int = 8,
    longest: int = 256,
    seed: int = 0,
) -> list[list[str]]:
    """Sample completions of each prompt, as text.

    Args:
        model: Folder or hub name of the model.
        prompts: Texts, or lists of messages.
        adapter: Folder of its adapter; None: the model alone.
        samples: Completions per prompt.
        longest: Largest number of new tokens.
        seed: Seed of the sampling.
    """
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left", trust_remote_code=False)
    policy: Any = AutoModelForCausalLM.from_pretrained(model, trust_remote_code=False)
    policy = policy if adapter is None else PeftModel.from_pretrained(policy, adapter)
    policy = policy.to(torch.accelerator.current_accelerator() or "cpu").eval()
    texts: list[str] = []
    step = max(1, BATCH_SIZE // samples)
    for start in range(0, len(prompts), step):
        inputs = _tokenize(tokenizer, prompts[start : start + step]).to(policy.device)
        generated = policy.generate(
            **inputs, do_sample=True, temperature=1.0, top_k=0, num_return_sequences=samples, max_new_tokens=longest
        )
        texts += tokenizer.batch_decode(generated[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return [texts[start : start + samples] for start in range(0, len(texts), samples)]


def _tokenize(tokenizer: Any, prompts: Sequence[Any]) -> Any:
    options = {"padding": True, "return_tensors": "pt"}
    if isinstance(prompts[0], str):
        return tokenizer(list(prompts), **options)
    return tokenizer.apply_chat_template(list(prompts), add_generation_prompt=True, return_dict=True, **options)
