"""Local paths and names on the Hugging Face hub, and the loading of one split of a data set from either."""

from __future__ import annotations

import csv
import json
import logging
import re
import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlm_plugins.errors import RecipeError, nearest, nearest_file
from rlm_plugins.lazy import datasets

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset


PATIENCE = 5.0
"""Timeout in seconds of the connection test. The hub's own clients retry for 20 s per file."""

_NAME = re.compile(r"[\w-][\w.-]*(/[\w.-]+)?")


def locate(path: str, *, where: str, suffixes: tuple[str, ...] = ()) -> Path | None:
    """Return the file or folder of `path` (from the working directory), or None for a name on the hub.

    Raises:
        RecipeError: It can only be a path, which does not exist or is a pipe, socket or device.
    """
    if (local := Path(path).expanduser()).exists():
        if not (local.is_file() or local.is_dir()):  # reading it might wait for ever
            raise RecipeError(f"expected a file or folder, got the pipe, socket or device '{path}'", where=where)
        return local
    if _NAME.fullmatch(path) and local.suffix not in suffixes:
        _check_connection()
        return None
    hint = nearest_file(local) or f"looked in {local.parent.resolve()}"
    raise RecipeError(f"there is no file or folder '{path}'", where=where, hint=hint)


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


READERS: dict[str, dict[str, str]] = {
    **{suffix: {"path": "json"} for suffix in (".json", ".jsonl", ".ndjson")},
    ".csv": {"path": "csv"},
    ".tsv": {"path": "csv", "sep": "\t"},
    ".parquet": {"path": "parquet"},
}
"""File suffix → arguments of `datasets.load_dataset`."""

WHERE = "environment.path"


def open_split(
    path: str, split: str, *, config: str | None = None, revision: str | None = None, streaming: bool = False
) -> Dataset | IterableDataset:
    """Load the examples of one split.

    Args:
        path: A file (a suffix of `READERS`), a folder of such files, a folder of ``save_to_disk``, or a name on
            the hub.
        split: Name of the split; a single file has only ``train``. Slices (``train[:5%]``) work where `datasets`
            reads the files itself.
        config: Name of the configuration, where a data set has several.
        revision: Commit, tag or branch on the hub.
        streaming: Read examples on demand instead of storing the split first.

    Raises:
        RecipeError: The data set does not exist, cannot be read, or has no such split.
    """
    local = locate(path, where=WHERE, suffixes=tuple(READERS))
    if local is not None and revision is not None:
        raise RecipeError(f"'{path}' is a local path, which has no revisions", where="environment.revision")
    try:
        if local is not None and any((local / name).is_file() for name in ("state.json", "dataset_dict.json")):
            return _saved(local, split, streaming)
        return _load(path, local, split=split, name=config, revision=revision, streaming=streaming)
    except RecipeError:
        raise
    except Exception as error:
        is_lines = local is not None and local.suffix in (".jsonl", ".ndjson")
        reason = (_broken_line(local) if local is not None and is_lines else "") or _reason(error)
        raise RecipeError(f"'{path}' cannot be read: {reason}", where=WHERE, hint=advice(local)) from None


def _load(path: str, local: Path | None, **settings: Any) -> Dataset | IterableDataset:
    if local is None:
        return datasets.load_dataset(path, **settings)
    # otherwise each load, of local files too, is reported to the hub, and waits for it
    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False
    if local.is_dir():
        _check_inside(local, datasets.load_dataset_builder(str(local), settings["name"]).config.data_files or {})
        return datasets.load_dataset(str(local), **settings)
    suffix = next((s for s in reversed(local.suffixes) if s not in (".gz", ".bz2", ".xz", ".zst")), "")
    if suffix not in READERS:
        raise RecipeError(f"unsupported file suffix '{suffix}' of '{path}'", where=WHERE, allowed=", ".join(READERS))
    if settings["name"] is not None:
        raise RecipeError(f"'{path}' is a single file, which has no configs", where="environment.config")
    logging.getLogger("datasets.packaged_modules").setLevel(logging.CRITICAL)  # the error below names the line
    reader = {**READERS[suffix], **({"sep": _delimiter(local)} if suffix == local.suffix == ".csv" else {})}
    rows = datasets.load_dataset(**reader, data_files=str(local), **settings)
    if isinstance(rows, datasets.Dataset):
        rows.data.validate(full=True)  # readers accept text that is not UTF-8, which fails when a row is used
    return rows


