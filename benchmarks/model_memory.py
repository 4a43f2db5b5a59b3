"""What GRPO and PPO take for models of usual sizes, on paper: ``python benchmarks/model_memory.py``.

Nothing is loaded or measured: it is the estimate that `rlm check` prints (`rlm_plugins/commands/estimate.py`), for the
public sizes of Qwen2.5. How far that estimate is from measured bytes stands in ``ppo_memory.md``.

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

from rlm_plugins.commands.estimate import Estimate, Load, estimate
from rlm_plugins.stage import Critic

ROOT = Path(__file__).resolve().parents[1]
GIB = 2**30
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
LOAD = Load(rows=32, prompt=512, completion=1024, micro_rows=4, checkpointing=True, half=True, fused=True)


def config(model: str, four_bit: bool) -> Any:
    """The config of a Qwen2.5, in bfloat16."""
    from transformers import Qwen2Config

    made = Qwen2Config(**SIZES[model], **REST[model])
    made.dtype = "bfloat16"
    if four_bit:
        made.quantization_config = {"load_in_4bit": True}
    return made


def needed(found: Estimate) -> float:
    """GiB a card must have: a tenth more than the peak, and CUDA's context."""
    return 1.1 * found.peak / GIB + 1


def found_for(model: str, four_bit: bool, arm: str, checkpointing: bool) -> Estimate | None:
    """The estimate; None where there is no such thing: four-bit weights cannot be copied and trained."""
    critic = CRITICS[arm]
    if four_bit and critic is not None and critic.kind == "separate":
        return None
    return estimate(config(model, four_bit), LORA, replace(LOAD, checkpointing=checkpointing), critic)


def report() -> str:
    """The text of ``model_memory.md``."""
    return "\n\n".join([_heading(), *(_table(on) for on in (True, False)), _terms("7B")]) + "\n"


def _heading() -> str:
    return (
        "# GRPO and PPO on one card, on paper\n\n"
        "`python benchmarks/model_memory.py`: what `rlm check` estimates for the sizes of Qwen2.5, in GiB. "
        f"Prompts of {LOAD.prompt} tokens, completions of {LOAD.completion}, {LOAD.rows} rows written at once, "
        f"{LOAD.micro_rows} learned from at once; bfloat16 weights (or 4-bit NormalFloat) under autocast, LoRA of rank "
        f"{LORA['r']} on every linear layer, in float32 like its gradients and AdamW's moments; reference: the base with "
        "its adapters off. Not measured on a card; against measured bytes on a CPU see [ppo_memory](ppo_memory.md).\n\n"
        "    peak = always + max(writing, learning, valuing)\n"
        "    always   = base + 16 k + critic      k trained weights: weight, gradient, two moments, 4 bytes each\n"
        "    critic   = 16 (D + 1)                a value head on D hidden units\n"
        "             + 16 k  (shared: a second adapter)  or  + 16 N  (separate: N weights of its own, in float32)\n"
        "    writing  = rows (P + C) · 2 L v b    keys and values of L layers, b = 2 bytes; one layer; probabilities\n"
        "    learning = T a L + logits            T tokens of a micro-batch, a bytes per token and layer "
        "(`commands/block.py`);\n"
        "                                         with checkpointing T (b D L + a)\n"
        "    valuing  = T a L                     the critic's own, once the policy's are gone; same rule\n\n"
        f"**Bold**: fits a card of {CARDS[0]} GiB; plain: one of {CARDS[1]} GiB; ~~struck~~: neither. A card must have 1.1 × "
        "peak + 1 GiB (fragmentation, CUDA's context)."
    )


def _table(checkpointing: bool) -> str:
    lines = [
        f"Gradient checkpointing {'on' if checkpointing else 'off'}:",
        "",
        f"| model | base | {' | '.join(CRITICS)} |",
        f"|---|---|{'--:|' * len(CRITICS)}",
    ]
    for model in SIZES:
        for four_bit in (False, True):
            cells = [_cell(found_for(model, four_bit, arm, checkpointing)) for arm in CRITICS]
            lines.append(f"| {model} | {'4-bit' if four_bit else 'bf16'} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(found: Estimate | None) -> str:
    if found is None:
        return "–"
    told, fits = f"{found.peak / GIB:.1f}", [card for card in CARDS if needed(found) <= card]
    return f"~~{told}~~" if not fits else f"**{told}**" if fits[0] == CARDS[0] else told


def _terms(model: str) -> str:
    arms = [arm for arm in CRITICS if found_for(model, False, arm, True)]
    made = {arm: found_for(model, False, arm, True) for arm in arms}
    lines = [f"{model}, bf16, checkpointing on, term by term:", "", f"| | {' | '.join(arms)} |", f"|---|{'--:|' * len(arms)}"]
    for when in ("always", "writing", "learning", "valuing"):
        names = dict.fromkeys(name for found in made.values() for name in getattr(found, when))
        for name in names:
            held = [getattr(found, when).get(name, 0) for found in made.values()]
            if any(held):
                lines.append(f"| {when}: {name} | {' | '.join(f'{x / GIB:.2f}' if x else '' for x in held)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the page."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/model_memory.md")
    text = report()
    parser.parse_args(arguments).out.write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
