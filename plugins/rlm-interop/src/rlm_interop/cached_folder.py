"""Folders of the cache that one process creates and all reuse."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from rlm_plugins.errors import RlmError


def create_once(folder: Path, create: Callable[[Path], None], message: str) -> Path:
    """Return `folder`, filled by `create` if it does not exist yet.

    `create` fills a temporary folder, which is renamed when it is complete. A process that is killed leaves nothing
    under the final name. Of several processes one creates the folder while the others wait.

    Args:
        folder: A folder of the cache.
        create: Called with an empty folder, which it fills.
        message: Line on standard error before `create` is called, which may take a minute.
    """
    if folder.is_dir():
        return folder
    from filelock import FileLock

    partial = folder.with_name(f"{folder.name}.partial")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f"{folder.name}.lock")):
            if not folder.is_dir():
                shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
                partial.mkdir()
                print(f"{message}, once, into {folder}", file=sys.stderr, flush=True)
                create(partial)
                partial.rename(folder)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        problem = f"the cache cannot be written: {type(error).__name__}: {error}"
        hint = "free some space, or set `RLM_CACHE` to another folder"
        raise RlmError(problem, where=str(folder), hint=hint) from None
    except RlmError:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return folder
