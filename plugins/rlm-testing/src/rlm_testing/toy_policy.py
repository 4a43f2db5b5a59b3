"""Toy policy of the conformance kit: one layer with an adapter, in float64, so that no law fails by rounding."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from jaxtyping import Float

VOCAB_SIZE = 16
MAX_ADAPTERS = 4
"""Adapters kept of earlier parts; a law compares two parts."""


class Letters:
    """Tokenizer that decodes each token as a letter."""

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        """Return the text of a sequence."""
        return "".join(chr(ord("a") + token) for token in ids)

    def batch_decode(self, sequences: Sequence[Sequence[int]], **_: Any) -> list[str]:
        """Return the texts of sequences."""
        return [self.decode(ids) for ids in sequences]


@cache
def policy() -> Any:
    """Return the PEFT model."""
    from peft import LoraConfig, get_peft_model
    from transformers import Qwen3Config, Qwen3ForCausalLM

    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "head_dim": 4}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(vocab_size=VOCAB_SIZE, **sizes, **heads)).double()
    return get_peft_model(model, LoraConfig(r=1, target_modules=["q_proj"], task_type="CAUSAL_LM"))


def setup_part(part: Any) -> None:
    """Call the `setup` of a part; adapters of earlier parts are deleted, except the last few."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        for layer in (module for module in policy().modules() if hasattr(module, "lora_A")):
            for name in [name for name in layer.lora_A if name != "default"][:-MAX_ADAPTERS]:
                layer.delete_adapter(name)
        part.setup(policy(), {})


def logprobs_of(
    prompt_ids: Sequence[Sequence[int]], completion_ids: Sequence[Sequence[int]]
) -> Float[torch.Tensor, "n longest"]:
    """Return log-probs as the data `logprobs_of` of the scoring phase does."""
    sequences = [[*prompt, *ids] for prompt, ids in zip(prompt_ids, completion_ids, strict=True)]
    width = max(map(len, sequences))
    with torch.device("cpu"):
        ids = torch.tensor([x + [0] * (width - len(x)) for x in sequences])
        logp = policy()(input_ids=ids).logits[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None]).squeeze(2)
        starts = [len(prompt) - 1 for prompt in prompt_ids]
        per_completion = [x[first : first + len(c)] for x, first, c in zip(logp, starts, completion_ids, strict=True)]
        return torch.nn.utils.rnn.pad_sequence(per_completion, batch_first=True)
