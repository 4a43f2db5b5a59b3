"""Process reward models of both kinds: loading, scores per step, aggregation."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from rlm_process.process_model import (
    PRMInput,
    ProcessReward,
    ProcessRewards,
    StepScorer,
    aggregate,
    load_cached,
    model_kind,
    nonblank_texts,
)
from rlm_process.step_boundaries import step_cutter, step_spans
from rlm_testing import conformance
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3ForSequenceClassification,
    Qwen3ForTokenClassification,
)

from rlm_plugins.errors import RecipeError, RlmError

KINDS = {
    "labels": Qwen3ForTokenClassification,
    "words": Qwen3ForCausalLM,
    "whole": Qwen3ForSequenceClassification,
    "one": Qwen3ForTokenClassification,
}
SOLUTION = "1+1=2\n2+2=5\n\n9"


@cache
def tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token per character."""
    vocabulary = {t: i for i, t in enumerate(["<pad>", "<end>", "<unk>", *"0123456789+-=\n abcdefgh?"])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    core.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<end>", unk_token="<unk>")


@cache
def folder(kind: str) -> str:
    """Save a model with large random weights, in float64, so that no contract test fails by rounding."""
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "head_dim": 8}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "num_labels": 1 if kind == "one" else 2}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = KINDS[kind](Qwen3Config(vocab_size=len(tokenizer()), **sizes, **heads))
        for x in model.double().parameters():
            x.data.normal_()
    place = tempfile.mkdtemp()
    model.save_pretrained(place)
    tokenizer().save_pretrained(place)
    return place


def read(kind: str, text: str) -> torch.Tensor:
    """Return the logits of every token of one unpadded text, by transformers."""
    model = KINDS[kind].from_pretrained(folder(kind), dtype="auto").eval()
    return model(input_ids=torch.tensor([tokenizer()(text)["input_ids"]])).logits[0].detach()


LINES = step_cutter("lines", tokenizer(), where="steps")


@pytest.mark.parametrize("kind", ["labels", "words", "one"])
def test_score_is_read_at_the_last_token_of_each_step(kind: str) -> None:
    scorer = StepScorer(*load_cached(folder(kind), "cpu"), separator="\n", words=("+", "-"), longest=60, batch_size=2)
    steps = ["1+1=2\n", "2+2=5\n\n", "9"]
    text = "1+1?" + "1+1=2\n2+2=5\n9\n"
    encode = scorer.encode("1+1?", steps)
    assert scorer.tokenizer.decode(encode.ids) == text
    assert [text[place] for place in encode.places] == ["\n"] * 3
    logits = read(kind, text)[encode.places]
    if kind == "labels":
        expected = logits.softmax(-1)[:, 1]
    elif kind == "one":
        expected = logits[:, 0].sigmoid()
    else:
        good, bad = (logits[:, tokenizer()(word)["input_ids"][0]] for word in "+-")
        expected = (good - bad).sigmoid()
    more = [scorer.encode("2?", ["1"]), PRMInput([5, 6], []), encode]  # read in another company, padded
    actual = scorer.scores([encode, *more])
    assert actual[0] == pytest.approx(expected.tolist(), abs=1e-5)
    assert actual[3] == pytest.approx(actual[0], abs=1e-5)
    assert actual[2] == []
    assert len({round(x, 3) for x in actual[0]}) > 1


def test_steps_beyond_the_limit_score_zero() -> None:
    scorer = StepScorer(
        *load_cached(folder("labels"), "cpu"), separator="\n", words=("+", "-"), longest=8, batch_size=2
    )
    encode = scorer.encode("1+1?", ["1+\n", "2\n", "3\n"])
    assert len(encode.ids) == 7
    short, long = scorer.scores([scorer.encode("1+1?", ["1+\n"]), encode])
    assert long == pytest.approx([*short, 0.0, 0.0])
    assert scorer.scores([scorer.encode("1+1?" * 9, ["1"])]) == [[0.0]]


