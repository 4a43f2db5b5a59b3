"""Credit assignment of `vine`: its advantages on five-digit sums before, at and after the wrong column.

    python benchmarks/step_advantages.py runs/steps/01-sft/model --continuations 4

It prints the README's table; the model is the SFT stage of `plugins/rlm-process/recipes/steps.yaml`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from rlm_process.state_values import vine
from rlm_process.step_boundaries import Pattern, step_cutter

from rlm_plugins.builtin.environments import addition
from rlm_plugins.builtin.rewards import accuracy
from rlm_plugins.data.addition import Problem

COLUMNS = Pattern(pattern=";|</think>")
LONGEST = 80


class SampledPolicy:
    """A checkpoint that provides the data `generate` and `rewards_of` of the scoring phase."""

    def __init__(self, path: str) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.tokenizer: Any = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
        self.model: Any = AutoModelForCausalLM.from_pretrained(path, trust_remote_code=False).eval()

    def generate(self, prompts: Sequence[Any], prefixes: Sequence[Sequence[int]] | None = None) -> list[list[int]]:
        """Generate continuations at temperature 1."""
        chat = {"add_generation_prompt": True, "tokenize": True, "return_dict": True}
        encode = [self.tokenizer.apply_chat_template(prompt, **chat)["input_ids"] for prompt in prompts]
        contexts = [[*ids, *start] for ids, start in zip(encode, prefixes or [[]] * len(encode), strict=True)]
        return [
            context for a in range(0, len(contexts), 512) for context in self._generate_batch(contexts[a : a + 512])
        ]

    def _generate_batch(self, contexts: list[list[int]]) -> list[list[int]]:
        width, end = max(map(len, contexts)), self.tokenizer.eos_token_id
        padded = self.tokenizer.pad({"input_ids": contexts}, padding="longest", return_tensors="pt")
        with torch.no_grad():
            generated = self.model.generate(**padded, do_sample=True, top_k=0, max_new_tokens=LONGEST)[
                :, width:
            ].tolist()
        return [ids[: ids.index(end) + 1] if end in ids else ids for ids in generated]

    def rewards_of(self, prompts: Sequence[Any], completion_ids: Sequence[Sequence[int]], inputs: Sequence[Any]) -> Any:
        """Return 1 for each correct sum, else 0."""
        texts = self.tokenizer.batch_decode(completion_ids, skip_special_tokens=True)
        return torch.tensor(accuracy(texts, [example["answer"] for example in inputs]))


def first_wrong(question: str, texts: Sequence[str]) -> int | None:
    """Return the first column that differs from the correct work; None if all agree.

    >>> first_wrong("47+85=?", ["7+5+0=12;", "4+8+0=12", "<answer>122</answer>"])
    1
    """
    a, b = map(int, re.findall(r"\d+", question))
    expected = Problem(a, b).solve()[0].split(";")
    columns = [re.sub(r"</?think>|;", "", text) for text in texts]
    is_wrong = [column != right for column, right in zip(columns, expected, strict=False)]
    return is_wrong.index(True) if True in is_wrong else None


def main() -> None:
    """Sample four answers to each of 64 held-out sums; print the mean advantages on the wrong ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--continuations", type=int, default=4)
    options = parser.parse_args()
    torch.manual_seed(0)
    policy, logged = SampledPolicy(options.model), dict[str, float]()
    inputs = [example for example in list(addition(digits=5).test)[:64] for _ in range(4)]
    prompts = [example["prompt"] for example in inputs]
    completions = policy.generate(prompts)
    width, rewards = max(map(len, completions)), policy.rewards_of(prompts, completions, inputs)
    mask = torch.tensor([[t < len(ids) for t in range(width)] for ids in completions])
    token_rewards = torch.zeros(mask.shape)
    token_rewards[torch.arange(len(completions)), mask.sum(1) - 1] = rewards
    group = torch.arange(len(completions)) // 4
    functions = (policy.generate, policy.rewards_of, policy.tokenizer, logged.__setitem__)
    knobs: Any = {"steps": COLUMNS, "continuations": options.continuations}
    advantages = vine(token_rewards, mask, group, completions, prompts, inputs, *functions, **knobs)
    cut_steps = step_cutter(COLUMNS, policy.tokenizer, where="steps")
    advantages_at: dict[str, list[float]] = {"before": [], "at": [], "after": []}
    for index, ids in enumerate(completions):
        spans = list(pairwise((0, *cut_steps(ids))))
        texts = [policy.tokenizer.decode(ids[a:b], skip_special_tokens=True) for a, b in spans]
        wrong_column = first_wrong(prompts[index][0]["content"], texts)
        if wrong_column is None or rewards[index]:
            continue
        for k, (start, _) in enumerate(spans):
            position = "before" if k < wrong_column else "after"
            position = "at" if k == wrong_column else position
            advantages_at[position].append(advantages[index, start].item())
    print(f"correct {rewards.mean():.3f}, continuations {logged['continuations']:.0f}", end=", ")
    print(f"shared {logged['shared_states']:.2f}")
    for position, x in advantages_at.items():
        print(f"{position:<6} the wrong column: mean advantage {sum(x) / len(x):+.3f} over {len(x)} steps")


if __name__ == "__main__":
    main()
