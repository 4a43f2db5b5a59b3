"""From the numbers of `ppo_memory.py` to its page."""

from __future__ import annotations

from statistics import median
from typing import Any

Record = dict[str, Any]
MIB = 2**20


def report(found: Record) -> str:
    """The text of ``ppo_memory.md``."""
    return "\n\n".join([_heading(found), _goals(found), _arms(found), _expected(found), _four(found)]) + "\n"


def _heading(found: Record) -> str:
    model, trainer = found["settings"]["model"], found["settings"]["trainer"]
    packages = ", ".join(f"{name} {number}" for name, number in found["packages"].items())
    return (
        "# What PPO costs beside GRPO\n\n"
        f"`python benchmarks/ppo_memory.py`: {model['layers']} layers of {model['hidden']}, a vocabulary of "
        f"{model['vocabulary']}, random float32 weights, LoRA of rank {model['lora']['r']} on every linear layer. A "
        f"step: {trainer['per_device_train_batch_size']} completions of {trainer['max_completion_length']} tokens, "
        "written, read by the reference, valued and learned from once, on one thread of a CPU. Weights, gradients, "
        "optimiser: tensor by tensor. Peak: those, and the most the allocator handed out during the third step, by its "
        "own record; RSS: the most the process held, over what it held before the weights were made. Both in MiB. "
        f"Step: CPU time over GRPO's, at {found['settings']['timed']['max_completion_length']} tokens, median of "
        f"{len(found['rounds']['grpo'])} rounds in one process, arm after arm. "
        f"{packages}."
    )


def _goals(found: Record) -> str:
    lines = []
    for key, words in (("plain", "without"), ("checkpointing", "with")):
        arms = found[key]
        ratio = arms["ppo, shared"]["peak"] / arms["grpo"]["peak"]
        lines.append(f"- Peak of PPO, shared, {words} gradient checkpointing: {ratio:.2f} × GRPO's (goal ≤ 1.30).")
    seconds = _seconds(found)
    ratio = seconds["ppo, shared"] / seconds["ppo, separate"]
    lines.append(f"- A step of PPO, shared: {ratio:.2f} × one of PPO, separate (goal ≤ 1.00).")
    held = {name: sum(terms.values()) for name, terms in found["four models"].items()}
    full, copies, shared = held.values()
    lines.append(
        f"- One base with three adapters: {shared / full:.2f} × four full models (goal ≤ 0.40), "
        f"{shared / copies:.2f} × four copies of the base with the same adapters."
    )
    return "\n".join(lines)


def _seconds(found: Record) -> dict[str, float]:
    """Arm → median over the rounds."""
    return {arm: median(rounds) for arm, rounds in found["rounds"].items()}


def _arms(found: Record) -> str:
    plain, spared, seconds = found["plain"], found["checkpointing"], _seconds(found)
    lines = [
        "| | weights | gradients | optimiser | peak | × | RSS | peak, checkpointing | × | RSS | step |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for arm, x in plain.items():
        cells = [*_mib(x, "parameters", "gradients", "optimiser")]
        for held in (plain, spared):
            cells += [
                *_mib(held[arm], "peak"),
                f"{held[arm]['peak'] / held['grpo']['peak']:.2f}",
                *_mib(held[arm], "rss"),
            ]
        cells.append(f"{seconds[arm] / seconds['grpo']:.2f}")
        lines.append(f"| {arm} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _expected(found: Record) -> str:
    lines = [
        "What `rlm check` says of the same recipes, before any weight is made, over what was measured:",
        "",
        "| | weights | gradients | optimiser | peak | peak, checkpointing |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for arm, x in found["plain"].items():
        ratios = [x["expected"][name] / x[name] for name in ("parameters", "gradients", "optimiser", "peak")]
        spared = found["checkpointing"][arm]
        ratios.append(spared["expected"]["peak"] / spared["peak"])
        lines.append(f"| {arm} | {' | '.join(f'{ratio:.3f}' for ratio in ratios)} |")
    return "\n".join(lines)


def _four(found: Record) -> str:
    lines = [
        "Policy, reference, critic and reward model, held in three ways and stepped once (no activations):",
        "",
        "| | weights | gradients | optimiser | together |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, x in found["four models"].items():
        together = sum(x.values()) / MIB
        lines.append(f"| {name} | {' | '.join(_mib(x, 'parameters', 'gradients', 'optimiser'))} | {together:.0f} |")
    return "\n".join(lines)


def _mib(found: Record, *names: str) -> list[str]:
    return [f"{found[name] / MIB:.1f}" if found[name] < 10 * MIB else f"{found[name] / MIB:.0f}" for name in names]
