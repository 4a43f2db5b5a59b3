"""Damages to a file of a checkpoint."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from rlm_plugins.durable.files import CHECKSUMS

Damage = Callable[[Path], None]
BLOCK = 512


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


def swap(one: Path, other: Path) -> None:
    """Replace each of two files or folders by the other."""
    one.rename(aside := one.with_name("aside"))
    other.rename(one)
    aside.rename(other)


def replace_by_other_bytes(file: Path) -> None:
    """Replace a file by random bytes of its size, as those of another run would be."""
    file.write_bytes(random.Random(file.name).randbytes(file.stat().st_size))


def cut_at_a_block(file: Path) -> None:
    """Keep the whole blocks before the last one, as a file system does after a power failure."""
    os.truncate(file, (file.stat().st_size - 1) // BLOCK * BLOCK)


def forge(file: Path) -> None:
    """Damage a file, and write its new size, but not its new checksum, into the list of checksums."""
    file.write_bytes(file.read_bytes() + b"\n")
    listed = json.loads((file.parent / CHECKSUMS).read_bytes())
    listed["files"].setdefault(file.name, {"sha256": ""})["size"] = file.stat().st_size
    (file.parent / CHECKSUMS).write_text(json.dumps(listed))


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
MORE: dict[str, Damage] = {
    "other bytes": replace_by_other_bytes,
    "whole blocks": cut_at_a_block,
    "longer": lambda file: file.write_bytes(file.read_bytes() + b"\0"),
    "upper case": lambda file: file.rename(file.with_name(file.name.upper())),
    "renamed": lambda file: file.rename(file.with_name(f"{file.name}.bak")),
    "its checksum edited": forge,
}
"""Damages whose name is checked; a run that was damaged in one of the other ways is also resumed."""


def damaged(stage: Path, kinds: Mapping[str, Damage] = DAMAGES) -> Iterator[tuple[str, Path, Damage]]:
    """Yield every damage to every file of the last checkpoint that changes it."""
    for file in sorted((stage / "checkpoint-4").iterdir()):
        older = (stage / "checkpoint-3" / file.name).read_bytes()
        for name, damage in kinds.items():
            if name != "older" or older != file.read_bytes():
                yield f"{file.name}: {name}", file, damage