def test_visible_separator() -> None:
    """White space between steps follows the separator."""
    scorer = StepScorer(
        *load_cached(folder("words"), "cpu"), separator=" a", words=("+", "-"), longest=60, batch_size=2
    )
    encode = scorer.encode("1?", ["1\n\n", "2\n"])
    assert scorer.tokenizer.decode(encode.ids) == "1?1 a\n\n2 a"
    assert [scorer.tokenizer.decode(encode.ids[place]) for place in encode.places] == ["a", "a"]


@pytest.mark.parametrize(("over", "expected"), [("min", 0.25), ("product", 0.1), ("last", 0.8), ("mean", 1.55 / 3)])
def test_aggregation(over: Any, expected: float) -> None:
    assert aggregate([0.5, 0.25, 0.8], over) == pytest.approx(expected)
    assert aggregate([], over) == 0.0


@pytest.mark.parametrize("kind", ["labels", "words"])
def test_reward_and_shaper_agree(kind: str) -> None:
    """Both give the same scores for the same text, independent of the policy's tokenizer."""
    reward = ProcessReward(path=folder(kind), over="product")
    dense = ProcessRewards(path=folder(kind), weight=2.0)
    ids = [[*tokenizer()(text)["input_ids"], 1] for text in (SOLUTION, "5", "")]
    mask = torch.arange(20) < torch.tensor([[len(row)] for row in ids])
    actual = dense(mask, ["1+1?"] * 3, ids, tokenizer()) / 2
    steps, places = nonblank_texts(ids[0], tokenizer(), step_spans(ids, LINES)[0])
    scorer = reward.scorer
    expected = scorer.scores([scorer.encode("1+1?", steps)])[0]
    assert actual[0][places].tolist() == pytest.approx(expected, abs=1e-6)
    assert actual.count_nonzero(1).tolist() == [3, 1, 0]
    scores = reward(["1+1?"] * 3, [SOLUTION, "5", ""])
    assert scores == pytest.approx([actual[0][places].prod().item(), actual[1].sum().item(), 0.0], abs=1e-6)


def test_observations_are_not_scored() -> None:
    """``1+1=2`` of the policy, an observation, ``5`` of the policy: two steps, without the observation."""
    prompt, reply, more = (tokenizer()(text)["input_ids"] for text in ("1+1=2", "?\nabc\n", "5"))
    ids = [[*prompt, *reply, *more]]
    mask = torch.tensor([[True] * len(prompt) + [False] * len(reply) + [True] * len(more)])
    dense = ProcessRewards(path=folder("labels"))
    found = dense(mask, ["1+1?"], ids, tokenizer(), torch.zeros(mask.shape))[0]
    encode = dense.scorer.encode("1+1?", ["1+1=2", "5"])
    places = [len(prompt) - 1, len(ids[0]) - 1]
    assert found[places].tolist() == pytest.approx(dense.scorer.scores([encode])[0], abs=1e-6)
    assert found.count_nonzero() == 2


def test_other_models_are_recipe_errors(tmp_path: Path) -> None:
    assert model_kind(folder("labels")) == "TokenClassification"
    with pytest.raises(RecipeError, match=r"not a process reward model(.|\n)*reward `reward_model`"):
        ProcessReward(path=folder("whole")).check()
    with pytest.raises(RecipeError, match="unreadable model"):
        ProcessReward(path=str(tmp_path)).check()
    with pytest.raises(RecipeError, match="there is no file or folder"):
        ProcessRewards(path=str(tmp_path / "nothing")).check()
    with pytest.raises(RlmError, match="requires two tokens"):
        ProcessReward(path=folder("words"), good="+", bad="+").scorer  # noqa: B018


test_reward = conformance("rlm_rewards", ProcessReward, knobs={"path": folder("words"), "over": "mean", "longest": 64})
test_shaper = conformance("rlm_shapers", ProcessRewards, knobs={"path": folder("labels"), "steps": {"every": 2}})
