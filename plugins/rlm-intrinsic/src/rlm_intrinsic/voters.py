"""The ballots of frozen models, cast once before a training, for the reward `frozen_voters`.

python -m rlm_intrinsic.voters questions.jsonl ballots.jsonl MODEL [MODEL …] [--votes 8] [--longest 256]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlm_intrinsic.sampling import sampled


def with_ballots(
    rows: Sequence[dict[str, Any]], models: Sequence[str], *, votes: int = 8, longest: int = 256
) -> list[dict[str, Any]]:
    """The rows with a column ``ballots``: of each model the list of its answers to the row's ``prompt``.

    Args:
        rows: Rows of a data set; ``prompt`` is text, or a list of messages.
        models: Folders or hub names; each votes with its own tokenizer.
        votes: Answers of each model to each prompt.
        longest: Tokens of an answer, at most.
    """
    cast = [sampled(model, [row["prompt"] for row in rows], samples=votes, longest=longest) for model in models]
    return [{**row, "ballots": [of_model[place] for of_model in cast]} for place, row in enumerate(rows)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the questions, writes them with their ballots."""
    parser = argparse.ArgumentParser(prog="rlm_intrinsic.voters", description=__doc__)
    parser.add_argument("questions", type=Path)
    parser.add_argument("ballots", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--votes", type=int, default=8)
    parser.add_argument("--longest", type=int, default=256)
    given = parser.parse_args(arguments)
    rows = [json.loads(line) for line in given.questions.read_text(encoding="utf-8").splitlines() if line.strip()]
    voted = with_ballots(rows, given.models, votes=given.votes, longest=given.longest)
    given.ballots.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in voted), encoding="utf-8")


if __name__ == "__main__":
    main()
