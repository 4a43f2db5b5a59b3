"""The portable generator: the samples of transformers' `generate`, and the same random state after it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import fixtures_models
import pytest
import torch
from rlm_fast import fast, kv_cache, linear_layers, loop, sampling
from rlm_fast import linear_layers as products
from rlm_fast.fast import dry_run, why_self_check_fails
from rlm_fast.kv_cache import PreallocatedLayer
from rlm_fast.linear_layers import merged
from rlm_fast.loop import why_unsupported_model
from rlm_fast.packed_forward import USES_RNG
from rlm_fast.sampling import MultinomialSampler, exponential_is_inverse, sample_inverse_cdf
from torch.overrides import TorchFunctionMode
from transformers import GenerationConfig

from rlm_plugins.rollout.generator_call import Generation

ENDS = [2, 5, 9]
"""Three words of 41 end a row: after some 13 tokens."""


def prompts(*lengths: int, times: int = 1) -> dict[str, torch.Tensor]:
    """Return left-padded random prompts of these lengths, each repeated `times` times."""
    draw, width = torch.Generator().manual_seed(1), max(lengths)
    rows = [torch.randint(10, fixtures_models.WORDS, (n,), generator=draw) for n in lengths]
    ids = torch.stack([torch.cat([row.new_zeros(width - len(row)), row]) for row in rows]).repeat_interleave(times, 0)
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


def config(**changes: Any) -> GenerationConfig:
    usual = {"max_new_tokens": 16, "do_sample": True, "top_k": None, "pad_token_id": 0, "eos_token_id": ENDS}
    return GenerationConfig(**{**usual, "disable_compile": True, **changes})


def generate_with_both(
    model: Any, inputs: dict[str, torch.Tensor], how: GenerationConfig, **options: Any
) -> tuple[Any, Any]:
    """Generate with transformers and with the fast generator from one seed; the next random number must be equal."""
    torch.manual_seed(3)
    usual, after = model.generate(**inputs, generation_config=how), torch.rand(4)
    torch.manual_seed(3)
    found = fast.fast_generate(model.generate, model, inputs, how, **options)
    assert torch.equal(torch.rand(4), after)
    return usual, found


def same(model: Any, inputs: dict[str, torch.Tensor], how: GenerationConfig) -> torch.Tensor:
    usual, found = generate_with_both(model, inputs, how)
    assert torch.equal(found, usual)
    return usual


@contextmanager
def without_fallback() -> Iterator[None]:
    """Fail if generation falls back to transformers."""

    def refuse(reason: str) -> None:
        raise AssertionError(reason)

    say, fast._log_fallback = fast._log_fallback, refuse  # type: ignore[assignment]
    try:
        yield
    finally:
        fast._log_fallback = say


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use merged weights for short completions too, caches that grow every four tokens, and one thread."""
    torch.set_num_threads(1)
    monkeypatch.setattr(linear_layers, "MERGE_TOKENS", 0)
    monkeypatch.setattr(kv_cache, "BLOCK", 4)


# ------------------------------------------------------------------ the same samples


@pytest.mark.parametrize("family", fixtures_models.CONFIGS)
def test_samples_of_every_family(family: str) -> None:
    with without_fallback():
        model = fixtures_models.adapted(fixtures_models.model(family)).eval()
        for times in (1, 3, 16):
            written = same(model, prompts(7, 4, 2, times=times), config())
            assert len({*(written[:, 7:] == 0).sum(1).tolist()}) > 1, "rows of several lengths"


SETTINGS: dict[str, dict[str, Any]] = {
    "all at once": {"temperature": 0.8, "top_p": 0.9, "top_k": 20, "min_p": 0.01, "repetition_penalty": 1.1},
    "greedy": {"do_sample": False},
    "never ends": {"eos_token_id": None, "max_new_tokens": 5},
    "at least": {"min_new_tokens": 6},
    "no triple": {"no_repeat_ngram_size": 2},
    "always ends": {"eos_token_id": list(range(1, fixtures_models.WORDS))},
}


