"""Padding-free forward passes with shared prompts: log-probs, entropies and gradients of the padded pass."""

from __future__ import annotations

from functools import cache, partial
from typing import Any
from unittest.mock import patch

import fixtures_models
import peft
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rlm_fast import linear_layers, packed_forward
from rlm_fast.pack import is_packable, layouts
from rlm_fast.packed_attention import TreeAttention
from rlm_fast.packed_forward import packed_logprobs
from torch.nn.attention.flex_attention import flex_attention
from transformers import modeling_flash_attention_utils as flash
from transformers.integrations import flash_attention
from transformers.integrations import flex_attention as flex
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from rlm_plugins.models.adapters import causal_model

RAGGED = fixtures_models.rows((5, [3, 1, 7, 4]), (2, [6, 6]), (9, [1]))
Rows = tuple[torch.Tensor, torch.Tensor, int]


@pytest.fixture(params=fixtures_models.CONFIGS)
def model(request: pytest.FixtureRequest) -> Any:
    lm = fixtures_models.adapted(fixtures_models.model(request.param, temperature=0.8))
    packed_forward.install_attention(causal_model(lm))
    return lm


def packed(model: Any, rows: Rows, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute what `fixtures_models.padded` returns by padding-free forward passes."""
    logp = entropy = 0.0
    how = {name: options.pop(name) for name in ("live", "budget", "relative", "min_saved") if name in options}
    for part in layouts(*rows, **how):
        piece = packed_logprobs(model, part, temperature=0.8, **options)
        logp, entropy = logp + part.unpack(piece[0]), entropy + part.unpack(piece[1])
    return logp, entropy  # type: ignore[return-value]


def relative_distance(x: torch.Tensor, y: torch.Tensor) -> float:
    """Return the relative distance of two tensors."""
    return ((x - y).norm() / y.norm()).item()


def test_every_model_family_equals_the_padded_pass(model: Any) -> None:
    logp, entropy = fixtures_models.padded(model, *RAGGED)
    wanted = fixtures_models.gradient(model, (logp * torch.arange(logp.numel()).view_as(logp).cos()).sum())
    found_logp, found_entropy = packed(model, RAGGED)
    found = fixtures_models.gradient(model, (found_logp * torch.arange(logp.numel()).view_as(logp).cos()).sum())
    torch.testing.assert_close(found_logp, logp, rtol=1e-5, atol=3e-6)
    torch.testing.assert_close(found_entropy, entropy, rtol=1e-5, atol=3e-6)
    assert relative_distance(found, wanted) < 5e-6


@cache
def adapted(family: str) -> Any:
    lm = fixtures_models.adapted(fixtures_models.model(family, temperature=0.8))
    packed_forward.install_attention(causal_model(lm))
    return lm


lengths = st.lists(st.integers(0, 6), min_size=1, max_size=16)


@pytest.mark.parametrize("family", ["Llama", "Qwen2", "GPT2"])
@settings(max_examples=8, deadline=None)
@given(
    groups=st.lists(st.tuples(st.integers(1, 6), lengths), min_size=1, max_size=4), pairs=st.sampled_from([0, 9, 99])
)
def test_any_shape_of_groups(family: str, groups: list[tuple[int, list[int]]], pairs: int) -> None:
    """Groups have 1 to 16 completions of equal or different lengths, down to 0 tokens; few or many kernel calls."""
    with patch.object(linear_layers, "PAIRS", pairs):
        _any_shape_of_groups(adapted(family), groups)


def _any_shape_of_groups(model: Any, groups: list[tuple[int, list[int]]]) -> None:
    groups[0][1][0] = max(1, groups[0][1][0])  # a batch has some token
    rows = fixtures_models.rows(*groups)
    logp, entropy = fixtures_models.padded(model, *rows)
    wanted = fixtures_models.gradient(model, (logp * logp.detach()).sum())
    found_logp, found_entropy = packed(model, rows)
    torch.testing.assert_close((found_logp, found_entropy), (logp, entropy), rtol=1e-5, atol=3e-6)
    assert relative_distance(fixtures_models.gradient(model, (found_logp * logp.detach()).sum()), wanted) < 5e-6


def test_a_budget_cuts_between_trees() -> None:
    whole, pieces = list(layouts(*RAGGED)), list(layouts(*RAGGED, budget=20))
    assert len(whole) == 1
    assert len(pieces) == 3
    assert sum(piece.ids.numel() for piece in pieces) == whole[0].ids.numel()
    torch.testing.assert_close(packed(adapted("Qwen2"), RAGGED, budget=20), packed(adapted("Qwen2"), RAGGED))


def spelled(*sequences: tuple[str, str]) -> Rows:
    """Return a padded batch from prompts and completions in which each letter is a token."""
    pairs = [tuple([ord(letter) - ord("a") + 3 for letter in text] for text in pair) for pair in sequences]
    left, right = (max(len(pair[side]) for pair in pairs) for side in (0, 1))
    ids = [[0] * (left - len(p)) + p + c + [0] * (right - len(c)) for p, c in pairs]
    there = [[0] * (left - len(p)) + [1] * (len(p) + len(c)) + [0] * (right - len(c)) for p, c in pairs]
    return torch.tensor(ids), torch.tensor(there), right


PREFIXES = {
    "equal lengths": spelled(("templateone", "yes"), ("templatetwo", "no"), ("templateone", "y")),
    "unequal lengths": spelled(("templateofmany", "yes"), ("template", "no"), ("templateof", "uvw"), ("tem", "x")),
    "two levels": spelled(*[(f"template{shot}{q}", a) for shot in ("ab", "cd") for q in "xyz" for a in ("u", "vw")]),
    "none": spelled(("one", "yes"), ("two", "no"), ("other", "maybe")),
    "one prompt": spelled(("template", "yes"), ("template", "no"), ("template", "yesno")),
    "equal completions": spelled(("template", "yesyes"), ("template", "yesyes"), ("template", "yesno")),
    "a completion continues a prompt": spelled(("template", "abcd"), ("templateab", "cd"), ("templateabc", "x")),
}
"""Prompts that start with the same tokens."""


@pytest.mark.parametrize("name", PREFIXES)
@pytest.mark.parametrize("min_saved", [1, 8])
@pytest.mark.parametrize("family", ["Llama", "Qwen2", "GPT2", "trained Qwen3"])
def test_prompts_with_a_common_prefix_equal_the_padded_pass(name: str, min_saved: int, family: str) -> None:
    """Values and gradients are compared; GPT-2 counts positions from the padding, so only equal lengths share."""
    lm = fixtures_models.model("Qwen3", temperature=0.8).train() if "trained" in family else adapted(family)
    packed_forward.install_attention(causal_model(lm))
    how = {"relative": family != "GPT2", "min_saved": min_saved}
    logp, entropy = fixtures_models.padded(lm, *PREFIXES[name])
    wanted = fixtures_models.gradient(lm, (logp * logp.detach()).sum())
    found_logp, found_entropy = packed(lm, PREFIXES[name], **how)
    torch.testing.assert_close((found_logp, found_entropy), (logp, entropy), rtol=1e-5, atol=3e-6)
    assert relative_distance(fixtures_models.gradient(lm, (found_logp * logp.detach()).sum()), wanted) < 5e-6


@pytest.mark.parametrize(
    ("name", "relative", "tokens"),
    [
        ("equal lengths", True, len("templateone" + "ye" + "two" + "n")),
        ("equal lengths", False, len("templateone" + "ye" + "two" + "n")),
        ("unequal lengths", True, len("templateofmany" + "ye" + "n" + "uv")),
        ("unequal lengths", False, len("templateofmanyye" + "templaten" + "templateofuv" + "tem")),
        ("two levels", True, len("template" + 2 * "ab" + 6 * "x" + 6 * "v")),
        ("equal completions", True, len("template" + "yesye" + "n")),
        ("a completion continues a prompt", True, len("templateabc")),
    ],
)
def test_a_common_prefix_occurs_once(name: str, relative: bool, tokens: int) -> None:
    (layout,) = layouts(*PREFIXES[name], relative=relative, min_saved=1)
    assert layout.ids.numel() == tokens
    assert len(layout.index) == int(PREFIXES[name][1][:, -PREFIXES[name][2] :].sum())


@pytest.mark.parametrize(("family", "relative"), [("Llama", True), ("Qwen3", True), ("Phi3", True), ("GPT2", False)])
def test_relative_positions_are_detected(family: str, relative: bool) -> None:
    lm = fixtures_models.adapted(fixtures_models.model(family))
    assert packed_forward.prepare(lm, reader(lm), temperature=1.0) == (None, relative)


def test_a_budget_counts_a_common_prefix_once() -> None:
    rows = spelled(*[(f"template{letter}", "abc") for letter in "uvwxyz"])
    sizes = [layout.ids.numel() for layout in layouts(*rows, budget=20)]
    assert sizes == [8 + 4 * 3, 8 + 2 * 3]


def test_inactive_sequences_are_skipped() -> None:
    live = [bool(i % 2) for i in range(len(RAGGED[0]))]
    logp, _ = packed(adapted("Qwen2"), RAGGED, live=live)
    wanted, _ = fixtures_models.padded(adapted("Qwen2"), *RAGGED)
    torch.testing.assert_close(logp, wanted * torch.tensor(live).unsqueeze(1), rtol=1e-5, atol=3e-6)


def test_empty_selection_has_zero_gradients() -> None:
    """Data parallelism requires a gradient of every weight on every process."""
    logp, entropy = packed(adapted("Qwen2"), RAGGED, live=[False] * len(RAGGED[0]))
    assert not logp.any()
    assert not entropy.any()
    assert not fixtures_models.gradient(adapted("Qwen2"), logp.sum()).any()


def test_the_entropy_may_carry_a_gradient() -> None:
    """The reference is the plain formula over all logits, which TRL's head does not differentiate."""
    ids, there, width = RAGGED
    logits = adapted("Qwen2")(input_ids=ids, attention_mask=there, labels=None).logits[:, -width - 1 : -1] / 0.8
    plain = torch.distributions.Categorical(logits=logits).entropy() * there[:, -width:]
    _, found = packed(adapted("Qwen2"), RAGGED, entropy_gradient=True)
    torch.testing.assert_close(found, plain, rtol=1e-5, atol=3e-6)
    wanted = fixtures_models.gradient(adapted("Qwen2"), (plain * plain.detach()).sum())
    assert relative_distance(fixtures_models.gradient(adapted("Qwen2"), (found * plain.detach()).sum()), wanted) < 5e-6


def test_gradient_checkpointing_changes_nothing() -> None:
    lm = fixtures_models.adapted(fixtures_models.model("Llama", temperature=0.8))
    packed_forward.install_attention(causal_model(lm))
    before = fixtures_models.gradient(lm, packed(lm, RAGGED)[0].sum())
    lm.gradient_checkpointing_enable({"use_reentrant": False})
    torch.testing.assert_close(fixtures_models.gradient(lm, packed(lm, RAGGED)[0].sum()), before)


def test_all_weights_may_be_trained() -> None:
    lm = fixtures_models.model("Llama", temperature=0.8).train()
    wanted = fixtures_models.gradient(lm, fixtures_models.padded(lm, *RAGGED)[0].sum())
    packed_forward.install_attention(lm)
    assert relative_distance(fixtures_models.gradient(lm, packed(lm, RAGGED)[0].sum()), wanted) < 5e-6


def test_bf16_is_no_further_from_the_truth_than_the_padded_pass() -> None:
    """Distances are averaged over batches, since a single gradient is rounded by chance."""
    truth, stock, lm = (fixtures_models.adapted(fixtures_models.model("Llama", temperature=0.8)) for _ in range(3))
    stock, lm = stock.to(torch.bfloat16), lm.to(torch.bfloat16)
    packed_forward.install_attention(causal_model(lm))
    errors = [0.0, 0.0]
    for batch in (RAGGED, *PREFIXES.values()):
        wanted = fixtures_models.gradient(truth, fixtures_models.padded(truth, *batch)[0].sum())
        losses = fixtures_models.padded(stock, *batch)[0].sum(), packed(lm, batch, relative=True)[0].sum()
        for arm, (each, loss) in enumerate(zip((stock, lm), losses, strict=True)):
            errors[arm] += relative_distance(fixtures_models.gradient(each, loss).float(), wanted)
    assert errors[1] <= 1.1 * errors[0]


def test_passes_without_a_layout_are_unchanged() -> None:
    lm = fixtures_models.model("Llama")
    before = lm(input_ids=RAGGED[0], attention_mask=RAGGED[1]).logits
    packed_forward.install_attention(lm)
    assert torch.equal(lm(input_ids=RAGGED[0], attention_mask=RAGGED[1]).logits, before)
    packed_forward.uninstall_attention(lm)
    assert not lm.config._attn_implementation.startswith("rlm_")


@pytest.mark.parametrize(
    ("there", "packable"),
    [
        ([0, 1, 1, 1, 1, 0], True),
        ([1, 1, 1, 0, 0, 0], True),
        ([1, 1, 0, 1, 1, 1], False),  # padded between prompt and completion
        ([1, 0, 1, 1, 1, 1], False),
        ([1, 1, 1, 1, 0, 1], False),  # a hole
        ([0, 0, 0, 1, 1, 1], False),  # no prompt
    ],
)
def test_padding_around_a_sequence_is_removed(there: list[int], packable: bool) -> None:
    assert is_packable(torch.tensor([there]), 3) is packable


def reader(lm: Any) -> Any:
    return lambda *rows: fixtures_models.padded(lm, *rows)[0]


@pytest.mark.parametrize("family", fixtures_models.CONFIGS)
def test_known_families_pass_the_self_check(family: str) -> None:
    lm = fixtures_models.adapted(fixtures_models.model(family, temperature=0.8))
    assert packed_forward.prepare(lm, reader(lm), temperature=0.8).reason is None
    assert causal_model(lm).config._attn_implementation == "rlm_sdpa"
    assert packed_forward.prepare(lm, reader(lm), temperature=0.8).reason is None, "a second trainer of the same model"


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("Granite", {"logits_scaling": 2.0}),  # scales its logits
        ("Gemma2", {"final_logit_softcapping": 1.0}),  # bends them
        ("OPT", {"dropout": 0.0, "ffn_dim": 48, "word_embed_proj_dim": 32}),  # counts positions by the mask
    ],
)
def test_model_with_another_result_fails_the_self_check(family: str, changes: dict[str, Any]) -> None:
    lm = fixtures_models.model(family, **changes)
    assert "packed forward pass" in str(packed_forward.prepare(lm, reader(lm), temperature=1.0).reason)
    assert not lm.config._attn_implementation.startswith("rlm_")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (partial(fixtures_models.model, "Llama", attention_dropout=0.1), "dropout is on"),
        (lambda: fixtures_models.adapted(fixtures_models.model("Llama"), lora_dropout=0.1), "dropout is on"),
        (lambda: fixtures_models.adapted(fixtures_models.model("Llama"), target_modules=["lm_head"]), "language head"),
        (partial(fixtures_models.model, "Mamba", num_hidden_layers=2), "without attention"),
        (partial(fixtures_models.model, "Llama", attn_implementation="flex_attention"), "flex_attention"),
    ],
)
def test_unsupported_models_have_a_reason(make: Any, reason: str) -> None:
    lm = make()
    assert reason in str(packed_forward.prepare(lm, reader(lm), temperature=1.0).reason)


