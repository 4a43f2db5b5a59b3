"""Origin of weights: their name, source and license, as a model card states them."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CARD = "README.md"


@dataclass(frozen=True)
class WeightsNotice:
    """Origin of weights.

    Args:
        name: Name of the model.
        source: Address or hub name of the weights; empty: unknown.
        license: Identifier of the license; empty: unknown.
    """

    name: str
    source: str = ""
    license: str = ""

    def __str__(self) -> str:
        return f"{self.name}; license: {self.license or 'not stated'}; source: {self.source or 'not stated'}"

    def write(self, folder: Path) -> None:
        """Write a model card with this notice into a folder."""
        header = front_matter(license=self.license.lower(), base_model=self.source, model_name=self.name)
        (folder / CARD).write_text(f"{header}\n# {self.name}\n\nConverted from GGUF. {self}.\n", encoding="utf-8")


def front_matter(**facts: str) -> str:
    """Return the YAML header of a model card with the facts that are not empty.

    >>> front_matter(license="mit", base_model="")
    '---\\nlicense: "mit"\\n---\\n'
    """
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in facts.items() if value]
    return "\n".join(["---", *lines, "---", ""])


def notice_of(card: Path | None, name: str) -> WeightsNotice:
    """Return the notice of a model card; without a readable card, only the name.

    Args:
        card: The file.
        name: Name of the model, if the card has none.
    """
    from huggingface_hub import ModelCard

    data = None
    with suppress(Exception):  # a card is optional, and may be damaged
        data = ModelCard.load(card).data if card is not None else None
    base = getattr(data, "base_model", None) or ""
    source = ", ".join(base) if isinstance(base, list) else str(base)
    return WeightsNotice(
        str(getattr(data, "model_name", None) or name), source, str(getattr(data, "license", None) or "")
    )
