"""The environment `dataset`: any data set in the formats of TRL; registered by `environments`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from rlm_plugins.data.images import with_loaded_images
from rlm_plugins.data.presets import hold_out, prompt_builder, with_columns, without
from rlm_plugins.data.tables import open_split
from rlm_plugins.data.trl_formats import to_recipe_columns
from rlm_plugins.equation.knobs import Count, Natural
from rlm_plugins.errors import RecipeError
from rlm_plugins.specs import EnvironmentSpec

Name = Annotated[str, Field(min_length=1)]


def dataset(
    *,
    path: Name,
    test_path: str | None = None,
    config: str | None = None,
    revision: str | None = None,
    split: str = "train",
    test_split: str | None = None,
    test_rows: Natural = 0,
    columns: dict[str, str] | None = None,
    prompt: str | None = None,
    template: str | None = None,
    system: str | None = None,
    chat: bool = True,
    max_rows: Count | None = None,
    seed: int = 0,
    streaming: bool = False,
    image_folder: str | None = None,
) -> EnvironmentSpec:
    """Any data set: a json, jsonl, csv, tsv or parquet file, a folder of them or of ``save_to_disk``, a hub name.

    The prompt is the column `prompt` (default: "prompt"; text, or a list of chat messages), or a `template` with
    columns in braces: ``"Question: {question}"``. `chat` turns text into a user message, after a `system` message if
    given; ``chat: false`` keeps plain text, for models without a chat template. `columns` renames columns for the
    rewards: ``{answer: solution}`` passes the column `solution` as `answer`. All other columns stay, except those with
    a name that is reserved for rewards (`completions`, `completion_ids`, …).

    TRL's formats are read without `prompt` and `template`: `messages` (its last turn is the demonstration), `prompt`
    with `completion`, and `chosen` with `rejected`, whose common beginning is the prompt if there is none. `prompt`,
    `completion` and `label` are an unpaired preference: supervised stages train on the completions labeled true, a
    reward model on all pairs of a true and a false one of the same prompt. `text` trains supervised stages alone.

    A column `image` or `images` holds paths, bytes, or images of `datasets`, for vision-language models. Relative paths
    of images start at `image_folder`, by default the folder of the recipe.

    Held out: `test_rows` examples of `test_path` or `test_split` (0: all of them), or, without either, `test_rows`
    examples of `split`, drawn with `seed`. A held-out prompt is removed from the training set wherever it occurs,
    and a warning says how many examples that are.
    `max_rows`: use only the first examples of `split`. `streaming` loads a large set on demand: then the first
    `test_rows` examples are held out. A relative path starts at the folder of the recipe.
    """
    add_prompt = prompt_builder(prompt, template, system, chat)

    def load(path: str, split: str, limit: int | None) -> Any:
        table: Any = open_split(path, split, config=config, revision=revision, streaming=streaming)
        if limit is not None:
            table = table.take(limit) if streaming else table.select(range(min(limit, len(table))))
        if not streaming and len(table) == 0:
            raise RecipeError(f"split '{split}' of '{path}' is empty", where="environment.path")
        table = with_loaded_images(with_columns(table, columns or {}), Path(image_folder or "."), path)
        table = to_recipe_columns(table, path) if prompt is template is None else table
        first: Mapping[str, Any] = next(iter(table), {})
        return table if first.get("prompt") == "" else add_prompt(table, path)  # it was a `text`

    train = load(path, split, max_rows)
    if test_path is not None or test_split is not None:
        test = load(test_path or path, test_split or "train", test_rows or None)
        test = list(test) if streaming else test
        return EnvironmentSpec(train=without(train, test), test=test)
    if not test_rows:
        return EnvironmentSpec(train=train)
    if streaming:
        first = list(train.take(test_rows))
        return EnvironmentSpec(train=without(train.skip(test_rows), first), test=first)
    return EnvironmentSpec(*hold_out(train, test_rows, seed))
