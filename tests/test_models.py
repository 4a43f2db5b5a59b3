"""Models: with random weights or from a folder, and an error for everything that can be missing."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from transformers import AutoTokenizer
from trl.chat_template_utils import is_chat_template_prefix_preserving
from trl.data_utils import apply_chat_template

from rlm_plugins.builtin.environments import addition
from rlm_plugins.builtin.models import pretrained, scratch
from rlm_plugins.data.text_lengths import check_texts, check_tokenizer, positions_of, warn_of_long_texts
from rlm_plugins.errors import RecipeError
from rlm_plugins.models.scratch import CHARACTERS, TAGS

SMALL: dict[str, Any] = {"hidden": 16, "layers": 1, "heads": 2, "intermediate": 32}
ROW = addition(train_rows=1, test_rows=0).train[0]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a saved model and tokenizer."""
    folder = tmp_path_factory.mktemp("model")
    source = scratch(**SMALL, seed=3)
    source.load().save_pretrained(folder)
    source.tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def damaged(saved: Path, tmp_path: Path) -> Path:
    """Return a copy of the saved model, from which a test removes files."""
    return Path(shutil.copytree(saved, tmp_path / "damaged"))


@pytest.mark.parametrize("row", addition(train_rows=20, test_rows=0, slip=0.5, min_digits=1, digits=6).train)
def test_prompts_and_demonstrations_round_trip(row: dict[str, Any], saved: Path) -> None:
    for tokenizer in (scratch().tokenizer(), AutoTokenizer.from_pretrained(saved)):
        for text in (row["prompt"][0]["content"], row["demonstration"]):
            ids = tokenizer(text)["input_ids"]
            assert tokenizer.decode(ids) == text
            assert tokenizer.decode(ids, skip_special_tokens=True) == text
            assert tokenizer.unk_token_id not in ids


def test_one_token_per_tag_and_per_character() -> None:
    tokenizer = scratch().tokenizer()
    assert len(tokenizer) == 5 + len(TAGS) + len(CHARACTERS)
    assert tokenizer.tokenize("<think>1  2</think>") == ["<think>", "1", " ", " ", "2", "</think>"]
    assert len(tokenizer("".join(TAGS))["input_ids"]) == len(TAGS)


def test_recipe_sets_the_characters() -> None:
    tokenizer = scratch(characters="ab\nb<>t").tokenizer()
    text = "a\n\nb<t><think>"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert tokenizer.tokenize("<t>") == ["<", "t", ">"]
    assert tokenizer("1")["input_ids"] == [tokenizer.unk_token_id]


def test_a_saved_tokenizer_is_the_same(saved: Path) -> None:
    before, after = scratch().tokenizer(), AutoTokenizer.from_pretrained(saved)
    assert after.get_vocab() == before.get_vocab()
    assert after.chat_template == before.chat_template
    assert (after.pad_token, after.eos_token, after.padding_side) == ("<|pad|>", "<|end|>", "left")
    conversation = [*ROW["prompt"], {"role": "assistant", "content": ROW["demonstration"]}]
    for start in (False, True):
        ids = [t.apply_chat_template(conversation, add_generation_prompt=start)["input_ids"] for t in (before, after)]
        assert ids[0] == ids[1]


def test_the_chat_template_serves_trl() -> None:
    tokenizer = scratch().tokenizer()
    completion = [{"role": "assistant", "content": ROW["demonstration"]}]
    question = ROW["prompt"][0]["content"]
    written = apply_chat_template({"prompt": ROW["prompt"], "completion": completion}, tokenizer)
    assert written["prompt"] == f"<|user|>{question}<|assistant|>"
    assert written["completion"] == f"{ROW['demonstration']}<|end|>"
    assert is_chat_template_prefix_preserving(tokenizer)
    start = tokenizer.apply_chat_template(ROW["prompt"], add_generation_prompt=True)["input_ids"]
    whole = tokenizer.apply_chat_template([*ROW["prompt"], *completion])["input_ids"]
    assert whole[: len(start)] == start
    assert whole[-1] == tokenizer.eos_token_id
    assert whole.count(tokenizer.eos_token_id) == 1


@pytest.mark.parametrize("architecture", ["qwen3", "llama"])
def test_weights_depend_on_the_seed_alone(architecture: Any) -> None:
    first = scratch(**SMALL, architecture=architecture, seed=5)
    torch.manual_seed(1)
    one = first.load().state_dict()
    torch.manual_seed(2)
    two = first.load().state_dict()
    other = scratch(**SMALL, architecture=architecture, seed=6).load().state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not torch.equal(one["lm_head.weight"], other["lm_head.weight"])
    assert {weight.dtype for weight in one.values()} == {torch.float32}


