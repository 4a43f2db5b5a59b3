"""Whom `vine` blames: its advantages on sums of five digits, before, at and after the column that went wrong.

    python -m rlm_process.measured runs/steps/01-sft/model --continuations 4

Of the README's table; the model is the supervised start of `recipes/steps.yaml`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch

from rlm_plugins.builtin.environments import addition
from rlm_plugins.builtin.rewards import accuracy
from rlm_plugins.data.addition import Problem
from rlm_process.knobs import Pattern
from rlm_process.steps import cutter
from rlm_process.vine import vine

COLUMNS = Pattern(pattern=";|</think>")
LONGEST = 80


class Writer:
    """The words of the scoring room, by a checkpoint."""

    def __init__(self, path: str) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.tokenizer: Any = AutoTokenizer.from_pretrained(path)
        self.model: Any = AutoModelForCausalLM.from_pretrained(path).eval()

    def write(self, prompts: Sequence[Any], prefixes: Sequence[Sequence[int]] | None = None) -> list[list[int]]:
        """Goes on at temperature 1."""
        chat = {"add_generation_prompt": True, "tokenize": True, "return_dict": True}
        asked = [self.tokenizer.apply_chat_template(prompt, **chat)["input_ids"] for prompt in prompts]
        rows = [[*ids, *start] for ids, start in zip(asked, prefixes or [[]] * len(asked), strict=True)]
        return [row for a in range(0, len(rows), 512) for row in self._written(rows[a : a + 512])]

    def _written(self, rows: list[list[int]]) -> list[list[int]]:
        width, end = max(map(len, rows)), self.tokenizer.eos_token_id
        padded = self.tokenizer.pad({"input_ids": rows}, padding="longest", return_tensors="pt")
        with torch.no_grad():
            said = self.model.generate(**padded, do_sample=True, top_k=0, max_new_tokens=LONGEST)[:, width:].tolist()
        return [row[: row.index(end) + 1] if end in row else row for row in said]

    def score(self, prompts: Sequence[Any], completion_ids: Sequence[Sequence[int]], inputs: Sequence[Any]) -> Any:
        """1 for a right sum."""
        texts = self.tokenizer.batch_decode(completion_ids, skip_special_tokens=True)
        return torch.tensor(accuracy(texts, [row["answer"] for row in inputs]))


def first_wrong(question: str, texts: Sequence[str]) -> int | None:
    """The first column that is not what a careful hand writes.

    >>> first_wrong("47+85=?", ["<think>7+5+0=12;", "4+8+0=12</think>", "<answer>122</answer>"])
    1
    """
    a, b = map(int, re.findall(r"\d+", question))
    right = Problem(a, b).work()[0].split(";")
    said = [re.sub(r"</?think>|;", "", text) for text in texts]
    return next((k for k, pair in enumerate(zip(said, right, strict=False)) if pair[0] != pair[1]), None)


def main() -> None:
    """Four answers to each of 64 held-out sums; prints the mean advantages on the wrong ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--continuations", type=int, default=4)
    said = parser.parse_args()
    torch.manual_seed(0)
    writer, told = Writer(said.model), dict[str, float]()
    inputs = [row for row in list(addition(digits=5).test)[:64] for _ in range(4)]
    prompts = [row["prompt"] for row in inputs]
    rows = writer.write(prompts)
    width, rewards = max(map(len, rows)), writer.score(prompts, rows, inputs)
    mask = torch.tensor([[t < len(row) for t in range(width)] for row in rows])
    paid = torch.zeros(mask.shape)
    paid[torch.arange(len(rows)), mask.sum(1) - 1] = rewards
    group, words = torch.arange(len(rows)) // 4, (writer.write, writer.score, writer.tokenizer, told.__setitem__)
    knobs: Any = {"steps": COLUMNS, "continuations": said.continuations}
    advantages = vine(paid, mask, group, rows, prompts, inputs, *words, **knobs)
    cut = cutter(COLUMNS, writer.tokenizer, where="steps")
    found: dict[str, list[float]] = {"before": [], "at": [], "after": []}
    for row, ids in enumerate(rows):
        spans = list(pairwise((0, *cut(ids))))
        texts = [writer.tokenizer.decode(ids[a:b], skip_special_tokens=True) for a, b in spans]
        wrong = first_wrong(prompts[row][0]["content"], texts)
        if wrong is None or rewards[row]:
            continue
        for k, (start, _) in enumerate(spans):
            place = "at" if k == wrong else "before" if k < wrong else "after"
            found[place].append(advantages[row, start].item())
    print(f"right {rewards.mean():.3f}, asked {told['continuations']:.0f}, shared {told['shared_states']:.2f}")
    for place, x in found.items():
        print(f"{place:<6} the wrong column: mean advantage {sum(x) / len(x):+.3f} over {len(x)} steps")


if __name__ == "__main__":
    main()