def test_flash_attention_gets_each_path_as_a_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the code of transformers, with a kernel in plain PyTorch in place of the one of a GPU."""
    functions = None, fixtures_models.flash_varlen, None, flash._pad_input, flash._unpad_input
    monkeypatch.setattr(flash, "_lazy_imports", lambda *_, **__: functions)
    monkeypatch.setattr(flash, "_loaded_implementation", None)
    function = flash_attention.flash_attention_forward
    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, "flash_attention_2", function)
    lm = fixtures_models.adapted(fixtures_models.model("Qwen3", temperature=0.8))
    causal_model(lm).config._attn_implementation_internal = "flash_attention_2"
    assert packed_forward.prepare(lm, reader(lm), temperature=0.8) == (None, True)
    for rows in (RAGGED, *PREFIXES.values()):
        logp = fixtures_models.padded(lm, *rows)[0]
        wanted = fixtures_models.gradient(lm, (logp * logp.detach()).sum())
        with patch.object(TreeAttention, "__call__", side_effect=AssertionError("attention without the kernel")):
            found = packed(lm, rows, relative=True, min_saved=1)[0]
        torch.testing.assert_close(found, logp, rtol=1e-5, atol=3e-6)
        assert relative_distance(fixtures_models.gradient(lm, (found * logp.detach()).sum()), wanted) < 5e-6


def test_flex_attention_gets_a_block_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without gradient, and not compiled: on a CPU PyTorch has no gradient, and its compiled kernel is wrong."""
    lm = fixtures_models.adapted(fixtures_models.model("Llama", temperature=0.8))
    expected = {name: fixtures_models.padded(lm, *rows)[0].detach() for name, rows in PREFIXES.items()}
    causal_model(lm).set_attn_implementation("flex_attention")
    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, "flex_attention", flex.flex_attention_forward)
    monkeypatch.setattr(flex, "compile_friendly_flex_attention", lambda *x, training, **o: flex_attention(*x, **o))
    packed_forward.install_attention(causal_model(lm))
    for name, rows in PREFIXES.items():
        with torch.no_grad():
            found = packed(lm, rows, relative=True, min_saved=1)[0]
        torch.testing.assert_close(found, expected[name], rtol=1e-5, atol=3e-6)


