"""Sampled answers of frozen models, collected once before training, for the reward `frozen_voters`.

python -m rlm_intrinsic.collect_ballots questions.jsonl ballots.jsonl MODEL [MODEL …] [--votes 8] [--longest 256]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from rlm_intrinsic.sampling import sample_completions
from rlm_intrinsic.vote_counting import answer
from rlm_plugins.data.answer_extraction import Untagged
from rlm_plugins.durable.files import whole


def with_ballots(
    examples: Sequence[dict[str, Any]],
    models: Sequence[str],
    *,
    votes: int = 8,
    longest: int = 256,
    tag: str = "answer",
    untagged: Untagged = "last_line",
) -> list[dict[str, Any]]:
    """Return the examples with a column ``ballots``: per model the list of its answers to ``prompt``, "" for none.

    Args:
        examples: Examples; ``prompt`` is text, or a list of messages.
        models: Folders or hub names; each uses its own tokenizer.
        votes: Samples of each model per prompt.
        longest: Largest number of new tokens.
        tag: The block that holds an answer.
        untagged: The answer of a completion without the block; as for the reward.
    """
    completions = [
        sample_completions(model, [example["prompt"] for example in examples], samples=votes, longest=longest)
        for model in models
    ]
    return [
        {
            **example,
            "ballots": [
                [_ballot(text, tag, untagged) for text in model_completions[index]] for model_completions in completions
            ],
        }
        for index, example in enumerate(examples)
    ]


def _ballot(text: str, tag: str, untagged: Untagged) -> str:
    final = answer(text, tag, untagged)
    return "" if final is None else str(final)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the prompts and write them with their ballots."""
    parser = argparse.ArgumentParser(prog="rlm_intrinsic.collect_ballots", description=__doc__)
    parser.add_argument("questions", type=Path)
    parser.add_argument("ballots", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--votes", type=int, default=8)
    parser.add_argument("--longest", type=int, default=256)
    parser.add_argument("--tag", default="answer")
    parser.add_argument("--untagged", choices=get_args(Untagged), default="last_line")
    options = parser.parse_args(arguments)
    examples = [json.loads(line) for line in options.questions.read_text(encoding="utf-8").splitlines() if line.strip()]
    settings = {"votes": options.votes, "longest": options.longest, "tag": options.tag, "untagged": options.untagged}
    with_votes = with_ballots(examples, options.models, **settings)
    lines = [json.dumps(example, ensure_ascii=False) + "\n" for example in with_votes]
    with whole(options.ballots) as staged:
        staged.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
