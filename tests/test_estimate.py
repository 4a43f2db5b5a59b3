"""The memory estimate against real tensors: weights, adapters, optimizer, caches, activations."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from rlm_fast import fused_layers, packed_forward
from rlm_fast.fused_layers import fuse_mlps, fused_logprobs
from rlm_fast.memory_estimate import Load, Transformer, estimate
from rlm_fast.pack import layouts
from rlm_fast.packed_forward import packed_logprobs
from rlm_fast.sampling import MultinomialSampler
from torch.profiler import ProfilerActivity, profile
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, Qwen2Config, Qwen3Config
from trl.trainer.utils import add_fused_lm_head

from rlm_plugins.errors import RecipeError
from rlm_plugins.models.adapters import causal_model
from rlm_plugins.models.scratch import skeleton
from rlm_plugins.stage import Critic

LORA = {"r": 4, "target_modules": "all-linear"}
FAMILIES = (LlamaConfig, Qwen2Config, Qwen3Config)
NOTHING = Load(generated=0, prompt_len=0, completion_len=0, micro_batch_size=0)


def config(family: type = Qwen3Config, dtype: torch.dtype = torch.float32, **sizes: Any) -> Any:
    """Return a config with two layers and grouped queries, in which all sizes differ."""
    usual = {
        "vocab_size": 50,
        "hidden_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 80,
        "tie_word_embeddings": False,
        "max_position_embeddings": 128,
    }
    model_config = family(**{**usual, **sizes})
    model_config.dtype = dtype
    return model_config


def model(model_config: Any, lora: Mapping[str, Any] | None = None) -> Any:
    plain = AutoModelForCausalLM.from_config(model_config, dtype=model_config.dtype)
    return plain if lora is None else get_peft_model(plain, LoraConfig(task_type="CAUSAL_LM", **lora))


def size(tensors: Any) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


# ------------------------------------------------------------------ what is counted


@pytest.mark.parametrize("lora", [None, LORA, {"r": 3, "target_modules": ["q_proj", "v_proj"]}])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_gradients_and_adam_to_the_byte(lora: Mapping[str, Any] | None, tied: bool, dtype: torch.dtype) -> None:
    model_config = config(dtype=dtype, tie_word_embeddings=tied)
    found, real = estimate(model_config, lora, NOTHING), model(model_config, lora)
    trained = [p for p in real.parameters() if p.requires_grad]
    assert found.parameters == sum(p.numel() for p in real.parameters())
    assert found.trained == sum(p.numel() for p in trained)
    assert found.always["frozen weights"] == size(p for p in real.parameters() if not p.requires_grad)
    assert found.always["trained weights"] == size(trained)
    optimizer = torch.optim.AdamW(trained)
    real(input_ids=torch.randint(50, (2, 7))).logits.sum().backward()
    optimizer.step()
    assert found.always["gradients"] == size(p.grad for p in trained)
    moments = [t for state in optimizer.state.values() for name, t in state.items() if name != "step"]
    assert found.always["optimizer state"] == size(moments)


def test_a_reference_is_a_second_copy() -> None:
    one = estimate(config(), None, NOTHING)
    two = estimate(config(), None, dataclasses.replace(NOTHING, reference=True))
    assert two.peak - one.peak == size(model(config()).parameters())


def test_four_bits_for_the_linear_layers_of_the_blocks() -> None:
    model_config = config(dtype=torch.bfloat16)
    full = estimate(model_config, LORA, NOTHING).always["frozen weights"]
    model_config.quantization_config = BitsAndBytesConfig(load_in_4bit=True)
    small = estimate(model_config, LORA, NOTHING).always["frozen weights"]
    linear = 2 * (48 * 64 * 2 + 48 * 32 * 2 + 3 * 48 * 80)
    assert full - small == pytest.approx(linear * (2 - 4.127 / 8), abs=1)
    model_config.quantization_config = model_config.quantization_config.to_dict()
    assert estimate(model_config, LORA, NOTHING).always["frozen weights"] == small


# ------------------------------------------------------------------ what is worked out


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("lora", [None, LORA])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", FAMILIES)
def test_activations_equal_what_autograd_saves(
    family: type, dtype: torch.dtype, lora: Mapping[str, Any] | None, half: bool
) -> None:
    rows, width = 2, 24
    shallow, deep = (_saved(config(family, dtype, num_hidden_layers=n), lora, rows, width, half) for n in (2, 3))
    model_config = config(family, dtype)
    block = Transformer.of_model(skeleton(model_config, lora), model_config, LORA["r"] if lora else 0)
    copies = _cast_weights(config(family, dtype, num_hidden_layers=3), lora, half)
    copies -= _cast_weights(config(family, dtype, num_hidden_layers=2), lora, half)
    assert deep - shallow - copies == rows * width * block.saved(width, half)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_checkpointed_layer_keeps_its_input(dtype: torch.dtype) -> None:
    rows, width = 2, 24
    configs = [config(dtype=dtype, num_hidden_layers=n) for n in (2, 3)]
    shallow, deep = (_saved(each, LORA, rows, width, False, checkpointing=True) for each in configs)
    load = Load(0, width - 4, 4, rows, checkpointing=True)
    two, three = (estimate(each, LORA, load).update["activations"] for each in configs)
    assert deep - shallow == three - two == two / 2
    block = Transformer.of_model(skeleton(config(dtype=dtype), LORA), config(dtype=dtype), 4)
    whole = estimate(config(dtype=dtype), LORA, dataclasses.replace(load, checkpointing=False))
    passing = block.hidden_states(rows * width, False)
    assert block.layer(load) - passing == whole.update["activations"] / 2, "and one layer has all of it"
    largest = max(block.layer(load), block.head(load))
    assert sum(estimate(config(dtype=dtype), LORA, load).update.values()) == two + largest, "when the logits are gone"


@pytest.mark.parametrize(("trees", "prompt", "group", "completion"), [(2, 11, 4, 7), (1, 20, 3, 5), (1, 5, 3, 60)])
@pytest.mark.parametrize("lora", [None, LORA])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", FAMILIES)
def test_activations_of_a_packed_layer(
    family: type, dtype: torch.dtype, lora: Any, trees: int, prompt: int, group: int, completion: int
) -> None:
    configs = [config(family, dtype, num_hidden_layers=n) for n in (2, 3)]
    load = Load(0, prompt, completion, trees * group, packed_prompts=trees)
    shallow, deep = (_saved_packed(each, lora, trees, prompt, group, completion) for each in configs)
    two, three = (estimate(each, lora, load).update["activations"] for each in configs)
    assert deep - shallow == three - two


@pytest.mark.parametrize(("trees", "half"), [(0, False), (2, False), (0, True)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_activations_of_a_fused_mlp(trees: int, half: bool, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_layers, "MIN_PRODUCTS", 0)
    configs = [config(dtype=dtype, num_hidden_layers=n) for n in (2, 3)]
    shallow, deep = (
        _saved_packed(each, LORA, 2, 20, 2, 4, fused=True) if trees else _saved(each, LORA, 4, 24, half, fused=True)
        for each in configs
    )
    load = Load(0, 20, 4, 4, packed_prompts=trees, fused_mlp=True, half=half)
    two, three = (estimate(each, LORA, load).update["activations"] for each in configs)
    assert deep - shallow == three - two


def test_the_cache() -> None:
    model_config = config()
    out = model(model_config)(input_ids=torch.randint(50, (3, 11)), use_cache=True)
    real = size(t for layer in out.past_key_values.layers for t in (layer.keys, layer.values))
    found = estimate(model_config, None, Load(generated=3, prompt_len=5, completion_len=6, micro_batch_size=1))
    assert found.generation["KV cache"] == real


@pytest.mark.parametrize("half", [False, True])
def test_the_head(half: bool) -> None:
    """The estimate is within a tenth: TRL's tile has full width, of which a small vocabulary uses little."""
    model_config = config(vocab_size=40000, hidden_size=32)
    real = model(model_config, LORA)
    add_fused_lm_head(real.get_base_model(), outputs=("log_probs", "entropy"))
    ids = torch.randint(40000, (2, 40))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record, _autocast(half):
        real(input_ids=ids, labels=ids, fused_lm_head=True).log_probs.sum().backward()
    measured = _peak_inside(record, "ChunkedLogProbFunctionBackward")
    found = estimate(
        model_config, LORA, Load(generated=0, prompt_len=30, completion_len=10, micro_batch_size=2, half=half)
    )
    assert found.update["log-probs"] == pytest.approx(measured, rel=0.1)


