"""Laws of generators, on a tiny model."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from hypothesis import strategies as st

from rlm_plugins.rollout.generator_call import generate
from rlm_testing.law import Draw, law
from rlm_testing.part_under_test import LawBroken, Subject

VOCAB_SIZE, END, PAD = 11, 1, 0


@cache
def model() -> Any:
    """Return a decoder of one layer with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        ends = {"pad_token_id": PAD, "eos_token_id": END, "bos_token_id": None}
        return LlamaForCausalLM(LlamaConfig(vocab_size=VOCAB_SIZE, **sizes, **ends)).eval()


@law("rlm_generators", share=0.1)
def continues(subject: Subject, draw: Draw) -> None:
    """Check that greedy decoding equals that of `model.generate`, and sampling depends on the seed alone."""
    call = _arguments(draw, samples=False)
    expected = model().generate(**call["inputs"], generation_config=call["config"])
    ids = _ids(subject, call)
    if not torch.equal(ids, expected):
        raise LawBroken(f"{ids.tolist()}, where `model.generate` returns {expected.tolist()}", call["inputs"])
    call = _arguments(draw, samples=True)
    torch.manual_seed(7)
    first = _ids(subject, call)
    torch.manual_seed(7)
    second = _ids(subject, call)
    if not torch.equal(first, second):
        raise LawBroken(f"{first.tolist()} the first time, {second.tolist()} the second", call["inputs"])


def _arguments(draw: Draw, *, samples: bool) -> dict[str, Any]:
    """Return inputs with prompts of several lengths, some of them twice."""
    from transformers import GenerationConfig

    prompts = draw(st.lists(st.lists(st.integers(2, VOCAB_SIZE - 1), min_size=1, max_size=4), min_size=1, max_size=4))
    prompts += prompts[: draw(st.integers(0, 2))]
    width = max(map(len, prompts))
    ids = torch.tensor([[PAD] * (width - len(row)) + row for row in prompts])
    ends = {"eos_token_id": [END, 2, 3], "pad_token_id": PAD, "disable_compile": True}
    config = GenerationConfig(max_new_tokens=draw(st.integers(1, 5)), do_sample=samples, **ends)
    return {"inputs": {"input_ids": ids, "attention_mask": (ids != PAD).long()}, "config": config}


def _ids(subject: Subject, call: dict[str, Any]) -> torch.Tensor:
    return generate(subject.fresh(), model().generate, model(), **call).ids
