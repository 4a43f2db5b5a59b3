"""Process reward models: loading, scores per step, aggregation, training, and use as a reward."""

from __future__ import annotations

import json
import random
import tempfile
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import pytest
import torch
from rlm_algorithms.score_head import with_head
from rlm_process.labelled_steps import UNLABELLED, cross_entropy, pairwise_wins, tokenize_example, tokenize_examples
from rlm_process.process_model import (
    PRMInput,
    PRMTokenizer,
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
from typer.testing import CliRunner

from rlm_plugins.builtin.models import scratch
from rlm_plugins.cli import app
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


RECIPES = Path(__file__).parents[1] / "recipes"
SMALL = ["trainer.per_device_train_batch_size=8"]


def test_tokenize_example():
    """The label is at the line break after its step; steps without label or text have none."""
    tokenizer = scratch(characters="0123456789;\n").tokenizer()
    reader = PRMTokenizer(tokenizer, separator="\n", longest=99)
    row = {"prompt": "1;2", "steps": ["3\n", "\n", "45\n", "6"], "labels": [True, False, None, 0.25]}
    found = tokenize_example(reader, row)
    assert tokenizer.decode(found["input_ids"]) == "1;23\n45\n6\n"
    assert found["targets"] == [*[UNLABELLED] * 4, 1.0, *[UNLABELLED] * 4, 0.25]
    assert tokenize_example(reader, {**row, "labels": [None] * 4}) == {"input_ids": [], "targets": []}


def test_boolean_labels_keep_the_missing_value():
    """A data set keeps a column's type, and −100 as a boolean is true."""
    tokenizer = scratch(characters="0123456789;\n").tokenizer()
    rows = [{"prompt": "1", "steps": ["2", "3"], "labels": [True, False]}, {"prompt": "1", "steps": [], "labels": []}]
    found = tokenize_examples(PRMTokenizer(tokenizer, separator="\n", longest=99), datasets.Dataset.from_list(rows))
    assert found["targets"][:] == [[UNLABELLED, UNLABELLED, 1.0, UNLABELLED, 0.0]]
    assert found.column_names == ["input_ids", "targets"]


def test_the_loss_and_its_gradient():
    """σ(s) − y at each labeled token over their number in the optimizer step, zero elsewhere."""
    logits = torch.tensor([[[0.3], [-1.2], [0.8]]], dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[1.0, UNLABELLED, 0.25]], dtype=torch.float64)
    predicted = torch.tensor([0.3, 0.8], dtype=torch.float64).sigmoid()
    target = labels[0, [0, 2]]
    loss = cross_entropy(SimpleNamespace(logits=logits), labels, 5)
    loss.backward()
    by_hand = -(target * predicted.log() + (1 - target) * (1 - predicted).log()).sum() / 5
    torch.testing.assert_close(loss.double(), by_hand, atol=1e-6, rtol=1e-6)
    slope = (predicted - target) / 5
    expected = torch.stack([slope[0], torch.tensor(0.0), slope[1]])
    torch.testing.assert_close(logits.grad[0, :, 0], expected, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(cross_entropy(SimpleNamespace(logits=logits), labels).double(), by_hand * 5 / 2)


def test_pairwise_wins_compare_equal_positions():
    """The reference compares all pairs; a score that only separates prompts or positions gains nothing."""
    draw = random.Random(0)
    samples: list[dict[str, Any]] = [
        {
            "prompt": draw.choice("ab"),
            "labels": [draw.choice([True, False, None]) for _ in range(3)],
            "scores": [draw.randrange(4) for _ in range(3)],
        }
        for _ in range(20)
    ]
    actual = pairwise_wins(samples)
    for sample, own in zip(samples, actual, strict=True):
        expected = []
        for k in range(3):
            wrong = [x["scores"][k] for x in samples if x["labels"][k] is False and x["prompt"] == sample["prompt"]]
            if sample["labels"][k] is True and wrong:
                score = sample["scores"][k]
                expected.append(sum((score > x) + (score == x) / 2 for x in wrong) / len(wrong))
        assert own == pytest.approx(expected)
    places = [{"prompt": "a", "labels": [True, False], "scores": [0.9, 0.1]}] * 5
    questions = [{"prompt": x, "labels": [x == "a"], "scores": [float(x == "a")]} for x in "abab"]
    assert pairwise_wins([*places]) == [[]] * 5
    assert pairwise_wins(questions) == [[]] * 4


def test_saved_model_gives_the_same_scores(tmp_path: Path):
    """The saved folder gives the same scores by transformers' own class."""
    source = scratch(hidden=32, layers=1, heads=2, intermediate=64)
    tokenizer, judge = source.tokenizer(), with_head(source.load(), "TokenClassification")
    assert not judge.score.weight.any()
    with torch.no_grad():
        judge.score.weight.normal_(generator=torch.Generator().manual_seed(0))
        judge.score.bias.fill_(0.5)
    judge.eval().save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert model_kind(tmp_path) == "TokenClassification"
    how: dict[str, Any] = {"separator": ";", "words": ("+", "-"), "longest": 99, "batch_size": 2}
    before, after = StepScorer(judge, tokenizer, **how), StepScorer(*load_cached(str(tmp_path), "cpu"), **how)
    encode = before.encode("1+2", ["3", "4=5"])
    assert before.scores([encode])[0] == pytest.approx(after.scores([encode])[0], abs=1e-6)
    assert len({round(x, 3) for x in after.scores([encode])[0]}) == 2


def ran(command: str, recipe: Path, *overrides: str) -> str:
    result = CliRunner().invoke(app, [command, str(recipe), *overrides])
    assert result.exit_code == 0, result.output
    return result.output


def log(run: str) -> list[dict[str, Any]]:
    (file,) = Path("runs", run).glob("metrics.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.usefixtures("registered")
def test_label_recipes_run_in_sequence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The recipes of the folder are shortened; each uses the output of the previous one."""
    monkeypatch.chdir(tmp_path)
    tiny = [
        "model.hidden=32",
        "model.layers=1",
        "model.heads=2",
        "environment.train_rows=64",
        "environment.test_rows=2",
    ]
    ran("train", RECIPES / "labels" / "1-start.yaml", "--name", "labels", "trainer.max_steps=2", *tiny)
    few = [*SMALL, "environment.train_rows=64", "environment.test_rows=2"]
    path = "model.path=runs/labels/01-sft/model"
    for recipe in ("lines/2-outcome", "lines/3-share", "lines/4-steps", "labels/5-outcome"):
        ran("check", RECIPES / f"{recipe}.yaml", path, *few)
    once = [f"stages.{k}.algorithm.shapers.0.continuations=1" for k in (0, 1)]
    steps = ["stages.0.trainer.max_steps=2", "stages.1.trainer.max_steps=1"]
    ran("train", RECIPES / "labels" / "2-notes.yaml", "--name", "notes", *steps, *once, *few)
    draw = random.Random(0)
    for split, count, first in (("train", 16, 0), ("test", 8, 4)):
        notes = Path("runs", "labelled", f"{split}.jsonl")
        records = [json.loads(line) for line in notes.read_text().splitlines()]
        assert len(records) == count
        assert all(len(record["completions"]) == len(record["labels"]) for record in records)
        with notes.open("w") as file:  # a policy like this one is never right: a rule that can be learned
            for number in range(4 * count):
                good = [draw.random() < 0.5 for _ in range(3)]
                completions = ["77\n" if x else "33\n" for x in good]
                file.write(
                    json.dumps({"prompt": f"{first + number % 4}", "completions": completions, "labels": good}) + "\n"
                )
    knobs = ["trainer.max_steps=30", "trainer.learning_rate=5e-3"]
    ran("train", RECIPES / "labels" / "3-model.yaml", "--name", "model", *SMALL, *knobs)
    held_out = [line["held_out/pairs"] for line in log("model") if "held_out/pairs" in line]
    assert held_out[0] == 0.5  # a new head has equal scores
    assert held_out[-1] > 0.9
    ran("train", RECIPES / "labels" / "4-graded.yaml", "--name", "graded", "trainer.max_steps=2", *few)
    paid = [line["shapers/reward"] for line in log("graded") if "shapers/reward" in line]
    assert all(0 < x < 20 for x in paid)


@pytest.mark.usefixtures("registered")
def test_lora_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("labels.jsonl").write_text('{"prompt": "1", "steps": ["1"], "labels": [true]}\n')
    Path("recipe.yaml").write_text(
        "environment: {name: dataset, path: labels.jsonl}\n"
        "model: {name: scratch, layers: 1, hidden: 32, heads: 2, lora: {r: 2, target_modules: all-linear}}\n"
        "algorithm: process_reward_model\n"
        "trainer: {max_steps: 1}\n"
    )
    result = CliRunner().invoke(app, ["train", "recipe.yaml"])
    assert result.exit_code != 0
    assert "model.lora" in result.output
