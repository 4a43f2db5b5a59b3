"""`rlm fits`: by the estimate its sizes fit, and the next larger ones do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from rlm_fast import largest_fit
from rlm_fast.largest_fit import GROUPS, LENGTHS, SHARE, Sizes, fits, render, sized
from rlm_fast.workload import Forecast

from rlm_plugins.errors import RlmError
from rlm_plugins.trainer.options import arguments

NAMES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "tie_word_embeddings")
TINY = {"1M": (64, 2, 2, 128, True), "2M": (128, 2, 2, 256, True), "4M": (128, 8, 2, 256, False)}
SMALL = {size: dict(zip(NAMES, numbers, strict=True)) for size, numbers in TINY.items()}
COMMON = {"common": largest_fit.FAMILIES["qwen3"]["common"]}


def next_larger(sizes: Sizes) -> dict[str, Sizes]:
    ladders: dict[str, list[Any]] = {"model": list(SMALL), "length": LENGTHS, "group": GROUPS}
    larger = {}
    for name, values in ladders.items():
        if rest := values[values.index(getattr(sizes, name)) + 1 :]:
            larger[name] = replace(sizes, **{name: rest[0]})
    return larger


def test_it_inverts_the_estimate_of_check(monkeypatch: pytest.MonkeyPatch) -> None:
    card = 1.0
    monkeypatch.setattr(largest_fit, "FAMILIES", {"qwen3": COMMON | SMALL})
    (row,) = fits(["grpo"], card, prompt=32, group=8, length=256)
    limit = SHARE * card * 2**30
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)  # `rlm check` on a machine with a GPU

    def checked(mode: str, sizes: Sizes) -> int:
        stage = sized(largest_fit._stage("grpo", mode, 32), mode == "4-bit", sizes)
        return Forecast(stage, arguments(stage)).memory.peak

    for mode in largest_fit.MODES:
        peak = row[mode].pop("peak")
        sizes = Sizes(**row[mode])
        assert checked(mode, sizes) == peak <= limit
        larger = next_larger(sizes)
        assert all(checked(mode, other) > limit for name, other in larger.items() if name != "model")
        if "model" in larger:  # with the shortest completions and the smallest group
            assert checked(mode, replace(larger["model"], group=8, length=256)) > limit


def test_a_card_that_is_too_small_and_a_name_that_is_unknown() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(largest_fit, "FAMILIES", {"qwen3": COMMON | {"1M": SMALL["1M"]}})
        (row,) = fits(["grpo"], 0.05, prompt=32, group=8, length=512)
    assert row["full"] is None
    assert "the smallest model requires" in row["notes"]["full"]
    assert max(map(len, render([row], 0.05, 60).splitlines())) <= 60
    with pytest.raises(RlmError, match="grpoo"):
        fits(["grpoo"], 24.0, prompt=32, group=8, length=512)
