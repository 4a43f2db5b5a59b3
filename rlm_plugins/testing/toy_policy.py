"""The policy that parts on the bench meet: one layer, an adapter, in float64, so that no law fails by rounding."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from jaxtyping import Float

WORDS = 16
"""How many tokens it knows."""
KEPT = 4
"""A law looks at two parts at once."""


class Letters:
    """Its tokenizer, as far as it decodes: a letter per token."""

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        """The text of some tokens."""
        return "".join(chr(ord("a") + token) for token in ids)

    def batch_decode(self, rows: Sequence[Sequence[int]], **_: Any) -> list[str]:
        """The texts of some rows."""
        return [self.decode(row) for row in rows]


@cache
def policy() -> Any:
    """A PEFT model."""
    from peft import LoraConfig, get_peft_model
    from transformers import Qwen3Config, Qwen3ForCausalLM

    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "head_dim": 4}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(vocab_size=WORDS, **sizes, **heads)).double()
    return get_peft_model(model, LoraConfig(r=1, target_modules=["q_proj"], task_type="CAUSAL_LM"))


def introduce(part: Any) -> None:
    """Lets a part meet it; of the adapters that earlier ones have put into it, the last few stay."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        for layer in (module for module in policy().modules() if hasattr(module, "lora_A")):
            for name in [name for name in layer.lora_A if name != "default"][:-KEPT]:
                layer.delete_adapter(name)
        part.setup(policy(), {})


def read(
    prompt_ids: Sequence[Sequence[int]], completion_ids: Sequence[Sequence[int]]
) -> Float[torch.Tensor, "n longest"]:
    """What the word ``read`` of the scoring room does."""
    rows = [[*prompt, *ids] for prompt, ids in zip(prompt_ids, completion_ids, strict=True)]
    width = max(map(len, rows))
    with torch.device("cpu"):
        ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
        logp = policy()(input_ids=ids).logits[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None]).squeeze(2)
        starts = [len(prompt) - 1 for prompt in prompt_ids]
        found = [x[first : first + len(c)] for x, first, c in zip(logp, starts, completion_ids, strict=True)]
        return torch.nn.utils.rnn.pad_sequence(found, batch_first=True)
