"""A path or a name on the Hugging Face hub? And the hub, asked once: silent means work from the cache, at once."""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path

from rlm_plugins.errors import RecipeError, nearest

PATIENCE = 5.0
"""Seconds until a hub that does not answer is taken for unreachable. Its own clients retry for 20 s per file."""

_NAME = re.compile(r"[\w-][\w.-]*(/[\w.-]+)?")


def locate(path: str, *, where: str, suffixes: tuple[str, ...] = ()) -> Path | None:
    """The file or folder `path` means (from the working directory), or None: it is a name on the hub.

    Args:
        path: As the recipe has it; ``~`` is your home.
        where: Address in the recipe, for the error.
        suffixes: Endings that only files have.

    Raises:
        RecipeError: It can only be a path, and nothing is there.
    """
    place = Path(path).expanduser()
    if place.exists():
        return place
    if _NAME.fullmatch(path) and place.suffix not in suffixes:
        _ask()
        return None
    folder = place.parent
    close = nearest(place.name, [p.name for p in folder.iterdir()]) if folder.is_dir() else ""
    raise RecipeError(
        f"there is no file or folder '{path}'", where=where, hint=close or f"looked in {folder.resolve()}"
    )


def advice(place: Path | None) -> str:
    """What to do when loading failed: empty for a local path, whose own error says enough."""
    from huggingface_hub import constants

    if place is not None:
        return ""
    if constants.HF_HUB_OFFLINE:
        return (
            f"no such folder here, not in the cache, and {constants.ENDPOINT} was not asked (HF_HUB_OFFLINE is set, or "
            f"it gave no answer in {PATIENCE:.0f} s): check the connection, or give the path of a local copy. To look "
            "at the rest of a recipe: `rlm check RECIPE model=scratch environment=addition`"
        )
    return "check the spelling; a private or gated name needs `hf auth login`"


def _ask() -> None:
    """Puts this process into the libraries' offline mode when the hub does not answer."""
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return
    try:
        get_session().head(constants.ENDPOINT, timeout=PATIENCE)
    except Exception:
        logging.getLogger(__name__).warning("%s does not answer: working from the cache", constants.ENDPOINT)
        constants.HF_HUB_OFFLINE = True
        if "datasets" in sys.modules:  # it has copied the setting when it was imported
            sys.modules["datasets"].config.HF_HUB_OFFLINE = True
