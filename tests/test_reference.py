"""docs/reference: one page per public name, up to date, with an example that runs."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tiny

import rlm_plugins as rlm

ROOT = Path(__file__).parents[1]
EXPERIMENT = {
    "model": {"name": "scratch", "hidden": 16, "heads": 2, "intermediate": 16},
    "environment": {"name": "addition", "digits": 2, "test_rows": 4},
    "rewards": ["accuracy"],
    "algorithm": "grpo",
    "trainer": {"max_steps": 1, "per_device_train_batch_size": 4, "num_generations": 2, "max_completion_length": 3},
}


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_are_up_to_date() -> None:
    pages = generator().pages()
    folder = ROOT / "docs" / "reference"
    assert {file.name for file in folder.glob("*.md")} == set(pages)
    stale = [name for name, text in pages.items() if (folder / name).read_text() != text]
    assert stale == [], "run `make reference`"


def test_every_public_name_has_a_page_with_an_example() -> None:
    pages = generator().pages()
    for name in rlm.__all__:
        if name != "__version__":
            assert "## Example" in pages[f"{name}.md"], name
            assert name in pages["README.md"]


@pytest.mark.slow
@pytest.mark.parametrize("name", generator().examples())
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    from transformers import Qwen3ForSequenceClassification

    config = tiny.model().config
    config.num_labels = 1
    plain = {"output_dir": str(tmp_path), "max_steps": 1, "use_cpu": True, "bf16": False, "report_to": "none"}
    known: dict[str, Any] = {
        "settings": tiny.settings(output_dir=str(tmp_path), max_steps=1),
        "plain": plain,
        "model": tiny.model(),
        "classifier": Qwen3ForSequenceClassification(config),
        "tokenizer": tiny.tokenizer(),
        "lora": tiny.lora(),
        "dataset": tiny.problems(),
        "experiment": EXPERIMENT,
        "folder": tmp_path,
    }
    exec(generator().examples()[name], known)
