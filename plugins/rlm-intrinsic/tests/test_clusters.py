"""Clusters: contract, shares by hand, entropy bounds, and a real encoder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from rlm_intrinsic import SemanticClusters
from rlm_intrinsic.embeddings import SentenceClusters
from rlm_testing import conformance

from rlm_plugins.errors import PartError, RecipeError

test_cluster_laws = conformance("rlm_rewards", SemanticClusters, columns={"completions": ["4", "4.0", "5", ""]})


def parity(texts: Sequence[str]) -> list[int]:
    return [int(text) % 2 for text in texts]


def short(texts: Sequence[str]) -> list[int]:
    return [0]


def test_score_is_the_share_of_the_cluster() -> None:
    scores = SemanticClusters()(["q"] * 5, ["6", "6.0", "12/2", "5", ""])
    assert scores == [0.6, 0.6, 0.6, 0.2, 0.0]  # of all completions, also the empty one


def test_groups_without_agreement_score_zero() -> None:
    assert SemanticClusters()(["q"] * 3, ["1", "2", "3"]) == [0.0, 0.0, 0.0]
    assert SemanticClusters()(["q"] * 3, ["1", "2", ""]) == pytest.approx([1 / 3, 1 / 3, 0.0])  # log 2 < log 3


def test_the_entropy_may_be_bounded_on_both_sides() -> None:
    sure, split = ["1", "1", "1", "1"], ["1", "1", "2", "2"]
    assert SemanticClusters(lowest=0.1)(["q"] * 4, sure) == [0.0] * 4
    assert SemanticClusters(lowest=0.5)(["q"] * 4, split) == [0.5] * 4  # log 2 is half of log 4
    assert SemanticClusters(highest=0.5)(["q"] * 4, split) == [0.0] * 4


def test_custom_clustering_function() -> None:
    by = SemanticClusters(by=f"{__file__}:parity")
    assert by(["q"] * 4, ["1", "3", "5", "2"]) == [0.75, 0.75, 0.75, 0.25]
    with pytest.raises(PartError, match="expected 2 labels, got 1"):
        SemanticClusters(by=f"{__file__}:short")(["q"] * 2, ["1", "2"])
    with pytest.raises(RecipeError, match=r"semantic_clusters\.by"):
        SemanticClusters(by="exakt")


def test_clusters_from_an_encoder(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = {word: place for place, word in enumerate(["[PAD]", "[UNK]", "red", "blue", "car"])}
    spelling = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    spelling.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=spelling, pad_token="[PAD]").save_pretrained(tmp_path)
    torch.manual_seed(0)
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=5, **size)).save_pretrained(tmp_path)
    texts = ["red car", "blue", "red  car", "blue car red"]
    labels = SentenceClusters(str(tmp_path), similarity=0.9999, batch_size=2)(texts)
    assert labels[0] == labels[2]  # other text, same tokens; and padded differently
    assert len({labels[0], labels[1], labels[3]}) == 3
    assert len(set(SentenceClusters(str(tmp_path), similarity=-1.0)(texts))) == 1
