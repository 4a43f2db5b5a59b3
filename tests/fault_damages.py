"""Damages to a file of a checkpoint."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

Damage = Callable[[Path], None]


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def halve(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def zero(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def replace_by_older(file: Path) -> None:
    """Replace a file by that of the previous checkpoint; equal files do no damage."""
    number = int(file.parent.name.split("-")[1])
    shutil.copy(file.parent.with_name(f"checkpoint-{number - 1}") / file.name, file)


def replace_by_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def replace_by_link(file: Path) -> None:
    file.rename(file.parent.parent / f"elsewhere-{file.name}")
    file.symlink_to(file.parent.parent / f"elsewhere-{file.name}")


DAMAGES: dict[str, Damage] = {
    "one bit": flip,
    "half": halve,
    "empty": lambda file: file.write_bytes(b""),
    "missing": Path.unlink,
    "zeros": zero,
    "older": replace_by_older,
    "folder": replace_by_folder,
    "link": replace_by_link,
}


def damaged(stage: Path) -> Iterator[tuple[str, Path, Damage]]:
    """Yield every damage to every file of the last checkpoint that changes it."""
    for file in sorted((stage / "checkpoint-4").iterdir()):
        older = (stage / "checkpoint-3" / file.name).read_bytes()
        for name, damage in DAMAGES.items():
            if name != "older" or older != file.read_bytes():
                yield f"{file.name}: {name}", file, damage
