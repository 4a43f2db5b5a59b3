"""The page of `grpo_speed.py` and its sentence in README, from the measurements; `speed_picture.py` has the figure."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

from speed_arms import BUDGET, DEFAULT, OFF, OTHER, OURS, SPARED, STOCK
from speed_meter import PARTS

Record = dict[str, Any]
MIB = 2**20
BEGIN, END = "<!-- speed: written by benchmarks/grpo_speed.py --full -->", "<!-- /speed -->"
GOALS = {
    "B1": (2.8, 2.2), "B1d": (3.8, 3.0), "B2": (3.3, 2.7), "B3": (8.0, 5.5), "B4": (4.0, 3.3),
    "B5": (6.0, None), "B5t": (6.0, None), "U0": (5.0, None), "U25": (9.0, None), "U50": (13.0, None),
    "U75": (20.0, None),
}  # fmt: skip
"""Minimum speed-up over stock TRL with checkpointing, and without it with both sides tuned."""
WRITING = {"B1": 2.0, "B2": 2.4, "B3": 3.3}
"""Minimum speed-up of generation alone."""
LIMIT = {"B5": 0.5, "B5t": 0.5}
"""Minimum share of the limit in the time of a step."""
MEMORY = {"M": (6.0, 3.5), "B5": (3.0, 3.0)}
"""Minimum ratio of peak memory, stock over ours, with checkpointing on both sides and without it."""


def seconds(found: Record, arm: str, *parts: str) -> list[float]:
    """Return the seconds of an arm per round, in the named parts (none: all), for rounds that have the arm."""
    return [sum(one[arm][part] for part in parts or PARTS) for one in found["rounds"] if arm in one]


def best(found: Record, *arms: str) -> str:
    """Return the fastest of these arms that every round has, or stock with checkpointing."""
    measured = [arm for arm in arms if arm in found["rounds"][-1]]
    return min(measured or [DEFAULT], key=lambda arm: median(seconds(found, arm)))


def tuned(found: Record) -> tuple[str, str]:
    """Return stock and ours without checkpointing, each with the better of two micro-batch sizes."""
    return best(found, STOCK, OTHER), best(found, OURS, BUDGET)


def times(found: Record, slow: str, fast: str, *parts: str) -> list[float]:
    """Return the speed-up per round."""
    pairs = zip(seconds(found, slow, *parts), seconds(found, fast, *parts), strict=False)
    return [one / max(other, 1e-9) for one, other in pairs]


def table(found: Record) -> str:
    """Return the table with one line per workload."""
    lines = [
        "| | workload | stock | tuned | ours | tuned | × stock | × tuned | of the limit |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, work in found["workloads"].items():
        stock, ours = tuned(work)
        took = [median(seconds(work, arm)) / work["steps"] for arm in (DEFAULT, stock, OURS, ours)]
        ratios = [median(times(work, *pair)) for pair in ((DEFAULT, OURS), (stock, ours))]
        share = sum(work["least"].values()) / median(seconds(work, OURS))
        cells = [f"{x:.2f} s" for x in took] + [f"**{ratios[0]:.1f}**", f"{ratios[1]:.1f}", f"{share:.0%}"]
        if stock == DEFAULT:
            cells[1] = cells[3] = cells[5] = "–"
        lines.append(f"| {name} | {work['about']} | {' | '.join(cells)} |")
    for workload, held in found["memory"].items():
        default, stock, ours, spared = (held[arm] / MIB for arm in (DEFAULT, STOCK, OURS, SPARED))
        cells = [
            *(f"{x:.0f} MiB" for x in (default, stock, ours)),
            "",
            *(f"1/{x / ours:.1f}" for x in (default, stock)),
        ]
        lines.append(f"| {workload} | peak memory over the loaded model | {' | '.join(cells)} | |")
        lines.append(f"| | with checkpointing on both sides | | | {spared:.0f} MiB | | 1/{default / spared:.1f} | | |")
    return "\n".join(lines)


def lines(records: Record) -> str:
    """Return the sentence of README: speed-ups of the training steps on every processor, and of the memory."""
    works = [work for found in records.values() for name, work in found["workloads"].items() if name.startswith("B")]
    default = [median(times(work, DEFAULT, OURS)) for work in works]
    pairs = [(work, tuned(work)) for work in works]
    best = [median(times(work, *arms)) for work, arms in pairs if DEFAULT not in arms]  # B5t was run with checkpointing
    held = [held[DEFAULT] / held[OURS] for found in records.values() for held in found["memory"].values()]
    shares = " to ".join(f"1/{x:.1f}" for x in sorted({min(held, default=0.0), max(held, default=0.0)}))
    memory = f", and {shares} of its peak memory" if held else ""
    return (
        f"With the same samples, a step takes 1/{min(default):.1f} to 1/{max(default):.1f} of TRL's CPU time{memory}.\n"
        f"Against TRL without gradient checkpointing it takes 1/{min(best):.1f} to 1/{max(best):.1f} "
        "(`make bench-full`, [numbers](benchmarks/results/grpo_speed.md), [method](docs/speed.md))."
    )


def page(records: Record) -> str:
    """Return the text of ``grpo_speed.md``, with a section per processor."""
    pieces = [
        "# Time of a step, with the same samples",
        "`python benchmarks/grpo_speed.py --full`: CPU seconds, on one thread where no other number is given, float32, "
        "LoRA of rank 16; medians over "
        "rounds in one process. *Stock* is TRL with its defaults, which include gradient checkpointing; *tuned* is TRL "
        "without it, with the better of two micro-batch sizes. *Ours* has every optimization and no checkpointing; "
        "*tuned* it may use larger micro-batches (`speed: {max_tokens_per_micro_batch: auto}`). *× stock* compares the "
        "defaults, *× tuned* both tuned. *The limit* is the time of the unavoidable matrix products "
        "(`benchmarks/speed_limit.py`). There is a section per processor.",
    ]
    for found in records.values():
        machine = found["machine"]
        packages = ", ".join(f"{name} {number}" for name, number in found["packages"].items())
        pieces += [
            f"## {machine['name']}",
            f"{machine['date']}; {packages}; {machine['products'] / 1e9:.0f} GFLOP/s in large products, "
            f"{machine['thin'] / 1e9:.0f} in thin ones{_half(machine)}, {machine['read'] / 1e9:.0f} GB/s from memory.",
            table(found),
            "### The same samples, the same weights",
            "\n".join(_equality(found)),
            "### Goals",
            "\n".join(_goals(found)),
            "### Where the time goes",
            "\n".join(_parts(found)),
        ]
    return "\n\n".join(pieces) + "\n"


def _half(machine: Record) -> str:
    """Return the rate of products in bfloat16, if it was measured."""
    return f", {machine['half'] / 1e9:.0f} in bfloat16" if machine.get("half") else ""


def _equality(found: Record) -> Iterator[str]:
    yield "Every arm of every workload generated the completions of stock. Maximum distance from stock, relative:\n"
    yield "| | gradient of a step | weights at the end |"
    yield "|---|--:|--:|"
    for name, far in {**found["gate"], **{n: w["distances"] for n, w in found["workloads"].items()}}.items():
        if name != "bf16":
            yield f"| {name} | {far['gradient']:.1e} | {far['weights']:.1e} |"
    half = found["gate"]["bf16"]
    yield f"\nError of a gradient in bf16, against float32: {half[STOCK]:.1e} with stock, {half[OURS]:.1e} with ours."


def _goals(found: Record) -> Iterator[str]:
    for name, work in found["workloads"].items():
        for (stock, ours), goal in zip(((DEFAULT, OURS), tuned(work)), GOALS[name], strict=True):
            if goal is not None:
                yield _goal(f"{name}, {ours}, × {stock}", times(work, stock, ours), goal)
        if name in WRITING:
            yield _goal(f"{name}, generation alone", times(work, DEFAULT, OURS, "writing"), WRITING[name])
        if name in LIMIT:
            shares = [sum(work["least"].values()) / each for each in seconds(work, OURS)]
            yield _goal(f"{name}, of the limit", shares, LIMIT[name])
        if OFF in work["rounds"][0]:
            yield _goal(f"{name}, all off, × stock", times(work, STOCK, OFF), 0.97)
    for workload, held in found["memory"].items():
        both, without = MEMORY[workload]
        ratios = held[DEFAULT] / held[SPARED], held[STOCK] / held[OURS]
        yield _goal(f"{workload}, memory, stock over ours, checkpointing on both sides", [ratios[0]], both)
        yield _goal(f"{workload}, memory, stock over ours, without it", [ratios[1]], without)


def _goal(what: str, found: list[float], goal: float) -> str:
    reached = "reached" if median(found) >= goal else "**not reached**"
    return f"- {what}: {median(found):.2f} ({min(found):.2f}–{max(found):.2f}), goal {goal:g}: {reached}."


def _parts(found: Record) -> Iterator[str]:
    yield "Seconds of a step; *once*: before the first one, for the self-checks of generator and packed forward pass.\n"
    yield "| | arm | generation | scoring | update | wall | once | tokens/s | padded | live | forwarded |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    for name, work in found["workloads"].items():
        for arm, positions in work["positions"].items():
            took = [median(seconds(work, arm, part)) / work["steps"] for part in (*PARTS, "wall")]
            pace = work["tokens"] / median(seconds(work, arm))
            once = median(seconds(work, arm, "once"))
            cells = [f"{x:.2f}" for x in (*took, once)] + [f"{pace:.0f}", *(str(x) for x in positions.values())]
            yield f"| {name} | {arm} | {' | '.join(cells)} |"


def into(text: str, said: str) -> str:
    """Return a text with new content between its markers.

    Raises:
        ValueError: The text has no markers.
    """
    before, after = text.index(BEGIN) + len(BEGIN), text.index(END)
    return f"{text[:before]}\n{said}\n{text[after:]}"