@pytest.mark.parametrize("changes", SETTINGS.values(), ids=SETTINGS)
def test_every_setting_of_sampling(changes: dict[str, Any]) -> None:
    with without_fallback():
        same(fixtures_models.adapted(fixtures_models.model("Qwen3")).eval(), prompts(5, 3, times=4), config(**changes))


@pytest.mark.parametrize("lengths", [(1,), (4, 4, 4), (9, 1), (3, 1, 5, 3)])
def test_prompts_of_all_lengths(lengths: tuple[int, ...]) -> None:
    with without_fallback():
        model = fixtures_models.model("Llama").eval()
        same(model, prompts(*lengths), config())
        same(model, prompts(*lengths, times=2), config())


def test_an_empty_prompt_beside_others() -> None:
    inputs = prompts(3, 2)
    inputs["input_ids"][1], inputs["attention_mask"][1] = 0, 0
    same(fixtures_models.model("Llama").eval(), inputs, config())


class Waits(TorchFunctionMode):
    """Counts the calls that would wait for a GPU: numbers that Python reads, and sizes that depend on numbers."""

    count, names = 0, "item tolist cpu numpy nonzero unique bincount __bool__ __int__ __float__ __index__"

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        by_mask = func.__name__ in ("__getitem__", "__setitem__") and getattr(args[1], "dtype", None) == torch.bool
        self.count += by_mask or func.__name__ in self.names.split()
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("changes", [{}, {"do_sample": False}, {"eos_token_id": None}, SETTINGS["always ends"]])
def test_ends_are_read_once_per_block(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: samples, random state, log-probs, reports; at most one wait for eight tokens after the prefill."""
    monkeypatch.setattr(kv_cache, "sharing_pays", lambda *_: False)
    model, outputs, waits = fixtures_models.adapted(fixtures_models.model("Llama")).eval(), [], []
    for block, tokens in ((1, 16), (loop.GPU_CHECKS, 16), (loop.GPU_CHECKS, 40)):
        monkeypatch.setitem(loop.CHECK_EVERY, "cpu", block)
        told: list[Any] = []
        options = {"return_logprobs": True, "on_finished": lambda *x, told=told: told.extend(zip(*x, strict=True))}
        how = config(**{"max_new_tokens": tokens, **changes})
        usual, found = generate_with_both(model, prompts(6, 3, times=4), how, **options)
        assert torch.equal(found.ids, usual)
        outputs.append((found.logp, found.entropy, sorted(told)))
        with Waits() as counted:
            fast.fast_generate(model.generate, model, prompts(6, 3, times=4), how)
        waits.append(counted.count)
    torch.testing.assert_close(*outputs[:2], atol=1e-5, rtol=0)
    assert changes != {"eos_token_id": None} or waits[0] - 14 == waits[1] == waits[2] - 3


# ------------------------------------------------------------------ less work


def test_shared_prefill_and_eviction_of_finished_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their keys and values are removed when the cache grows for further tokens."""
    model, read, held = fixtures_models.model("Llama").eval(), [], []
    assert why_self_check_fails(model, model.generate) is None
    model.register_forward_pre_hook(lambda _, __, given: read.append(tuple(given["input_ids"].shape)), with_kwargs=True)
    update = PreallocatedLayer.update

    def watched(self: PreallocatedLayer, *given: Any, **options: Any) -> Any:
        keys, values = update(self, *given, **options)
        held.append(keys.untyped_storage().nbytes() / keys[:1, :, :1].nbytes)
        return keys, values

    monkeypatch.setattr(PreallocatedLayer, "update", watched)
    torch.manual_seed(3)
    inputs = prompts(6, 3, times=8)
    ids: Any = fast.fast_generate(model.generate, model, inputs, config(max_new_tokens=24))
    alive = [int((ids[:, 6 + t :] != 0).any(1).sum()) for t in range(1, ids.shape[1] - 6)]
    assert alive[0] > 2 * alive[-1], "rows end one by one"
    assert read == [(2, 6), *((left, 1) for left in alive)]
    assert held[-1] <= (ids.shape[1] + 4) * alive[-6] < (ids.shape[1] - 1) * len(ids) / 2


# ------------------------------------------------------------------ the adapter


@pytest.mark.parametrize("family", ["Qwen3", "GPT2"])
def test_no_weight_is_touched_while_the_adapter_is_added(family: str) -> None:
    model = fixtures_models.adapted(fixtures_models.model(family, tie_word_embeddings=True)).eval()
    before = {name: (x, x.data_ptr(), x.clone()) for name, x in model.named_parameters()}
    ids = prompts(5)["input_ids"]
    apart = model(ids).logits
    together = []

    def interrupted() -> None:
        with merged(model):
            together.append(model(ids).logits)
            assert any("forward" in vars(layer) for layer in model.modules())
            raise KeyError

    with pytest.raises(KeyError):
        interrupted()
    assert torch.allclose(apart, together[0], atol=1e-5)
    assert not torch.equal(apart, together[0]), "one product, not three"
    assert not any("forward" in vars(layer) for layer in model.modules() if hasattr(layer, "lora_A"))
    for name, x in model.named_parameters():
        assert x is before[name][0]
        assert x.data_ptr() == before[name][1]
        assert torch.equal(x, before[name][2])
    assert torch.equal(model(ids).logits, apart)


@pytest.mark.parametrize(
    ("changes", "dtype"),
    [
        ({"use_dora": True}, torch.float32),
        ({"lora_bias": True, "bias": "none"}, torch.float32),
        ({}, torch.float16),
        ({"lora_dropout": 0.5}, torch.float32),
    ],
    ids=["dora", "bias", "float16", "dropout"],
)
def test_an_adapter_that_cannot_be_added_stays_beside(changes: dict[str, Any], dtype: torch.dtype) -> None:
    """The samples are equal; with active dropout transformers generates."""
    model = fixtures_models.adapted(fixtures_models.model("Llama", dtype=dtype), **changes)
    model.eval() if "lora_dropout" not in changes else model.train()
    with merged(model):
        assert not any("forward" in vars(layer) for layer in model.modules() if hasattr(layer, "lora_A"))
    if dtype == torch.float32:
        same(model, prompts(5, 3, times=3), config())
    else:  # rounding depends on the batch size
        assert len(fast.fast_generate(model.generate, model, prompts(5, 3, times=3), config())) == 6  # type: ignore[arg-type]


@pytest.mark.parametrize("family", fixtures_models.CONFIGS)
@pytest.mark.parametrize("short", [True, False], ids=["short completions", "merge: false"])
def test_samples_with_weights_in_place(family: str, short: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_layers, "MERGE_TOKENS", 17 if short else 0)

    def refuse(*given: Any) -> None:
        raise AssertionError("weights were copied")

    monkeypatch.setattr(linear_layers.PackedLinear, "__init__", refuse)
    model = fixtures_models.adapted(fixtures_models.model(family)).eval()
    for times in (1, 3):
        usual, found = generate_with_both(
            model, prompts(7, 4, 2, times=times), config(), **({} if short else {"merge": False})
        )
        assert torch.equal(found, usual)
    with model.disable_adapter():
        usual, found = generate_with_both(model, prompts(7, 4), config(), merge=False)
        assert torch.equal(found, usual)
    assert dry_run(model, config(), merge=short) == (None, 0)


# ------------------------------------------------------------------ what it does not do

FALLS_BACK: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "beams": ("Llama", {}, {"num_beams": 2, "do_sample": False}, "beam search"),
    "window": ("Mistral", {"sliding_window": 4}, {}, "not every layer caches"),
    "static cache": ("Llama", {}, {"cache_implementation": "static"}, "not every layer caches"),
    "watermark": ("Llama", {}, {"watermarking_config": {"bias": 2.5}}, "WatermarkLogitsProcessor"),
    "dropout": ("GPT2", {"attn_pdrop": 0.5, "resid_pdrop": 0.5}, {}, "dropout is on"),
    "angles that change": ("Llama", {"rope_parameters": fixtures_models.LONG}, {}, "exceed 16 tokens"),
}


