"""Opens one split of a data set wherever it is: a file, a folder, or the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlm_plugins.data import hub
from rlm_plugins.errors import RecipeError, nearest

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

READERS: dict[str, dict[str, str]] = {
    ".json": {"path": "json"},
    ".jsonl": {"path": "json"},
    ".ndjson": {"path": "json"},
    ".csv": {"path": "csv"},
    ".tsv": {"path": "csv", "sep": "\t"},
    ".parquet": {"path": "parquet"},
}
"""Ending of a file → how `datasets.load_dataset` reads it."""

WHERE = "environment.path"


def open_split(
    path: str, split: str, *, config: str | None = None, revision: str | None = None, streaming: bool = False
) -> Dataset | IterableDataset:
    """The rows of one split.

    Args:
        path: A file (the endings of `READERS`), a folder of such files, a folder written by ``save_to_disk``, or a
            name on the hub.
        split: Name of the split; a single file is all ``train``. Slices (``train[:5%]``) work wherever
            `datasets` reads the files itself.
        config: Which of several data sets under one name.
        revision: Commit, tag or branch on the hub.
        streaming: Read rows as they are needed instead of storing the whole split first.

    Raises:
        RecipeError: Nothing is there, it cannot be read, or it has no such split.
    """
    place = hub.locate(path, where=WHERE, suffixes=tuple(READERS))
    if place is not None and revision is not None:
        raise RecipeError(f"'{path}' is a local path, which has no revisions", where="environment.revision")
    try:
        if place is not None and any((place / name).is_file() for name in ("state.json", "dataset_dict.json")):
            return _saved(place, split, streaming)
        return _load(path, place, split=split, name=config, revision=revision, streaming=streaming)
    except RecipeError:
        raise
    except Exception as error:
        raise RecipeError(f"'{path}' cannot be read: {_reason(error)}", where=WHERE, hint=hub.advice(place)) from None


def _load(path: str, place: Path | None, **settings: Any) -> Dataset | IterableDataset:
    import datasets

    if place is not None:
        # it would report each load to the hub, of local files too, and wait for an answer
        datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False
    if place is None or place.is_dir():
        return datasets.load_dataset(str(place or path), **settings)
    suffix = next((s for s in reversed(place.suffixes) if s not in (".gz", ".bz2", ".xz", ".zst")), "")
    if suffix not in READERS:
        raise RecipeError(f"'{path}' ends in '{suffix}'", where=WHERE, allowed=", ".join(READERS))
    if settings["name"] is not None:
        raise RecipeError(f"'{path}' is one file, which has no configs", where="environment.config")
    return datasets.load_dataset(**READERS[suffix], data_files=str(place), **settings)


def _saved(place: Path, split: str, streaming: bool) -> Dataset | IterableDataset:
    import datasets

    found = datasets.load_from_disk(str(place))
    splits = found if isinstance(found, datasets.DatasetDict) else {"train": found}
    if split not in splits:
        raise RecipeError(
            f"'{place}' has no split '{split}'",
            where="environment.split",
            allowed=", ".join(splits),
            hint=nearest(split, splits),
        )
    rows = splits[split]
    return rows.to_iterable_dataset() if streaming else rows


def _reason(error: Exception) -> str:
    if isinstance(error, StopIteration) or "corresponds to no data" in str(error):
        return "it has no rows"
    root = error.__cause__ if type(error).__name__ == "DatasetGenerationError" and error.__cause__ else error
    return " ".join(str(root).split())