@pytest.mark.parametrize(("dtype", "half"), [(torch.float32, False), (torch.float32, True), (torch.bfloat16, False)])
def test_the_packed_head(dtype: torch.dtype, half: bool) -> None:
    """Chunks of logits are computed in order: the memory of one is released before the next."""
    model_config, load = (
        config(dtype=dtype, vocab_size=40000, hidden_size=64),
        Load(0, 30, 100, 4, half=half, packed_prompts=1),
    )
    hidden, target = torch.randn(400, 64, dtype=dtype, requires_grad=True), torch.randint(40000, (400,))
    weight = torch.randn(40000, 64, dtype=dtype)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        with _autocast(half):
            logp, _ = fused_logprobs(hidden, weight, None, target)
        logp.sum().backward()
    assert estimate(model_config, LORA, load).update["log-probs"] == pytest.approx(_peak(record), rel=0.1)


def test_choosing_a_token() -> None:
    """The peak for a batch with one finished sequence, at a temperature, is within a tenth of the estimate."""
    rows, words = 16, 4000
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        draw, logits = MultinomialSampler(), torch.randn(rows, words)
        draw(logits / 0.7, torch.arange(rows), rows)
        draw(logits[1:] / 0.7, torch.arange(1, rows), rows)
    found = estimate(
        config(vocab_size=words), LORA, Load(generated=rows, prompt_len=8, completion_len=8, micro_batch_size=4)
    )
    assert found.generation["sampling"] == pytest.approx(_peak(record), rel=0.1)


