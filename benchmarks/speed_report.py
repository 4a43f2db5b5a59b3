"""From the numbers of `grpo_speed.py` to its page and README's table; `speed_picture.py` has the picture."""

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
    "U0": (5.0, None), "U25": (9.0, None), "U50": (13.0, None), "U75": (20.0, None),
}  # fmt: skip
"""At least so many times as fast as stock with checkpointing; and, both at their best, without it."""
WRITING = {"B1": 2.0, "B2": 2.4, "B3": 3.3}
"""The same of writing alone."""


def seconds(found: Record, arm: str, *parts: str) -> list[float]:
    """Of an arm in each round, in the parts named (none: in all); rounds without the arm are left out."""
    return [sum(one[arm][part] for part in parts or PARTS) for one in found["rounds"] if arm in one]


def best(found: Record, *arms: str) -> str:
    """The fastest of these arms that was measured in every round; stock with checkpointing where none was."""
    measured = [arm for arm in arms if arm in found["rounds"][-1]]
    return min(measured or [DEFAULT], key=lambda arm: median(seconds(found, arm)))


def tuned(found: Record) -> tuple[str, str]:
    """Stock and ours without checkpointing, each with the better of two micro-batches."""
    return best(found, STOCK, OTHER), best(found, OURS, BUDGET)


def times(found: Record, slow: str, fast: str, *parts: str) -> list[float]:
    """How many times as fast, in each round."""
    pairs = zip(seconds(found, slow, *parts), seconds(found, fast, *parts), strict=False)
    return [one / max(other, 1e-9) for one, other in pairs]


def table(found: Record) -> str:
    """A line per workload."""
    lines = [
        "| | a step | stock | tuned | ours | tuned | × stock | × tuned | of the limit |",
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
    if "memory" in found:
        default, stock, ours, spared = (found["memory"][arm] / MIB for arm in (DEFAULT, STOCK, OURS, SPARED))
        cells = [
            *(f"{x:.0f} MiB" for x in (default, stock, ours)),
            "",
            *(f"1/{x / ours:.1f}" for x in (default, stock)),
        ]
        lines.append(f"| M | peak memory over the loaded model | {' | '.join(cells)} | |")
        lines.append(f"| | with checkpointing on both sides | | | {spared:.0f} MiB | | 1/{default / spared:.1f} | | |")
    return "\n".join(lines)


def lines(found: Record) -> str:
    """What README says."""
    return (
        f"{table(found)}\n\n[All of it](benchmarks/results/grpo_speed.md), with what was equal and where the time goes."
    )


def page(found: Record) -> str:
    """The text of ``grpo_speed.md``."""
    packages = ", ".join(f"{name} {number}" for name, number in found["packages"].items())
    machine = found["machine"]
    pieces = [
        "# Faster, with the same samples",
        "`python benchmarks/grpo_speed.py --full`: seconds of CPU on one thread, float32, LoRA of rank 16; medians "
        "over rounds in one process, arm after arm. Stock is TRL as it comes, with gradient checkpointing; tuned is "
        "TRL without it, at the better of two micro-batches. Ours has every short cut on and no checkpointing; tuned "
        "it may read more rows at once (`speed: {max_tokens_per_micro_batch: auto}`), where that is quicker. "
        "× stock is ours as it "
        "comes, × tuned is both tuned. The limit is what the products alone would take that no exact trainer can leave "
        "out (`speed_limit.py`). "
        f"{packages}; {machine['products'] / 1e9:.0f} GFLOP/s in large products, {machine['thin'] / 1e9:.0f} in thin "
        f"ones, {machine['read'] / 1e9:.0f} GB/s from memory.",
        table(found),
        "## The same samples, the same weights",
        "\n".join(_equality(found)),
        "## Goals",
        "\n".join(_goals(found)),
        "## Where the time goes",
        "\n".join(_parts(found)),
    ]
    return "\n\n".join(pieces) + "\n"


def _equality(found: Record) -> Iterator[str]:
    yield "Every arm of every workload wrote stock's completions. Furthest from stock, relative:\n"
    yield "| | gradient of a step | weights at the end |"
    yield "|---|--:|--:|"
    for name, far in {**found["gate"], **{n: w["distances"] for n, w in found["workloads"].items()}}.items():
        if name != "bf16":
            yield f"| {name} | {far['gradient']:.1e} | {far['weights']:.1e} |"
    half = found["gate"]["bf16"]
    yield f"\nIn bf16 a gradient is {half[STOCK]:.1e} from the truth with stock, {half[OURS]:.1e} with ours."


def _goals(found: Record) -> Iterator[str]:
    for name, work in found["workloads"].items():
        for (stock, ours), goal in zip(((DEFAULT, OURS), tuned(work)), GOALS[name], strict=True):
            if goal is not None:
                yield _goal(f"{name}, {ours}, × {stock}", times(work, stock, ours), goal)
        if name in WRITING:
            yield _goal(f"{name}, writing alone", times(work, DEFAULT, OURS, "writing"), WRITING[name])
        if OFF in work["rounds"][0]:
            yield _goal(f"{name}, all off, × stock", times(work, STOCK, OFF), 0.97)
    if held := found.get("memory"):
        yield _goal("memory, stock over ours, checkpointing on both sides", [held[DEFAULT] / held[SPARED]], 6)
        yield _goal("memory, stock over ours, without it", [held[STOCK] / held[OURS]], 3.5)


def _goal(what: str, found: list[float], goal: float) -> str:
    reached = "reached" if median(found) >= goal else "**not reached**"
    return f"- {what}: {median(found):.2f} ({min(found):.2f}–{max(found):.2f}), goal {goal:g}: {reached}."


def _parts(found: Record) -> Iterator[str]:
    yield "Seconds of a step; *once*: before the first one, when generator and packed pass try the model.\n"
    yield "| | arm | writing | scoring | learning | wall | once | tokens/s | padded | live | forwarded |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    for name, work in found["workloads"].items():
        for arm, positions in work["positions"].items():
            took = [median(seconds(work, arm, part)) / work["steps"] for part in (*PARTS, "wall")]
            pace = work["tokens"] / median(seconds(work, arm))
            once = median(seconds(work, arm, "once"))
            cells = [f"{x:.2f}" for x in (*took, once)] + [f"{pace:.0f}", *(str(x) for x in positions.values())]
            yield f"| {name} | {arm} | {' | '.join(cells)} |"


def into(text: str, said: str) -> str:
    """A text with what is said between its marks.

    Raises:
        ValueError: The text has no marks.
    """
    before, after = text.index(BEGIN) + len(BEGIN), text.index(END)
    return f"{text[:before]}\n{said}\n{text[after:]}"