def test_global_rng_is_unchanged() -> None:
    before = torch.get_rng_state()
    scratch(**SMALL).load()
    assert torch.equal(torch.get_rng_state(), before)


def test_the_config_is_the_models() -> None:
    source = scratch(architecture="llama", max_positions=64)
    model = source.load()
    assert model.config.to_dict() == source.config.to_dict()
    assert source.config.model_type == "llama"
    assert source.config.max_position_embeddings == 64
    assert not source.config.tie_word_embeddings
    assert sum(p.numel() for p in scratch().load().parameters()) == 434_176
    assert source.origin == "llama from scratch, 2 layers of 128, seed 0"


def test_scratch_model_generates_and_stops() -> None:
    source = scratch(**SMALL)
    tokenizer, model = source.tokenizer(), source.load()
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert model.generation_config.pad_token_id == tokenizer.pad_token_id
    with torch.no_grad():
        # an end token that outweighs everything else must end the answer at once
        model.lm_head.weight.zero_()
        model.lm_head.weight[tokenizer.eos_token_id] = model.model(torch.tensor([[4]]))[0][0, -1]
    output = model.generate(torch.tensor([[4]]), max_new_tokens=8, do_sample=False)
    assert output.tolist() == [[4, tokenizer.eos_token_id]]


def test_saved_model_round_trips(saved: Path) -> None:
    source = pretrained(path=str(saved))
    before, after = scratch(**SMALL, seed=3).load().state_dict(), source.load().state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert source.config.model_type == "qwen3"
    assert source.origin == str(saved)
    tokenizer = source.tokenizer()
    assert (tokenizer.pad_token, tokenizer.padding_side) == ("<|pad|>", "left")


