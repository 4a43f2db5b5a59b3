"""The generator `fast` beside `generate` of transformers: same samples, same RNG state, and the laws of generators."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from rlm_fast import fast, generator
from rlm_testing import conformance
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Part
from rlm_plugins.rollout.generator_call import Generation, generate

SIZES = {"vocab_size": 31, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
ENDS = {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": [1, 2, 3]}
FAST = Part("rlm_generators", "fast", "fast", generator.fast)

test_laws = conformance("rlm_generators", generator.fast)
test_inverse_cdf_laws = conformance("rlm_generators", generator.fast, knobs={"sampling": "inverse_cdf"})


def model(**changes: Any) -> Any:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**{**SIZES, **changes}, **ENDS)).eval()


def decoded(part: Any, decoder: Any, settings: dict[str, Any]) -> tuple[Generation, torch.Tensor]:
    """Generate three completions of two prompts from one seed; also return the next random numbers."""
    ids = torch.tensor([[0, 7, 9], [4, 5, 6]]).repeat_interleave(3, 0)
    config = GenerationConfig(max_new_tokens=12, disable_compile=True, **ENDS, **settings)
    torch.manual_seed(5)
    inputs = {"input_ids": ids, "attention_mask": (ids != 0).long()}
    return generate(part, decoder.generate, decoder, inputs, config, return_logprobs=part is not None), torch.rand(3)


@pytest.mark.parametrize(
    "settings", [{"do_sample": True}, {"do_sample": True, "top_p": 0.8, "temperature": 1.4}, {"do_sample": False}]
)
def test_samples_and_rng_state_equal_transformers(settings: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    decoder = model()
    (expected, rng), (generation, rng_after) = (decoded(part, decoder, settings) for part in (None, FAST.bind({})))
    assert torch.equal(generation.ids, expected.ids)
    assert torch.equal(rng_after, rng)
    assert generation.logp is not None, "decoded by the loop, which records log-probs"
    assert not caplog.records


def test_unsupported_call_falls_back_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    fast._log_fallback.cache_clear()
    decoder, beams = model(), {"num_beams": 2, "do_sample": False}
    with caplog.at_level(logging.WARNING, "rlm_fast"):
        for _ in range(2):
            assert torch.equal(decoded(FAST.bind({}), decoder, beams)[0].ids, decoded(None, decoder, beams)[0].ids)
    (record,) = caplog.records
    assert "beam search is unsupported" in record.getMessage()


def test_recorded_logprobs_equal_a_forward_pass() -> None:
    decoder = model()
    generation, _ = decoded(FAST.bind({}), decoder, {"do_sample": True})
    ids, prompt_len = generation.ids[3:], 3  # the prompt without padding
    with torch.no_grad():
        logits = decoder(ids).logits[:, prompt_len - 1 : -1]
    expected = logits.log_softmax(-1).gather(-1, ids[:, prompt_len:, None]).squeeze(-1)
    ended = torch.isin(ids[:, prompt_len:], torch.tensor(ENDS["eos_token_id"])).cumsum(1)
    live = (ended - torch.isin(ids[:, prompt_len:], torch.tensor(ENDS["eos_token_id"])).long()) == 0
    assert generation.logp is not None
    assert torch.allclose(generation.logp[3:][live], expected[live], atol=1e-5)


def test_installed_plugin_has_the_default_generator() -> None:
    registry = Registry()
    if "fast" not in registry.plugins:
        pytest.skip("the package is not installed")
    assert registry.find("rlm_generators", "fast").full_name == "fast/fast"
