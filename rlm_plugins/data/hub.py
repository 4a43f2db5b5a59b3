"""Local paths and names on the Hugging Face hub; offline mode at once if the hub does not respond."""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path

from rlm_plugins.errors import RecipeError, nearest

PATIENCE = 5.0
"""Timeout in seconds of the connection test. The hub's own clients retry for 20 s per file."""

_NAME = re.compile(r"[\w-][\w.-]*(/[\w.-]+)?")


def locate(path: str, *, where: str, suffixes: tuple[str, ...] = ()) -> Path | None:
    """Return the file or folder of `path` (from the working directory), or None for a name on the hub.

    Args:
        path: The value in the recipe; ``~`` is your home.
        where: Its place in the recipe, for the error.
        suffixes: Suffixes that mark a file.

    Raises:
        RecipeError: It can only be a path, which does not exist.
    """
    local = Path(path).expanduser()
    if local.exists():
        return local
    if _NAME.fullmatch(path) and local.suffix not in suffixes:
        _check_connection()
        return None
    folder = local.parent
    close = nearest(local.name, [p.name for p in folder.iterdir()]) if folder.is_dir() else ""
    raise RecipeError(
        f"there is no file or folder '{path}'", where=where, hint=close or f"looked in {folder.resolve()}"
    )


def advice(local: Path | None) -> str:
    """Return a hint for an error of loading; empty for a local path, whose own error is enough."""
    from huggingface_hub import constants

    if local is not None:
        return ""
    if constants.HF_HUB_OFFLINE:
        return (
            f"no such folder, not in the cache, and {constants.ENDPOINT} is not used (HF_HUB_OFFLINE is set, or it did "
            f"not respond within {PATIENCE:.0f} s): check the connection, or give the path of a local copy. To check "
            "the rest: `rlm check RECIPE model=scratch environment=addition trainer.max_completion_length=256`"
        )
    return "check the spelling; a private or gated name needs `hf auth login`"


def _check_connection() -> None:
    """Set the offline mode of the hub's libraries in this process if the hub does not respond."""
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return
    try:
        get_session().head(constants.ENDPOINT, timeout=PATIENCE)
    except Exception:
        logging.getLogger(__name__).warning("%s does not respond: using the cache", constants.ENDPOINT)
        constants.HF_HUB_OFFLINE = True
        if "datasets" in sys.modules:  # it copied the setting at import
            sys.modules["datasets"].config.HF_HUB_OFFLINE = True
