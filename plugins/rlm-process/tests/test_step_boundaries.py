"""Step boundaries partition the tokens, and `step_relative` equals an oracle."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from rlm_process import step_relative
from rlm_process.step_boundaries import Every, Pattern, Steps, step_cutter, step_numbers, step_spans, token_texts
from rlm_testing import conformance
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from rlm_plugins.builtin.models import scratch
from rlm_plugins.errors import PartError

TEXTS = st.text(alphabet="ab .;!\n\té語🙂", max_size=24)
RULES = ("lines", "paragraphs", "sentences", Pattern(pattern=";"), Every(every=3))


def trained(pre_tokenizer: Any, decoder: Any, texts: list[str], **sizes: Any) -> Any:
    """Return a BPE tokenizer trained on texts."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer, core.decoder = pre_tokenizer, decoder
    core.train_from_iterator(texts * 20, trainers.BpeTrainer(special_tokens=["<end>"], **sizes))
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<end>")


@cache
def byte_level() -> Any:
    """Return a byte-level tokenizer whose tokens and characters overlap."""
    parts = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    sizes = {"vocab_size": 300, "initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}
    return trained(*parts, ["ab. ab;\n\nab!\n", "語語 a.\n", "ab;ab; ab."], **sizes)


@cache
def with_spaces() -> Any:
    """Return a tokenizer that drops a leading space when it decodes, as SentencePiece does."""
    parts = (part.Metaspace(prepend_scheme="first") for part in (pre_tokenizers, decoders))
    sizes = {"vocab_size": 80, "initial_alphabet": list("ab .;!\n\té語🙂▁")}
    return trained(*parts, ["ab. ab;\n\nab!\n", "ab; ab; ab."], **sizes)


def ids_of(tokenizer: Any, text: str, *, ended: bool = True) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return [*ids, tokenizer.eos_token_id] if ended else ids


def cut(steps: Steps, ids: list[int], tokenizer: Any) -> list[int]:
    return step_cutter(steps, tokenizer, where="steps")(ids)


@pytest.mark.parametrize("tokenizer", [byte_level, with_spaces])
@settings(max_examples=30, deadline=None, derandomize=True)
@given(text=TEXTS, ended=st.booleans(), steps=st.sampled_from(RULES))
def test_steps_partition_the_tokens(tokenizer: Any, text: str, ended: bool, steps: Any):
    words = tokenizer()
    ids = ids_of(words, text, ended=ended)
    texts = token_texts(ids, words)
    assert len(texts) == len(ids)
    assert "".join(texts) == words.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    found = cut(steps, ids, words)
    assert found == sorted(set(found))
    assert (found[-1] == len(ids)) if ids else not found
    if "".join(texts).strip() and not isinstance(steps, Every):
        assert all("".join(texts[a:b]).strip() for a, b in pairwise([0, *found]))


def test_steps_of_a_sum():
    words = scratch().tokenizer()
    ids = ids_of(words, "<think>4+0+0=4;1+5+0=6</think><answer>64</answer>")
    found = cut(Pattern(pattern=";|</think>"), ids, words)
    texts = ["".join(words.convert_ids_to_tokens(ids[a:b])) for a, b in pairwise([0, *found])]
    assert texts == ["<think>4+0+0=4;", "1+5+0=6</think>", "<answer>64</answer><|end|>"]
    by_three = step_cutter(Every(every=3), None, where="steps")
    found = step_numbers(step_spans([ids[:5], ids[:4], []], by_three), torch.ones(3, 5).bool())
    assert found.tolist() == [[0, 0, 0, 1, 1], [0, 0, 0, 1, -1], [-1] * 5]


def test_observations_belong_to_no_step():
    """``a⏎b`` of the policy, ``?⏎`` observed, ``c⏎`` of the policy: b and c are two steps, the observation is none."""
    ids = [1, 0, 2, 9, 0, 3, 0]
    own = torch.tensor([[True, True, True, False, False, True, True], [False] * 7])

    def lines(some: Sequence[int]) -> list[int]:
        return sorted({*(place + 1 for place, token in enumerate(some) if token == 0), len(some)})

    spans = step_spans([ids, []], lines, own)
    assert spans == [[(0, 2), (2, 3), (5, 7)], []]
    assert step_numbers(spans, own).tolist() == [[0, 0, 1, -1, -1, 2, 2], [-1] * 7]
    assert step_spans([ids], lines) == [[(0, 2), (2, 5), (5, 7)]]


def two_thirds(texts: list[str]) -> list[int]:
    return [2 * len(texts) // 3]


def too_far(texts: list[str]) -> list[int]:
    return [len(texts) + 1]


def test_custom_rule():
    words = byte_level()
    ids = ids_of(words, "a b c d e")
    assert cut(f"{__file__}:two_thirds", ids, words) == [2 * len(ids) // 3, len(ids)]
    with pytest.raises(PartError, match="a step ends after"):
        cut(f"{__file__}:too_far", ids, words)


@pytest.mark.parametrize("steps", ["line", "no.such:rule", f"{__file__}:no_such", {"every": 0}, {"pattern": "("}])
def test_unknown_rule_is_a_validation_error(steps: Any):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        TypeAdapter(Steps).validate_python(steps)
    if isinstance(steps, str):
        assert "'lines', 'paragraphs', 'sentences', {pattern: …}, {every: …} or a function" in str(error.value)
        assert str(error.value).count("paragraphs") == 1


test_laws = conformance("rlm_advantages", step_relative, knobs={"steps": {"every": 2}})
test_laws_of_each_alone = conformance(
    "rlm_advantages", step_relative, knobs={"steps": {"every": 2}, "alike": "number", "gamma": 0.0}
)

ROW = st.lists(st.sampled_from([0.0, 1.0, 0.5]), min_size=0, max_size=6)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    rows=st.lists(ROW, min_size=1, max_size=5),
    size=st.integers(1, 3),
    alike=st.sampled_from(["all", "number"]),
    gamma=st.sampled_from([1.0, 0.5, 0.0]),
    scale=st.sampled_from(["group", "none"]),
)
def test_every_step_of_every_row(rows: Any, size: int, alike: Any, gamma: float, scale: str):
    width = max(1, *map(len, rows))
    mask = torch.tensor([[t < len(row) for t in range(width)] for row in rows])
    paid = torch.tensor([[*row, *[0.0] * (width - len(row))] for row in rows], dtype=torch.float64)
    group = [i % 2 for i in range(len(rows))]
    knobs: dict[str, Any] = {"steps": Every(every=size), "alike": alike, "gamma": gamma, "scale": scale}
    actual = step_relative(paid, torch.tensor(group), mask, rows, None, **knobs)
    steps = [[sum(row[a : a + size]) for a in range(0, len(row), size)] for row in rows]

    def relative(i: int, k: int) -> float:
        like = [
            x
            for j, other in enumerate(steps)
            for number, x in enumerate(other)
            if group[j] == group[i] and (alike == "all" or number == k)
        ]
        mean = sum(like) / len(like)
        std = (sum((x - mean) ** 2 for x in like) / max(1, len(like) - 1)) ** 0.5
        by = std + 1e-4 if scale == "group" else 1.0
        return (steps[i][k] - mean) / by if max(like) > min(like) else 0.0

    for i, row in enumerate(rows):
        for t in range(len(row)):
            first = t // size
            expected = sum(gamma ** (k - first) * relative(i, k) for k in range(first, len(steps[i])))
            torch.testing.assert_close(actual[i, t].item(), expected, atol=1e-9, rtol=1e-9)
        assert not actual[i, len(row) :].any()


def test_multi_turn_steps_exclude_observations():
    """Two turns of two tokens with an observation between them: two steps of two tokens, not three."""
    mask = torch.tensor([[True, True, False, True, True]] * 2)
    paid = torch.tensor([[1.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 1.0]])
    rows, two = [[5, 6, 9, 7, 8]] * 2, Every(every=2)
    knobs: dict[str, Any] = {"steps": two, "alike": "number", "gamma": 0.0, "eps": 0.0}
    found = step_relative(paid, torch.tensor([0, 0]), mask, rows, None, torch.zeros(2, 5), **knobs)
    half = 0.5**0.5
    torch.testing.assert_close(found, half * torch.tensor([[1.0, 1.0, 0.0, -1.0, -1.0], [-1.0, -1.0, 0.0, 1.0, 1.0]]))
