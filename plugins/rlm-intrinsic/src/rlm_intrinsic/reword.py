"""Other wordings of the questions of a data set, by a language model, for `cross_view` with `side_by_side`.

python -m rlm_intrinsic.reword questions.jsonl worded.jsonl MODEL [--wordings 2] [--longest 256]
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rlm_plugins.durable.files import whole

REQUEST = (
    "Rewrite the following question in other words. Keep every number and what is asked for. "
    "Write the new question only.\n\n{question}"
)
Sample = Callable[[list[Any], int], list[list[str]]]
"""(prompts, samples) → texts per prompt."""


def with_wordings(examples: Sequence[dict[str, Any]], sample: Sample, wordings: int = 2) -> list[dict[str, Any]]:
    """Return each question in `wordings` wordings, adjacent, with the column ``question`` that they share.

    A question is left out if too few different rewordings keep its numbers: a lost number would change the answer.

    Args:
        examples: With ``prompt``: text, or messages whose last one is the question.
        sample: Samples from the model.
        wordings: Wordings of a question, the original included.
    """
    questions = [_text(example["prompt"]) for example in examples]
    requests = [[{"role": "user", "content": REQUEST.format(question=question)}] for question in questions]
    rewordings = []
    for example, question, texts in zip(examples, questions, sample(requests, 4 * (wordings - 1)), strict=True):
        usable = [text for text in dict.fromkeys(map(str.strip, texts)) if _keeps_numbers(question, text)]
        if len(usable) >= wordings - 1:
            worded = [question, *usable[: wordings - 1]]
            rewordings += [
                {**example, "prompt": _replaced(example["prompt"], text), "question": question} for text in worded
            ]
    return rewordings


def _keeps_numbers(question: str, text: str) -> bool:
    """Return True if both have the same numbers, as often, and the texts differ."""
    numbers = re.compile(r"\d+(?:\.\d+)?")
    return bool(text) and text != question and sorted(numbers.findall(question)) == sorted(numbers.findall(text))


def _text(prompt: Any) -> str:
    return prompt if isinstance(prompt, str) else str(prompt[-1]["content"])


def _replaced(prompt: Any, text: str) -> Any:
    return text if isinstance(prompt, str) else [*prompt[:-1], {**prompt[-1], "content": text}]


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the questions, and write their wordings."""
    parser = argparse.ArgumentParser(prog="rlm_intrinsic.reword", description=__doc__)
    parser.add_argument("questions", type=Path, help="JSON lines with `prompt`")
    parser.add_argument("out", type=Path, help="file to write")
    parser.add_argument("model", help="folder or hub name of a chat model")
    parser.add_argument("--wordings", type=int, default=2, help="per question, the original included")
    parser.add_argument("--longest", type=int, default=256, help="largest number of new tokens")
    options = parser.parse_args(arguments)
    if options.wordings < 2:
        parser.error("--wordings: 2 or more, since the original is one")

    def sample(prompts: list[Any], samples: int) -> list[list[str]]:
        from rlm_intrinsic.sampling import sample_completions

        return sample_completions(options.model, prompts, samples=samples, longest=options.longest)

    examples = [json.loads(line) for line in options.questions.read_text(encoding="utf-8").splitlines()]
    worded = with_wordings(examples, sample, options.wordings)
    lines = [json.dumps(example, ensure_ascii=False) + "\n" for example in worded]
    with whole(options.out) as staged:
        staged.write_text("".join(lines), encoding="utf-8")
    count = f"{len(worded) // options.wordings} of {len(examples)} questions"
    print(f"{count} in {options.wordings} wordings each: {options.out}")


if __name__ == "__main__":
    main()
