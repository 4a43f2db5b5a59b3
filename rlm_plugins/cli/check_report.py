"""The entries of :mod:`rlm_plugins.cli.check` as text for a terminal."""

from __future__ import annotations

from typing import Any

from rlm_plugins.cli.explain_report import objective
from rlm_plugins.cli.text_layout import columns, short, titled

Entry = dict[str, Any]


def render(stage: Entry) -> str:
    """Return an entry of `check.examine` as text."""
    parts = ((p["slot"], p["name"], f"{p['plugin']} ({p['origin']})", short(p["file"])) for p in stage["parts"])
    data = ((d["name"], f"for {', '.join(d['needed_by'])}", f"from {d['supplied_by']}") for d in stage["data"])
    return (
        stage["name"]
        + titled("model", f"  {stage['model']}")
        + titled("parts", columns(parts))
        + titled("data", columns(data))
        + titled("batch", "\n".join(f"  {line}" for line in stage["batch"]))
        + titled("objective", objective(stage["objective"], stage["legend"]))
        + (titled("speed", "\n".join(f"  {line}" for line in stage["speed"])) if stage["speed"] else "")
        + titled("memory", _memory(stage["memory"]))
        + (titled("warnings", "\n".join(f"  {line}" for line in stage["warnings"])) if stage["warnings"] else "")
    )


def size(count: float) -> str:
    """Return a number of bytes with a binary unit.

    >>> size(3 * 2**30), size(1_500_000), size(12)
    ('3.0 GiB', '1.4 MiB', '12 B')
    """
    for unit, unit_bytes in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= unit_bytes:
            return f"{count / unit_bytes:.1f} {unit}"
    return f"{count:.0f} B"


def _memory(memory: Entry) -> str:
    if "problem" in memory:
        return f"  {memory['problem']}"
    load = memory["load"]
    terms = [
        (when if first else "", name, size(count))
        for when in ("always", "generation", "update", "critic_update")
        for first, (name, count) in _numbered(memory[when])
    ]
    return "\n".join(
        [
            f"  {memory['parameters']:,} parameters, {memory['trained']:,} of them trained",
            f"  prompts up to {load['prompt_len']} tokens, completions up to {load['completion_len']}; "
            f"{load['generated']} completions decoded at once, micro-batches of {load['micro_batch_size']}",
            columns(terms),
            f"  peak: about {size(memory['peak'])} (always + the largest of the other phases); "
            f"this machine has {size(memory['machine'])}",
            *([f"  {memory['decided']}"] if memory["decided"] else []),
        ]
    )


def _numbered(terms: dict[str, int]) -> list[tuple[bool, tuple[str, int]]]:
    """Return the terms that are not zero, the first one marked."""
    nonzero = [(name, count) for name, count in terms.items() if count]
    return [(i == 0, term) for i, term in enumerate(nonzero)]