def test_modified_heads_are_not_fused() -> None:
    """A wrapped forward, as by accelerate for another device, would not be called in the padding-free pass."""
    lm, seen = fixtures_models.model("Llama"), []
    lm.lm_head.forward = lambda x: (seen.append(len(x)), torch.nn.functional.linear(x, lm.lm_head.weight))[1]
    assert "the language head has hooks" in str(packed_forward.prepare(lm, reader(lm), temperature=1.0).reason)
    lm(input_ids=torch.ones(1, 2, dtype=torch.long))
    assert seen == [1]
    watched = fixtures_models.model("Llama")
    watched.lm_head.register_forward_hook(lambda *_: None)
    assert "the language head has hooks" in str(
        packed_forward.prepare(watched, reader(watched), temperature=1.0).reason
    )


def test_virtual_tokens_need_padding() -> None:
    lm = peft.get_peft_model(
        fixtures_models.model("Llama"), peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
    )
    assert "virtual tokens" in str(packed_forward.prepare(lm, reader(lm), temperature=1.0).reason)


def test_modified_attention_scores_are_detected_at_start() -> None:
    """An untrained model has small scores, which a soft cap does not change: no self-check detects it."""
    lm = fixtures_models.model("Gemma2", attn_implementation="eager", final_logit_softcapping=None)
    assert "softcap" in str(packed_forward.prepare(lm, reader(lm), temperature=1.0).reason)
    lm = fixtures_models.model("Gemma2", final_logit_softcapping=None, attn_logit_softcapping=None)
    assert packed_forward.prepare(lm, reader(lm), temperature=1.0).reason is None