def test_dtype(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretrained(path=str(saved), dtype="bfloat16").load().save_pretrained(tmp_path)
    for there, auto in ((False, torch.float32), (True, torch.bfloat16)):
        monkeypatch.setattr(torch.accelerator, "is_available", lambda there=there: there)
        assert pretrained(path=str(tmp_path)).load().dtype == auto
        assert pretrained(path=str(tmp_path), dtype="float32").load().dtype == torch.float32
        assert pretrained(path=str(tmp_path), dtype="float16").load().dtype == torch.float16


def _change(file: Path, **values: Any) -> None:
    settings = json.loads(file.read_text())
    file.write_text(json.dumps({k: v for k, v in {**settings, **values}.items() if v is not None}))


def test_a_tokenizer_without_pad_token_pads_with_the_end(damaged: Path) -> None:
    _change(damaged / "tokenizer_config.json", pad_token=None)
    tokenizer = pretrained(path=str(damaged)).tokenizer()
    assert tokenizer.pad_token == tokenizer.eos_token == "<|end|>"


def test_no_such_folder(saved: Path) -> None:
    with pytest.raises(RecipeError, match=r"(?s)model: there is no file or folder .*hint: did you mean 'model"):
        pretrained(path=str(saved.parent / (saved.name + "s")))
    with pytest.raises(RecipeError, match=r"(?s)there is no file or folder '\./nowhere'.*looked in /"):
        pretrained(path="./nowhere")


def test_a_folder_without_model(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"holds no config.json\n  allowed: a folder of save_pretrained"):
        pretrained(path=str(tmp_path))
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(RecipeError, match=r"(?s)holds a LoRA adapter, not a model.*hint: merge"):
        pretrained(path=str(tmp_path))
    with pytest.raises(RecipeError, match=r"got the file '.*adapter_config.json'"):
        pretrained(path=str(tmp_path / "adapter_config.json"))


def loaded(folder: Path) -> None:
    source = pretrained(path=str(folder))
    source.tokenizer(), source.load()


DAMAGES: dict[str, str] = {
    "config.json": "model: the config of .* cannot be loaded: .*qwen99",
    "model.safetensors": r"the model of .* cannot be loaded: .*no file named model.safetensors",
    "chat_template.jinja tokenizer.json tokenizer_config.json": "the "
    "tokenizer of .* has no vocabulary.*hint: save the tokenizer",
    "tokenizer_config.json": r"no end token \(eos_token\): completions would never end\n  hint: set it in",
}
"""Files that are missing, or have another content → words of the error."""


@pytest.mark.parametrize("names", DAMAGES)
def test_a_damaged_folder_is_named(damaged: Path, names: str) -> None:
    if names == "config.json":
        (damaged / names).write_text('{"model_type": "qwen99"}')
    elif names == "tokenizer_config.json":
        _change(damaged / names, eos_token=None)
    else:
        for name in names.split():
            (damaged / name).unlink()
    with pytest.raises(RecipeError, match=f"(?s){DAMAGES[names]}"):
        loaded(damaged)


@pytest.mark.parametrize("change", [-1, 3])
def test_another_vocabulary_than_that_of_the_weights(damaged: Path, change: int) -> None:
    found = json.loads((damaged / "config.json").read_text())["vocab_size"]
    _change(damaged / "config.json", vocab_size=found + change)
    with pytest.raises(RecipeError, match=rf"of shape \({found + change}, .* by config.json, got \({found}, "):
        pretrained(path=str(damaged)).load()


def test_four_bits_without_bitsandbytes(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        RecipeError, match=r"(?s)model.load_in_4bit: `load_in_4bit` requires .*hint: pip install bitsand"
    ):
        pretrained(path=str(saved), load_in_4bit=True)


def test_unreachable_hub_is_reported_with_its_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    with pytest.raises(RecipeError, match=r"(?s)config of 'someone/something'.*hint: .*did not respond within 5 s"):
        pretrained(path="someone/something")


def test_the_offline_switch_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    def never() -> None:
        raise AssertionError("the hub was asked")

    monkeypatch.setattr(huggingface_hub, "get_session", never)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(RecipeError, match="HF_HUB_OFFLINE is set"):
        pretrained(path="someone/something", revision="v1")


def test_a_conversation_needs_a_chat_template() -> None:
    tokenizer = scratch().tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(RecipeError, match=r"no chat template\n  hint: start from an instruct model"):
        check_tokenizer(tokenizer, ROW)
    check_tokenizer(tokenizer, {"prompt": "1+1="})


def test_prompts_longer_than_the_positions_are_refused() -> None:
    source = scratch(**SMALL, max_positions=40)
    rows = [{"prompt": "1+1="}, {"prompt": "1" * 39}]
    check_texts(source.tokenizer(), rows, 40, None, "environment")
    with pytest.raises(RecipeError, match="prompt of held-out example 2 has 40 tokens, and the model has 40 positions"):
        check_texts(source.tokenizer(), [*rows, {"prompt": "1" * 40}], 40, None, "environment", kind="held-out")
    chat = [{"prompt": [{"role": "user", "content": "1" * 40}]}]
    with pytest.raises(RecipeError, match="prompt of training example 0 has 42 tokens"):
        check_texts(source.tokenizer(), chat, positions_of(source.config), None, "environment")
    check_texts(source.tokenizer(), chat, positions_of(scratch(**SMALL, max_positions=43).config), None, "environment")


def test_every_prompt_is_measured_that_may_be_the_longest() -> None:
    """The prompt with the most tokens is not the one with the most characters."""
    tokenizer = scratch(**SMALL, max_positions=40).tokenizer()
    rows = [{"prompt": "<|assistant|>" * 3}] * 100 + [{"prompt": "1" * 39}]
    check_texts(tokenizer, rows, 40, None, "environment")
    with pytest.raises(RecipeError, match="training example 100 has 39 tokens"):
        check_texts(tokenizer, rows, 39, None, "environment")
    with pytest.raises(RecipeError, match="example 100 has 39 tokens, and with a completion of 5 more than the 40"):
        check_texts(tokenizer, rows, 40, 5, "environment", explicit=True)


def test_demonstrations_and_answers_that_cannot_be_written(caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"prompt": "1", "demonstration": "2" * n, "answer": "3"} for n in (4, 8, 20)]
    warn_of_long_texts(scratch(**SMALL).tokenizer(), rows, {"demonstration": 7, "answer": 7}, "environment")
    assert "2 of 3 texts of the column 'demonstration' are longer than 7 tokens" in caplog.text
    assert "the longest has 20" in caplog.text
    assert "'answer'" not in caplog.text


def test_scaled_rotary_embeddings_have_more_positions() -> None:
    config = scratch(**SMALL, max_positions=32).config
    assert positions_of(config) == 32
    config.rope_parameters = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    assert positions_of(config) == 128
