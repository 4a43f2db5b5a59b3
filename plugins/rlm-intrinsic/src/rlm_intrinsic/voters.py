"""The ballots of frozen models, cast once before a training, for the reward `frozen_voters`.

python -m rlm_intrinsic.voters questions.jsonl ballots.jsonl MODEL [MODEL …] [--votes 8] [--longest 256]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from rlm_intrinsic.ballots import answer
from rlm_intrinsic.sampling import sampled
from rlm_plugins.data.answer_extraction import Untagged


def with_ballots(
    rows: Sequence[dict[str, Any]],
    models: Sequence[str],
    *,
    votes: int = 8,
    longest: int = 256,
    tag: str = "answer",
    untagged: Untagged = "last_line",
) -> list[dict[str, Any]]:
    """The rows with a column ``ballots``: of each model the list of its answers to the row's ``prompt``, "" for none.

    Args:
        rows: Rows of a data set; ``prompt`` is text, or a list of messages.
        models: Folders or hub names; each votes with its own tokenizer.
        votes: Answers of each model to each prompt.
        longest: Tokens of a completion, at most.
        tag: The block that holds an answer.
        untagged: What the answer is where there is no block; as for the reward.
    """
    cast = [sampled(model, [row["prompt"] for row in rows], samples=votes, longest=longest) for model in models]
    return [
        {**row, "ballots": [[_ballot(text, tag, untagged) for text in of_model[place]] for of_model in cast]}
        for place, row in enumerate(rows)
    ]


def _ballot(text: str, tag: str, untagged: Untagged) -> str:
    found = answer(text, tag, untagged)
    return "" if found is None else str(found)


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the questions, writes them with their ballots."""
    parser = argparse.ArgumentParser(prog="rlm_intrinsic.voters", description=__doc__)
    parser.add_argument("questions", type=Path)
    parser.add_argument("ballots", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--votes", type=int, default=8)
    parser.add_argument("--longest", type=int, default=256)
    parser.add_argument("--tag", default="answer")
    parser.add_argument("--untagged", choices=get_args(Untagged), default="last_line")
    given = parser.parse_args(arguments)
    rows = [json.loads(line) for line in given.questions.read_text(encoding="utf-8").splitlines() if line.strip()]
    how = {"votes": given.votes, "longest": given.longest, "tag": given.tag, "untagged": given.untagged}
    voted = with_ballots(rows, given.models, **how)
    given.ballots.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in voted), encoding="utf-8")


if __name__ == "__main__":
    main()
