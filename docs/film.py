"""Record a command in a terminal as an animated SVG: ``python docs/film.py OUT.svg [--image PAGE.png] -- COMMAND …``.

It requires `pyte`, a terminal emulator. A run of minutes is shown in seconds; the corner has the real time.
"""

from __future__ import annotations

import argparse
import base64
import os
import pty
import select
import sys
import time
from collections.abc import Iterator
from html import escape
from itertools import groupby
from pathlib import Path

import pyte

COLUMNS, ROWS = 92, 24
FRAMES, SECONDS, PAUSE = 40, 12.0, 4.0
"""Most frames, seconds of the recording, and seconds in which its end stays, and the image."""
WIDTH, LINE = 8.4, 18
COLORS = {"red": "#f07178", "green": "#c3e88d", "yellow": "#ffcb6b", "blue": "#82aaff", "brown": "#ffcb6b"}
PLAIN, GROUND = "#d6deeb", "#11151c"

Frame = tuple[float, list[list[tuple[str, str]]]]
"""Seconds since the start, and for each line its runs of one color: (color, text)."""


def record(command: list[str]) -> list[Frame]:
    """Return the screens of a command in a terminal, one for each change, at most ten per second."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    process, terminal = pty.fork()
    if not process:
        os.environ |= {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
        os.execvp(command[0], command)
    start, frames = time.monotonic(), [(0.0, lines(screen))]
    for data in output(terminal):
        stream.feed(data)
        if lines(screen) != frames[-1][1]:
            frames.append((time.monotonic() - start, lines(screen)))
    if os.waitpid(process, 0)[1]:
        raise SystemExit(f"{' '.join(command)} failed:\n" + "\n".join(screen.display))
    return frames


def output(terminal: int) -> Iterator[bytes]:
    """Yield what is written to a terminal, a tenth of a second at a time."""
    while True:
        data, until = b"", time.monotonic() + 0.1
        while (left := until - time.monotonic()) > 0:
            if select.select([terminal], [], [], left)[0]:
                try:
                    part = os.read(terminal, 65536)
                except OSError:  # the command has ended
                    part = b""
                if not part:
                    yield data
                    return
                data += part
        yield data


def lines(screen: pyte.Screen) -> list[list[tuple[str, str]]]:
    """Return the lines of a screen as runs of one color."""
    rows = []
    for number in range(ROWS):
        cells = [screen.buffer[number][column] for column in range(COLUMNS)]
        runs = [(color, "".join(cell.data for cell in run)) for color, run in groupby(cells, key=color_of)]
        while runs and not runs[-1][1].strip():
            runs.pop()
        rows.append(runs)
    return rows


def color_of(cell: pyte.screens.Char) -> str:
    """Return the color of a cell; one of 256 has six hexadecimal digits."""
    is_digits = len(cell.fg) == 6 and set(cell.fg) <= set("0123456789abcdef")
    return f"#{cell.fg}" if is_digits else COLORS.get(cell.fg, PLAIN)


def film(frames: list[Frame], title: str, image: Path | None) -> str:
    """Return frames as an animated SVG that repeats."""
    whole = frames[-1][0]
    chosen = [frames[0]]
    for frame in frames[1:]:  # frames are evenly spaced in time; the last one always stays
        if frame[0] - chosen[-1][0] >= whole / FRAMES or frame is frames[-1]:
            chosen.append(frame)
    starts = [SECONDS * second / whole for second, _ in chosen] + [SECONDS + PAUSE]
    total = SECONDS + PAUSE * (2 if image else 1)
    height = LINE * (ROWS + 2)
    width = int(WIDTH * COLUMNS) + 24
    scenes = [
        scene(number, starts[number], starts[number + 1], total, drawn(frame, width))
        for number, frame in enumerate(chosen)
    ]
    if image:
        data = base64.b64encode(image.read_bytes()).decode()
        picture = f'<image href="data:image/png;base64,{data}" width="{width}" height="{height}"/>'
        scenes.append(scene(len(chosen), SECONDS + PAUSE, total, total, picture))
    # a viewer without animations shows the end
    still = f"#f{len(chosen) - 1}{{visibility:visible}}"
    still += "@media(prefers-reduced-motion:reduce){g{animation:none!important}}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
        f"<title>{escape(title)}</title>"
        f"<style>g{{visibility:hidden}}{still}text{{font:14px monospace;white-space:pre}}</style>"
        f'<rect width="100%" height="100%" rx="8" fill="{GROUND}"/>'
        f'<text x="12" y="{LINE}" fill="{PLAIN}">$ {escape(title)}</text>' + "".join(scenes) + "</svg>"
    )


def scene(number: int, begin: float, end: float, total: float, content: str) -> str:
    """Return a group that is visible from `begin` to `end` of each `total` seconds."""
    first, last = 100 * begin / total, 100 * end / total
    times = f"0%{{visibility:{'visible' if first == 0 else 'hidden'}}}"
    times += f"{first:.2f}%{{visibility:visible}}{last:.2f}%{{visibility:hidden}}"
    style = f"@keyframes f{number}{{{times}}}#f{number}{{animation:f{number} {total}s step-end infinite}}"
    return f'<style>{style}</style><g id="f{number}">{content}</g>'


def drawn(frame: Frame, width: int) -> str:
    """Return the text of a frame, with its time in the corner."""
    second, rows = frame
    texts = [f'<text x="{width - 60}" y="{LINE}" fill="#5c6773">{second:4.0f} s</text>']
    for number, runs in enumerate(rows):
        spans = "".join(f'<tspan fill="{color}">{escape(text)}</tspan>' for color, text in runs)
        texts += [f'<text x="12" y="{LINE * (number + 2)}">{spans}</text>'] if spans else []
    return "".join(texts)


def main(arguments: list[str]) -> int:
    """Record the command and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--image", type=Path, help="shown after the recording")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(arguments)
    frames = record(options.command)
    command = [Path(options.command[0]).name, *options.command[1:]]
    text = film(frames, " ".join(command), options.image)
    options.out.write_text(text, encoding="utf-8")
    print(f"{options.out}: {len(frames)} screens in {frames[-1][0]:.0f} s, {len(text) // 1000} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