@pytest.mark.parametrize(("family", "model", "changes", "why"), FALLS_BACK.values(), ids=FALLS_BACK)
def test_unsupported_options_fall_back_to_transformers(
    family: str, model: dict[str, Any], changes: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is known before weights are loaded; one warning is logged, however often this happens."""
    unloaded = fixtures_models.model(family, **model).to("meta").train()
    reason, held = dry_run(unloaded, config(**changes))
    assert why in str(reason)
    assert held == 0
    assert {x.device.type for x in unloaded.parameters()} == {"meta"}
    fast._log_fallback.cache_clear()
    lm = fixtures_models.model(family, **model).train()
    with caplog.at_level(logging.WARNING, fast.__name__):
        same(lm, prompts(6, 3, times=2), config(**changes))
        same(lm, prompts(6, times=2), config(**changes))
    (line,) = [record.getMessage() for record in caplog.records if record.name == fast.__name__]
    assert line.startswith("generation falls back to transformers: ")
    assert why in line


@pytest.mark.parametrize("small", [0, products.MIN_WEIGHT], ids=["laid out", "as they are"])
@pytest.mark.parametrize("family", fixtures_models.CONFIGS)
def test_the_copies_are_counted_before_there_are_weights(
    family: str, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "MIN_WEIGHT", small)
    model = fixtures_models.adapted(fixtures_models.model(family))
    with merged(model):
        forwards = [vars(layer)["forward"] for layer in model.modules() if "forward" in vars(layer)]
    weights = [it.weight for it in forwards if isinstance(it, products.PackedLinear)]
    real = sum(x.numel() * x.element_size() for x in weights)
    assert len(weights) >= (8 if small else 9), "the head is laid out too"
    assert dry_run(model.to("meta"), config()) == (None, real)
    assert dry_run(model, config(), merge=False) == (None, 0)
    assert dry_run(model.to(torch.float16), config()) == (None, 0)


def test_dropout_falls_back_to_transformers_in_training_only() -> None:
    """OPT has functional dropout. The self-check keeps the random state, which `generate_with_both` compares."""
    sizes = {"word_embed_proj_dim": 32, "ffn_dim": 48, "dropout": 0.3}
    model, given = fixtures_models.model("OPT", **sizes), prompts(4, 3, times=2)
    assert why_unsupported_model(model) is None
    same(model.eval(), given, config())
    assert why_self_check_fails(model, model.generate) is None
    same(model.train(), given, config())
    assert why_self_check_fails(model, model.generate) == USES_RNG


def test_sharded_models_fall_back_to_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a sharded model all processes must run the same number of forward passes."""
    monkeypatch.setattr(loop, "is_fsdp_managed_module", lambda _: True)
    assert "sharded" in (why_unsupported_model(fixtures_models.model("Llama")) or "")


def with_hidden_state(model: Any, *, falls: bool = False) -> Any:
    """Return the model with a hidden state: it adds logits that depend on the prefill."""
    rows: list[torch.Tensor] = []

    def remembers(_: Any, __: Any, given: dict[str, Any], output: Any) -> Any:
        ids = given["input_ids"]
        if ids.shape[1] > 1:
            rows[:] = [torch.linspace(-3, 3, len(ids))[:, None, None] * torch.linspace(-1, 1, fixtures_models.WORDS)]
        known = rows[0] if falls else rows[0].repeat(9, 1, 1)[: len(ids)]
        output.logits = output.logits + known
        return output

    model.register_forward_hook(remembers, with_kwargs=True)
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("what", ["other tokens", "fails"])
def test_model_with_hidden_state_fails_the_self_check(
    what: str, dtype: torch.dtype, caplog: pytest.LogCaptureFixture
) -> None:
    """Evicted sequences shift the hidden state, or make the forward pass fail."""
    fast._log_fallback.cache_clear()
    model = with_hidden_state(fixtures_models.model("Llama", dtype=dtype).eval(), falls=what == "fails")
    same(model, prompts(6, 3, times=2), config())
    (line,) = [record.getMessage() for record in caplog.records if record.name == fast.__name__]
    assert "the decoding loop" in line
    assert what in line


@pytest.mark.parametrize("family", fixtures_models.CONFIGS)
def test_half_precision_rounding_passes_the_self_check(family: str) -> None:
    model = fixtures_models.adapted(fixtures_models.model(family, dtype=torch.bfloat16)).eval()
    assert why_self_check_fails(model, model.generate) is None


@pytest.mark.parametrize("cast", [False, True])
def test_a_model_that_accelerate_casts_may_round_otherwise_too(cast: bool) -> None:
    """Two tokens have equal logits, and rounding, which depends on the batch size, selects one."""
    model = fixtures_models.model("Llama").eval()
    model.lm_head.weight.data.zero_()
    model.lm_head.bias = torch.nn.Parameter(torch.linspace(-9, -8, fixtures_models.WORDS))
    model.lm_head.bias.data[5:7] = 0.0

    def rounds(_: Any, __: Any, given: dict[str, Any], output: Any) -> None:
        output.logits[..., 5 + len(given["input_ids"]) % 2] += 1e-3

    model.register_forward_hook(rounds, with_kwargs=True)
    if cast:  # as accelerate leaves its mark on it
        model._original_forward = model.forward
    assert (why_self_check_fails(model, model.generate) is None) is cast


def test_broken_policy_raises_the_error_of_transformers() -> None:
    model = fixtures_models.model("Llama").eval()
    with torch.no_grad():
        model.lm_head.weight.fill_(torch.nan)
    for draw in fast.SAMPLERS:
        with pytest.raises(RuntimeError, match="NaN"):
            fast.fast_generate(model.generate, model, prompts(3), config(), sampling=draw)


# ------------------------------------------------------------------ who draws


@pytest.mark.parametrize("as_inverse", [True, False])
def test_noise_equals_multinomial(monkeypatch: pytest.MonkeyPatch, as_inverse: bool) -> None:
    monkeypatch.setattr(sampling, "exponential_is_inverse", lambda: as_inverse and exponential_is_inverse())
    scores = torch.randn(6, 50) * 3
    torch.manual_seed(1)
    usual = torch.multinomial(scores.softmax(-1), 1).squeeze(1)
    for rows in (torch.arange(6), torch.tensor([4, 1])):
        torch.manual_seed(1)
        draw = MultinomialSampler()
        assert torch.equal(draw(scores[rows], rows, 6), usual[rows])


def test_changed_multinomial_fails_the_self_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """The self-check does not change the random state."""
    here = exponential_is_inverse()
    for power, same_bits in ((1, True), (2, False)):
        with monkeypatch.context() as patched:
            usual = torch.Tensor.exponential_
            patched.setattr(
                torch.Tensor, "exponential_", lambda x, power=power, usual=usual, **how: usual(x, **how).pow_(power)
            )
            torch.manual_seed(5)
            exponential_is_inverse.cache_clear()
            assert exponential_is_inverse() is (same_bits and here)
            found = torch.rand(3)
        torch.manual_seed(5)
        assert torch.equal(torch.rand(3), found)
    exponential_is_inverse.cache_clear()


@pytest.mark.parametrize("words", [2**13, 2**13 + 1])
def test_the_largest_is_where_torch_finds_it(words: int) -> None:
    x = torch.randn(9, words)
    x[1, [4000, 300, 8000]] = 9.0  # equals: the first
    x[2, [200, 199]] = 9.0
    x[3], x[4] = -torch.inf, torch.inf
    x[5, 700:] = -torch.inf
    x[6, 5000], x[6, 8] = torch.nan, torch.inf
    x[7, 1000:] = torch.nan
    x[8, -1] = 9.0
    assert torch.equal(sampling.argmax(x), x.argmax(-1))
    assert torch.equal(sampling.argmax(x[:, :128]), x[:, :128].argmax(-1))


def test_inverse_sampling_has_the_same_distribution() -> None:
    """10⁵ samples, χ² with 7 degrees of freedom: 24.3 has a probability of 0.001; impossible tokens never occur."""
    scores = torch.tensor([2.0, 0.5, -torch.inf, 0.0, 1.0, -1.0, 0.3, -2.0, 1.5, -torch.inf])
    torch.manual_seed(0)
    n = 100_000
    actual = torch.bincount(sample_inverse_cdf(scores.expand(n, -1), torch.arange(n), n), minlength=10)
    expected = n * scores.softmax(-1)
    possible = expected > 0
    assert actual[~possible].sum() == 0
    assert ((actual - expected)[possible] ** 2 / expected[possible]).sum() < 24.3


def test_the_inverse_finds_unlikely_words_of_a_large_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    """20 000 tokens of 10⁻⁹ each follow a likely one: 64 levels select 64 tokens, and 1 − 2⁻⁵³ the last."""
    scores = torch.full((1, 20_001), 1e-9).log()
    scores[0, 0] = 0.0
    p = scores.softmax(-1).double()[0]
    words = torch.linspace(1, 20_000, 64).long()
    levels = (p.cumsum(0)[words] - p[words] / 2) / p.sum()
    levels[-1] = 1 - 2**-53
    monkeypatch.setattr(torch, "rand", lambda *_, dtype=torch.float32, device=None: levels[:, None].to(dtype))
    assert torch.equal(sample_inverse_cdf(scores.expand(64, -1), torch.arange(64), 64), words)


# ------------------------------------------------------------------ what was thought


@pytest.mark.parametrize(
    "changes", [{"temperature": 0.7}, {"temperature": 1.3, "top_p": 0.8}, {"repetition_penalty": 1.3}]
)
def test_recorded_logprobs_equal_a_forward_pass(changes: dict[str, Any]) -> None:
    """They are those of the policy before top-k or other filters of logits."""
    model, inputs = fixtures_models.adapted(fixtures_models.model("Llama")).eval(), prompts(6, 3, times=4)
    usual, found = generate_with_both(model, inputs, config(**changes, suppress_tokens=[0]), return_logprobs=True)
    assert isinstance(found, Generation)
    assert torch.equal(found.ids, usual)
    assert found.logp is not None
    assert found.entropy is not None
    there = torch.cat([inputs["attention_mask"], (usual[:, 6:] != 0).long()], 1)
    places = (there.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        logits = model(usual, attention_mask=there, position_ids=places).logits[:, 5:-1] / changes.get(
            "temperature", 1.0
        )
    z, live = logits.log_softmax(-1), there[:, 6:]
    logp = z.gather(-1, usual[:, 6:, None]).squeeze(-1)
    assert torch.allclose(found.logp * live, logp * live, atol=1e-5)
    assert torch.allclose(found.entropy * live, -(z.exp() * z).sum(-1) * live, atol=1e-5)


def test_outputs_allow_training() -> None:
    """Decoding runs in inference mode, but no inference tensor is returned."""
    model, inputs, modes = fixtures_models.adapted(fixtures_models.model("Llama")).eval(), prompts(6, 3, times=4), []

    def finished(*_: Any) -> None:
        modes.append((torch.is_inference_mode_enabled(), torch.is_grad_enabled()))

    _, found = generate_with_both(model, inputs, config(), return_logprobs=True, on_finished=finished)
    assert set(modes) == {(False, False)}
    assert not any(x.is_inference() for x in (found.ids, found.logp, found.entropy))
    weight = torch.ones((), requires_grad=True)
    (weight * found.logp * found.entropy).sum().backward()
    assert not any(x.is_inference() for x in (*model.parameters(), *model.buffers()))
