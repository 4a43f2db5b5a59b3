"""Three results in one picture for the README: ``python benchmarks/effects_picture.py`` writes docs/effects.svg.

It reads the curves that the experiments stored in benchmarks/results/effects; an error bar is the last 95 % interval.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STORED, PICTURE = ROOT / "benchmarks/results/effects", ROOT / "docs/effects.svg"
WIDTH, HEIGHT, LEFT, TOP, PANEL = 300, 130, 34, 46, 310
STYLE = (
    "text{font:11px sans-serif;fill:#444}.t{font-weight:bold;font-size:12px}.a{stroke:#888;fill:none}"
    ".l{fill:none;stroke-width:2}.c0{stroke:#d9622b}.c1{stroke:#3b82c4}.c2{stroke:#7a9a2e}"
    "text.c0{fill:#d9622b;stroke:none}text.c1{fill:#3b82c4;stroke:none}text.c2{fill:#7a9a2e;stroke:none}"
    "@media(prefers-color-scheme:dark){text{fill:#ccc}}"
)


@dataclass(frozen=True)
class Panel:
    """A panel: its title, what its axis shows and up to which value, and lines (label, experiment, arm, measure)."""

    title: str
    axis: str
    top: float
    lines: tuple[tuple[str, str, str, str], ...]


PANELS = (
    Panel(
        "GRPO makes wrong answers longer",
        "tokens after a wrong answer",
        44,
        (("GRPO", "length_bias", "GRPO", "wrong"), ("Dr. GRPO", "length_bias", "Dr. GRPO", "wrong")),
    ),
    Panel(
        "A monitor in the reward hides the cheat",
        "share",
        1,
        (
            ("completions that cheat", "monitoring", "outcome − 1 for the thought", "cheats"),
            ("cheats that the thought announces", "monitoring", "outcome − 1 for the thought", "seen"),
        ),
    ),
    Panel(
        "A soft length penalty halves the accuracy",
        "accuracy, where answers may exceed the limit",
        0.8,
        (
            ("no limit", "overlong", "limit 64", "accuracy"),
            ("limit, cut answers masked", "overlong", "limit 16, filter", "accuracy"),
            ("limit, soft penalty", "overlong", "limit 16, soft penalty", "accuracy"),
        ),
    ),
)


def stored(experiment: str, arm: str, measure: str) -> tuple[list[float], float]:
    """Return the mean curve of an arm over ten seeds, and the half-width of its last interval."""
    for line in (STORED / f"{experiment}.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record["arm"] == arm:
            return record["mean"][measure], record["half"][measure]
    raise LookupError(f"{experiment}.jsonl has no arm {arm!r}")


def panel(number: int, content: Panel) -> list[str]:
    """Return the elements of a panel."""
    x, height, width = LEFT + number * PANEL, HEIGHT, WIDTH - 60
    y = {value: TOP + height * (1 - value / content.top) for value in (0, content.top / 2, content.top)}
    parts = [f'<text class="t" x="{x - 24}" y="14">{content.title}</text>']
    parts.append(f'<text x="{x - 24}" y="31">{content.axis}, by step</text>')
    parts.append(f'<path class="a" d="M{x} {TOP}V{TOP + height}H{x + width}"/>')
    parts += [f'<text x="{x - 5}" y="{at + 4:.0f}" text-anchor="end">{value:g}</text>' for value, at in y.items()]
    digits = 0 if content.top > 1 else 2
    for color, (label, *where) in enumerate(content.lines):
        curve, half = stored(*where)
        at = [TOP + height * (1 - value / content.top) for value in curve]
        step = width / (len(curve) - 1)
        points = " ".join(f"{x + n * step:.1f},{value:.1f}" for n, value in enumerate(at))
        parts.append(f'<polyline class="l c{color}" points="{points}"/>')
        bar = half / content.top * height
        parts.append(f'<path class="l c{color}" d="M{x + width} {at[-1] - bar:.1f}V{at[-1] + bar:.1f}"/>')
        text, below = f"{label}: {curve[-1]:.{digits}f}", TOP + height + 18 + 14 * color
        parts.append(f'<text class="c{color}" x="{x + 8}" y="{below}">{text}</text>')
    return parts


def main() -> None:
    """Write the picture."""
    size = f"{PANEL * len(PANELS)} {TOP + HEIGHT + 56}"
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}"><style>{STYLE}</style>']
    for number, content in enumerate(PANELS):
        parts += panel(number, content)
    PICTURE.write_text("\n".join([*parts, "</svg>\n"]), encoding="utf-8")


if __name__ == "__main__":
    main()