def test_custom_attention_mask_is_detected_before_it_applies() -> None:
    """Doge adds a bias to the scores that is initially 0."""
    lm = fixtures_models.model("Doge", attn_implementation="sdpa")
    assert "its own attention mask" in str(packed_forward.prepare(lm, reader(lm), temperature=1.0).reason)


DYNAMIC = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}
BENT = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "llama_4_scaling_beta": 0.1,
    "rope_theta": 1e4,
}


@pytest.mark.parametrize(
    ("family", "changes", "longest"),
    [
        ("Mistral", {"sliding_window": 16}, 16),
        ("Mistral", {"sliding_window": None}, None),
        ("Qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0}, 8),
        ("Qwen2", {}, None),
        ("Llama", {}, None),
        ("Llama", {"rope_parameters": DYNAMIC}, 64),
        ("Llama", {"rope_parameters": fixtures_models.LONG}, 16),
        ("Mistral", {"sliding_window": 12, "rope_parameters": fixtures_models.LONG}, 12),
        ("Llama", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}, None),
        ("Ministral3", {"rope_parameters": BENT}, 16),
    ],
)
def test_attention_window_of_a_token(family: str, changes: dict[str, Any], longest: int | None) -> None:
    assert packed_forward.max_packed_length(fixtures_models.model(family, **changes).config) == longest
