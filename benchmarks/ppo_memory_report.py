"""The page ``ppo_memory.md`` from the measurements of `ppo_memory.py`."""

from __future__ import annotations

from statistics import median
from typing import Any

Record = dict[str, Any]
MIB = 2**20


def report(record: Record) -> str:
    """Return the text of ``ppo_memory.md``."""
    return "\n\n".join([_heading(record), _goals(record), _arms(record), _expected(record), _four(record)]) + "\n"


def _heading(record: Record) -> str:
    model, trainer = record["settings"]["model"], record["settings"]["trainer"]
    packages = ", ".join(f"{name} {number}" for name, number in record["packages"].items())
    return (
        "# Memory and time of PPO beside GRPO\n\n"
        f"`python benchmarks/ppo_memory.py`: {model['layers']} layers of {model['hidden']}, a vocabulary of "
        f"{model['vocabulary']}, random float32 weights, LoRA of rank {model['lora']['r']} on every linear layer. A "
        f"step on one CPU thread: generate {trainer['per_device_train_batch_size']} completions of "
        f"{trainer['max_completion_length']} tokens, forward passes of reference and critic, one update. Weights, "
        "gradients, optimizer: tensor by tensor. Peak: those, and the maximum that PyTorch's allocator adds during the "
        "third step. RSS: the maximum of the process, minus that before the weights were created. All in MiB. "
        f"Step: CPU time over GRPO's, at {record['settings']['timed']['max_completion_length']} tokens, median of "
        f"{len(record['rounds']['grpo'])} rounds in one process. "
        f"{packages}."
    )


def _goals(record: Record) -> str:
    lines = []
    for key, words in (("plain", "without"), ("checkpointing", "with")):
        arms = record[key]
        ratio = arms["ppo, shared"]["peak"] / arms["grpo"]["peak"]
        lines.append(f"- Peak of PPO, shared, {words} gradient checkpointing: {ratio:.2f} × GRPO's (goal ≤ 1.30).")
    seconds = _seconds(record)
    ratio = seconds["ppo, shared"] / seconds["ppo, separate"]
    lines.append(f"- A step of PPO, shared: {ratio:.2f} × one of PPO, separate (goal ≤ 1.00).")
    held = {name: sum(terms.values()) for name, terms in record["four models"].items()}
    full, copies, shared = held.values()
    lines.append(
        f"- One base with three adapters: {shared / full:.2f} × four full models (goal ≤ 0.40), "
        f"{shared / copies:.2f} × four copies of the base with the same adapters."
    )
    return "\n".join(lines)


def _seconds(record: Record) -> dict[str, float]:
    """Return arm → median over the rounds."""
    return {arm: median(rounds) for arm, rounds in record["rounds"].items()}


def _arms(record: Record) -> str:
    plain, spared, seconds = record["plain"], record["checkpointing"], _seconds(record)
    lines = [
        "| | weights | gradients | optimizer | peak | × | RSS | peak, checkpointing | × | RSS | step |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for arm, x in plain.items():
        cells = [*_mib(x, "parameters", "gradients", "optimizer")]
        for held in (plain, spared):
            cells += [
                *_mib(held[arm], "peak"),
                f"{held[arm]['peak'] / held['grpo']['peak']:.2f}",
                *_mib(held[arm], "rss"),
            ]
        cells.append(f"{seconds[arm] / seconds['grpo']:.2f}")
        lines.append(f"| {arm} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _expected(record: Record) -> str:
    lines = [
        "The estimate of `rlm check` for the same recipes, before any weight is created, over the measurement:",
        "",
        "| | weights | gradients | optimizer | peak | peak, checkpointing |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for arm, x in record["plain"].items():
        ratios = [x["expected"][name] / x[name] for name in ("parameters", "gradients", "optimizer", "peak")]
        spared = record["checkpointing"][arm]
        ratios.append(spared["expected"]["peak"] / spared["peak"])
        lines.append(f"| {arm} | {' | '.join(f'{ratio:.3f}' for ratio in ratios)} |")
    return "\n".join(lines)


def _four(record: Record) -> str:
    lines = [
        "Policy, reference, critic and reward model in three arrangements, after one step (no activations):",
        "",
        "| | weights | gradients | optimizer | together |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, x in record["four models"].items():
        together = sum(x.values()) / MIB
        lines.append(f"| {name} | {' | '.join(_mib(x, 'parameters', 'gradients', 'optimizer'))} | {together:.0f} |")
    return "\n".join(lines)


def _mib(record: Record, *names: str) -> list[str]:
    return [f"{record[name] / MIB:.1f}" if record[name] < 10 * MIB else f"{record[name] / MIB:.0f}" for name in names]