def _check_inside(folder: Path, files: Mapping[str, Sequence[str]]) -> None:
    """Raise RecipeError if the README or a link of a folder adds a file of another one; a hub snapshot has links."""
    roots = [folder.resolve(), folder.resolve().parent.parent / "blobs"]
    for file in (Path(name).resolve() for group in files.values() for name in group):
        if not any(map(file.is_relative_to, roots)):
            problem = f"'{folder}' has a file outside of it: {file}"
            raise RecipeError(problem, where=WHERE, hint="move it into the folder")


def _saved(local: Path, split: str, streaming: bool) -> Dataset | IterableDataset:
    saved = datasets.load_from_disk(str(local))
    splits = saved if isinstance(saved, datasets.DatasetDict) else {"train": saved}
    if split not in splits:
        problem, hint = f"'{local}' has no split '{split}'", nearest(split, splits)
        raise RecipeError(problem, where="environment.split", allowed=", ".join(splits), hint=hint)
    return splits[split].to_iterable_dataset() if streaming else splits[split]


def _reason(error: Exception) -> str:
    if isinstance(error, StopIteration) or "corresponds to no data" in str(error):
        return "it has no examples"
    root = error.__cause__ if type(error).__name__ == "DatasetGenerationError" and error.__cause__ else error
    return " ".join(str(root).split()) or type(root).__name__


def row_address(path: str, number: int) -> str:
    """Return the address of a row for errors: its number, counted from 0, and its line in a file of text."""
    where = f"environment.path, row {number} (counted from 0)"
    line = _line_of(Path(path), number)
    return f"{where}, line {line} of {Path(path).name}" if line else where


def _delimiter(file: Path) -> str:
    """Return the delimiter of a table: in a CSV file a semicolon if its header has one and no comma."""
    if file.suffix == ".tsv":
        return "\t"
    with file.open(encoding="utf-8", errors="replace") as lines:
        header = lines.readline()
    return ";" if ";" in header and "," not in header else ","


def _broken_line(file: Path) -> str:
    """Return line and error of the first line of a JSON Lines file that is no JSON; empty without one."""
    with file.open(encoding="utf-8", errors="replace") as lines:
        for number, text in enumerate(lines, start=1):
            try:
                json.loads(text if text.strip() else "{}")
            except json.JSONDecodeError as error:
                return f"line {number}, column {error.colno} is no JSON: {error.msg}"
    return ""


def _line_of(file: Path, number: int) -> int:
    """Return the line of a row, from 1; 0 if the file has no such line."""
    if file.suffix not in (".jsonl", ".ndjson", ".csv", ".tsv") or not file.is_file():
        return 0
    with file.open(encoding="utf-8", newline="") as lines:
        if file.suffix in (".jsonl", ".ndjson"):
            filled = (line for line, text in enumerate(lines, start=1) if text.strip())
            return next(islice(filled, number, None), 0)
        cells = csv.reader(lines, delimiter=_delimiter(file))
        ends = (cells.line_num for row in cells if row)
        return next(islice(ends, number + 1, None), 0)  # after the header


SYNONYMS = {
    "prompt": ("question", "problem", "query", "instruction", "input"),
    "answer": ("solution", "final_answer", "ground_truth", "gold", "target", "label", "output", "response"),
}
"""Column → names that it has in data sets of the hub; also in the plural and in capitals."""


def column_hint(column: str, existing: Sequence[str]) -> str:
    """Return the settings for a missing column that has another name, or the nearest name; empty without one.

    >>> column_hint("prompt", ["question", "Solutions"])
    '`prompt: question`, or `columns: {prompt: question, answer: Solutions}`'
    """
    alike = {x.lower().removesuffix("s"): x for x in existing}
    others = {name: next((alike[x] for x in (name, *SYNONYMS[name]) if x in alike), "") for name in SYNONYMS}
    if not others.get(column):
        return nearest(column, existing)
    if column != "prompt":
        return f"`columns: {{{column}: {others[column]}}}`"
    renamed = [f"{name}: {other}" for name, other in others.items() if other and name not in existing]
    return f"`prompt: {others[column]}`, or `columns: {{{', '.join(renamed)}}}`"
