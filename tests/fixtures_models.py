"""Small models of several families, and their padded forward pass with TRL's head."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import peft
import torch
import transformers
from torch.nn.functional import scaled_dot_product_attention as sdpa
from trl.trainer.utils import add_fused_lm_head

WORDS = 41
_SIZES = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_NARROW = {**_SIZES, "num_key_value_heads": 2}
_GPT2 = {"vocab_size": WORDS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "bos_token_id": 1}
CONFIGS: dict[str, dict[str, Any]] = {
    "Llama": _SIZES,
    "Qwen2": _NARROW,
    "Qwen3": {**_NARROW, "head_dim": 8},
    "GPT2": {**_GPT2, "eos_token_id": 2, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    "Phi3": _NARROW,
    "Olmo2": _NARROW,
}
"""Families that are read packed; everything else about them as transformers has it."""
CLASSES = {"GPT2": "GPT2LMHeadModel"}
LONG = {
    "rope_type": "longrope",
    "short_factor": [1.0] * 4,
    "long_factor": [4.0] * 4,
    "original_max_position_embeddings": 16,
    "rope_theta": 1e4,
}
"""Rotary angles that change for all rows once one of them is longer than 16 tokens."""


def model(family: str, *, temperature: float = 1.0, dtype: torch.dtype = torch.float32, **changes: Any) -> Any:
    """Return a model with random weights, with TRL's head for the padded forward pass."""
    torch.manual_seed(0)
    given = {**CONFIGS.get(family, _NARROW), **changes}
    lm = getattr(transformers, CLASSES.get(family, f"{family}ForCausalLM"))(
        getattr(transformers, f"{family}Config")(**given)
    ).to(dtype)
    add_fused_lm_head(lm, temperature=temperature, outputs=("log_probs", "entropy"))
    return lm


def adapted(base: Any, **changes: Any) -> Any:
    """Return the model with a LoRA adapter that changes its logits."""
    found = peft.get_peft_model(
        base, peft.LoraConfig(**{"r": 4, "target_modules": "all-linear", "task_type": "CAUSAL_LM", **changes})
    )
    for name, x in found.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(x, std=0.1)
    return found.train()


def padded(lm: Any, ids: torch.Tensor, there: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log-probs and entropies, (B, width), by TRL's padded forward pass."""
    labels = ids.masked_fill(there == 0, -100)
    labels[:, :-width] = -100
    found = lm(input_ids=ids, attention_mask=there, labels=labels, fused_lm_head=True)
    return found.log_probs[:, -width:], found.entropy[:, -width:]


def flash_varlen(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    *,
    softmax_scale: float | None,
    causal: bool,
    **_: Any,
) -> torch.Tensor:
    """Compute what `flash_attn_varlen_func` documents: the last query of each sequence attends to all of its keys."""
    bounds = zip(pairwise(cu_seqlens_q.tolist()), pairwise(cu_seqlens_k.tolist()), strict=True)
    outputs = []
    for (a, b), (c, d) in bounds:
        visible = torch.ones(b - a, d - c, dtype=torch.bool).tril(d - c - b + a if causal else d)
        q, k, v = (x.transpose(0, 1) for x in (query[a:b], key[c:d], value[c:d]))
        outputs.append(sdpa(q[None], k[None], v[None], attn_mask=visible, scale=softmax_scale, enable_gqa=True)[0])
    return torch.cat([x.transpose(0, 1) for x in outputs])


def gradient(lm: Any, loss: torch.Tensor) -> torch.Tensor:
    """Return the gradient of every trained weight, as one vector."""
    weights = [x for x in lm.parameters() if x.requires_grad]
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, weights)])


def rows(*groups: tuple[int, list[int]]) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Return a right-padded batch in random order, from the prompt length of each group and its completion lengths."""
    width, most = max(n for _, lengths in groups for n in lengths), max(prompt for prompt, _ in groups)
    draw = torch.Generator().manual_seed(1)
    ids, there = [], []
    for prompt, lengths in groups:
        prompt_ids = torch.randint(3, WORDS, (prompt,), generator=draw)
        for length in lengths:
            sampled = torch.randint(3, WORDS, (length,), generator=draw)
            left, right = prompt_ids.new_zeros(most - prompt), prompt_ids.new_zeros(width - length)
            ids.append(torch.cat([left, prompt_ids, sampled, right]))
            there.append(torch.cat([left, torch.ones_like(prompt_ids), torch.ones_like(sampled), right]))
    order = torch.randperm(len(ids), generator=draw)
    return torch.stack(ids)[order], torch.stack(there)[order], width