@pytest.mark.slow
def test_a_whole_step_of_training() -> None:
    """The peak of forward, backward and AdamW on 4 sequences of 48 tokens is within a tenth of the estimate."""
    model_config = config(hidden_size=128, intermediate_size=512, num_hidden_layers=4, vocab_size=2000)
    ids = torch.randint(2000, (4, 48))
    mask = torch.ones_like(ids)
    mask[0, :5] = 0
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        real = model(model_config, LORA)
        add_fused_lm_head(real.get_base_model(), outputs=("log_probs", "entropy"))
        optimizer = torch.optim.AdamW([p for p in real.parameters() if p.requires_grad])
        for _ in range(2):
            real(input_ids=ids, attention_mask=mask, labels=ids, fused_lm_head=True).log_probs.sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    load = Load(generated=0, prompt_len=32, completion_len=16, micro_batch_size=4)
    found = estimate(model_config, LORA, load)
    spare = 4 * 47 * (32768 - 2000) * 4  # the tile's untouched width
    assert found.peak == pytest.approx(_peak(record) - spare, rel=0.1)


# ------------------------------------------------------------------ measuring


def _autocast(half: bool) -> Any:
    return torch.autocast("cpu", torch.bfloat16) if half else contextlib.nullcontext()


def _cast_weights(model_config: Any, lora: Mapping[str, Any] | None, half: bool) -> int:
    """Return the bytes of half-precision copies of float32 weights, which autograd saves too."""
    return estimate(model_config, lora, dataclasses.replace(NOTHING, half=half)).update["half-precision weights"]


def _saved(
    model_config: Any,
    lora: Mapping[str, Any] | None,
    rows: int,
    width: int,
    half: bool,
    checkpointing: bool = False,
    fused: bool = False,
) -> int:
    """Return the bytes of all tensors that autograd saves in a padded forward pass, without parameters."""
    real = _fused(model(model_config, lora)) if fused else model(model_config, lora)
    if checkpointing:
        real.train()
        real.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        real.enable_input_require_grads()
    mask = torch.ones(rows, width, dtype=torch.long)
    mask[0, :3] = 0
    with _kept(real) as kept, _autocast(half):
        output = real(input_ids=torch.randint(50, (rows, width)), attention_mask=mask, use_cache=False)
    assert output.logits.requires_grad
    return sum(kept.values())


def _fused(real: Any) -> Any:
    fused_layers.fuse_lora(real)
    fuse_mlps(real)
    return real


def _saved_packed(
    model_config: Any, lora: Any, trees: int, prompt: int, group: int, completion: int, fused: bool = False
) -> int:
    """Return the activations saved by a packed forward pass with sequences of one length."""
    real = _fused(model(model_config, lora)) if fused else model(model_config, lora)
    packed_forward.install_attention(causal_model(real))
    # First tokens differ, so that neither prompts nor completions have a common prefix.
    prompts, completions = torch.randint(50, (trees, 1, prompt)), torch.randint(50, (trees, group, completion))
    prompts[:, 0, 0], completions[:, :, 0] = torch.arange(trees), torch.arange(group)
    ids = torch.cat([prompts.expand(trees, group, prompt), completions], -1).flatten(0, 1)
    (layout,) = layouts(ids, torch.ones_like(ids), completion, min_saved=1)
    assert layout.ids.numel() == trees * (prompt + group * (completion - 1))
    with _kept(real) as kept:
        packed_logprobs(real, layout)
    return sum(kept.values())


@contextlib.contextmanager
def _kept(real: Any) -> Any:
    """Record storage → bytes of the tensors that autograd saves inside the context, without parameters."""
    own = {t.untyped_storage().data_ptr() for t in (*real.parameters(), *real.buffers())}
    sizes: dict[int, int] = {}
    alive: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if (at := tensor.untyped_storage().data_ptr()) not in own:
            sizes[at] = tensor.untyped_storage().nbytes()
            alive.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield sizes


def _levels(record: Any) -> list[tuple[int, int]]:
    """Return (time, bytes allocated since the start) of each allocation event."""
    level, found = 0, []
    for event in sorted(record.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            level += event.nbytes()
            found.append((event.start_ns(), level))
    return found


def _peak(record: Any) -> int:
    return max(level for _, level in _levels(record))


def _peak_inside(record: Any, name: str) -> int:
    """Return the most bytes that are allocated in addition while the operator `name` runs."""
    (operator,) = [event for event in record.profiler.kineto_results.events() if event.name() == name]
    levels = _levels(record)
    before = [level for time, level in levels if time <= operator.start_ns()][-1]
    return max(level for time, level in levels if operator.start_ns() <= time <= operator.end_ns()) - before


def test_unmatched_adapter_error_lists_the_layers() -> None:
    message = r".lora: PEFT rejects the adapter: .*nope(.|\n)*allowed: .*o_proj, q_proj"
    with pytest.raises(RecipeError, match="model" + message):
        estimate(config(), {"r": 4, "target_modules": ["nope"]}, NOTHING)
    with pytest.raises(RecipeError, match="critic" + message):
        estimate(config(), {"r": 4}, NOTHING, Critic("shared", {"target_modules": ["nope"]}))
