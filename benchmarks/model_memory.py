"""Estimated memory of GRPO and PPO for models of common sizes: ``python benchmarks/model_memory.py``.

Nothing is loaded or measured: it is the estimate that `rlm check` prints (`rlm_fast.memory_estimate`), for the public
sizes of Qwen2.5. ``ppo_memory.md`` compares that estimate with measured bytes.

::

    benchmarks/results/model_memory.md   the tables
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlm_fast.memory_estimate import Estimate, Load, estimate

from rlm_plugins.stage import Critic

ROOT = Path(__file__).resolve().parents[1]
GIB = 2**30
PHASES = {"always": "always", "generation": "generation", "update": "update", "critic_update": "critic update"}
"""Field of `Estimate` → its name on the page."""
CARDS = (24, 80)
"""GiB of memory."""
SIZES: dict[str, dict[str, Any]] = {
    "0.5B": {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14},
    "1.5B": {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12},
    "7B": {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28},
}
REST: dict[str, dict[str, Any]] = {
    "0.5B": {"num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True},
    "1.5B": {"num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True},
    "7B": {"num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False},
}
LORA = {"r": 16, "target_modules": "all-linear"}
CRITICS = {
    "GRPO": None,
    "PPO, head": Critic("head"),
    "PPO, shared": Critic("shared", lora=LORA),
    "PPO, separate": Critic("separate"),
}
LOAD = Load(
    generated=32, prompt_len=512, completion_len=1024, micro_batch_size=4, checkpointing=True, half=True, triton=True
)


HEADING = f"""# GRPO and PPO on one card, estimated

`python benchmarks/model_memory.py`: the estimate of `rlm check` for the sizes of Qwen2.5, in GiB. Prompts of
{LOAD.prompt_len} tokens, completions of {LOAD.completion_len}. {LOAD.generated} completions are generated at a time,
and {LOAD.micro_batch_size} are in a micro-batch. Weights are in bfloat16 (or 4-bit NormalFloat) under autocast. LoRA of
rank {LORA["r"]} on every linear layer is in float32, like its gradients and AdamW's moments. The reference is the base
with its adapters off. No GPU was available: [ppo_memory](ppo_memory.md) compares the estimate with bytes measured on
a CPU.

    peak       = always + max(generation, update, critic update)
    always     = base + 16 k + critic          k trained parameters: weight, gradient, two moments, 4 bytes each
    critic     = 16 (D + 1)                    a value head on D hidden units
               + 16 k   shared: a second adapter
               + 16 N   separate: N parameters of its own, in float32
    generation = B (P + C) · 2 L v b           KV cache (v units, b bytes, L layers); one layer; probabilities
    update     = T a L + logits                T tokens of a micro-batch, a bytes per token and layer
                 T b D L + max(logits, T a)    with gradient checkpointing (`rlm_fast.memory_estimate`)
    critic update = the same without logits   of a critic with a trunk, after the policy's activations are freed

**Bold** fits a card of {CARDS[0]} GiB, plain one of {CARDS[1]} GiB, ~~struck~~ neither. A card must have 1.1 × peak +
1 GiB, for fragmentation and CUDA's context. A 4-bit base cannot be copied and trained: –."""


def config(model: str, four_bit: bool) -> Any:
    """Return the config of a Qwen2.5, in bfloat16."""
    from transformers import Qwen2Config

    model_config = Qwen2Config(**SIZES[model], **REST[model])
    model_config.dtype = "bfloat16"
    if four_bit:
        model_config.quantization_config = {"load_in_4bit": True}
    return model_config


def needed(estimate: Estimate) -> float:
    """Return the GiB a card must have: 1.1 × the peak, and CUDA's context."""
    return 1.1 * estimate.peak / GIB + 1


def found_for(model: str, four_bit: bool, arm: str, checkpointing: bool) -> Estimate | None:
    """Return the estimate, or None for a trained copy of 4-bit weights, which is impossible."""
    critic = CRITICS[arm]
    if four_bit and critic is not None and critic.kind == "separate":
        return None
    return estimate(config(model, four_bit), LORA, replace(LOAD, checkpointing=checkpointing), critic)


def report(models: Sequence[str] = tuple(SIZES)) -> str:
    """Return the text of ``model_memory.md``; the last model term by term."""
    return "\n\n".join([HEADING, *(_table(models, on) for on in (True, False)), _terms(models[-1])]) + "\n"


def _table(models: Sequence[str], checkpointing: bool) -> str:
    lines = [
        f"Gradient checkpointing {'on' if checkpointing else 'off'}:",
        "",
        f"| model | base | {' | '.join(CRITICS)} |",
        f"|---|---|{'--:|' * len(CRITICS)}",
    ]
    return "\n".join(
        [*lines, *(line(model, four_bit, checkpointing) for model in models for four_bit in (False, True))]
    )


def line(model: str, four_bit: bool, checkpointing: bool) -> str:
    """Return the table row of a model."""
    cells = [_cell(found_for(model, four_bit, arm, checkpointing)) for arm in CRITICS]
    return f"| {model} | {'4-bit' if four_bit else 'bf16'} | {' | '.join(cells)} |"


def _cell(estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    peak, fits = f"{estimate.peak / GIB:.1f}", [card for card in CARDS if needed(estimate) <= card]
    return f"~~{peak}~~" if not fits else f"**{peak}**" if fits[0] == CARDS[0] else peak


def _terms(model: str) -> str:
    made = {arm: found for arm in CRITICS if (found := found_for(model, False, arm, True)) is not None}
    lines = [
        f"{model}, bf16, checkpointing on, term by term:",
        "",
        f"| | {' | '.join(made)} |",
        f"|---|{'--:|' * len(made)}",
    ]
    for when, title in PHASES.items():
        for name in dict.fromkeys(name for found in made.values() for name in getattr(found, when)):
            held = [getattr(found, when).get(name, 0) for found in made.values()]
            if any(held):
                lines.append(f"| {title}: {name} | {' | '.join(f'{x / GIB:.2f}' if x else '' for x in held)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/model_memory.md")
    text = report()
    parser.parse_args(arguments).out.write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
