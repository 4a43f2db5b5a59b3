"""Several answers of a model to each of many questions, at temperature 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

AT_ONCE = 256
"""Answers written side by side."""


def sampled(
    model: str,
    prompts: Sequence[Any],
    *,
    adapter: str | None = None,
    samples: int = 8,
    longest: int = 256,
    seed: int = 0,
) -> list[list[str]]:
    """`samples` answers to each prompt, as text.

    Args:
        model: Folder or hub name of the model.
        prompts: Texts, or lists of messages.
        adapter: Folder of an adapter on it; None: the model alone.
        samples: Answers to each prompt.
        longest: Tokens of an answer, at most.
        seed: Of the draws.
    """
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
    policy: Any = AutoModelForCausalLM.from_pretrained(model)
    policy = policy if adapter is None else PeftModel.from_pretrained(policy, adapter)
    policy = policy.to(torch.accelerator.current_accelerator() or "cpu").eval()
    texts: list[str] = []
    for start in range(0, len(prompts), step := max(1, AT_ONCE // samples)):
        asked = _asked(tokenizer, prompts[start : start + step]).to(policy.device)
        written = policy.generate(
            **asked, do_sample=True, temperature=1.0, top_k=0, num_return_sequences=samples, max_new_tokens=longest
        )
        texts += tokenizer.batch_decode(written[:, asked["input_ids"].shape[1] :], skip_special_tokens=True)
    return [texts[start : start + samples] for start in range(0, len(texts), samples)]


def _asked(tokenizer: Any, prompts: Sequence[Any]) -> Any:
    how = {"padding": True, "return_tensors": "pt"}
    if isinstance(prompts[0], str):
        return tokenizer(list(prompts), **how)
    return tokenizer.apply_chat_template(list(prompts), add_generation_prompt=True, return_dict=True, **how)
