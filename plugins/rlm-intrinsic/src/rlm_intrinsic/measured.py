"""How often a *sampled* answer is right on held-out sums: what votes change, where greedy decoding votes already.

python -m rlm_intrinsic.measured runs/recipe/01-sft/model [runs/recipe/02-ttrl/adapter …]
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

from rlm_plugins.builtin.environments import addition
from rlm_plugins.builtin.rewards import accuracy

SAMPLES, LONGEST = 8, 34


def sampled_accuracy(model: str, adapter: str | None = None) -> tuple[float, float]:
    """Mean over the 256 held-out sums of the recipe, 8 answers each at temperature 1; and the standard error of it.

    Args:
        model: Folder of the model.
        adapter: Folder of the adapter on it; None: the model alone.
    """
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
    policy = AutoModelForCausalLM.from_pretrained(model)
    policy = policy if adapter is None else PeftModel.from_pretrained(policy, adapter)
    rows = addition(digits=2, train_rows=1).test
    asked = tokenizer.apply_chat_template(
        [row["prompt"] for row in rows],
        add_generation_prompt=True,
        padding=True,
        return_tensors="pt",
        return_dict=True,
    )
    written = policy.eval().generate(
        **asked, do_sample=True, temperature=1.0, top_k=0, num_return_sequences=SAMPLES, max_new_tokens=LONGEST
    )
    texts = tokenizer.batch_decode(written[:, asked["input_ids"].shape[1] :], skip_special_tokens=True)
    scores = accuracy(texts, [row["answer"] for row in rows for _ in range(SAMPLES)])
    return _mean([sum(map(float, scores[i : i + SAMPLES])) / SAMPLES for i in range(0, len(scores), SAMPLES)])


def _mean(values: Sequence[float]) -> tuple[float, float]:
    mean = sum(values) / len(values)
    spread = sum((x - mean) ** 2 for x in values) / (len(values) - 1)
    return mean, math.sqrt(spread / len(values))


if __name__ == "__main__":
    for folder in (None, *sys.argv[2:]):
        share, error = sampled_accuracy(sys.argv[1], folder)
        print(f"{folder or 'start'}: {100 * share:.1f} % (standard error {100 * error:.1f})")
