"""Reward from a plain corpus: predict the next segment of a text (environment and reward)."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from rlm_plugins.data.answer_extraction import Untagged, final_answers
from rlm_plugins.errors import RecipeError
from rlm_plugins.specs import EnvironmentSpec

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]


def next_segment(
    *,
    path: str,
    context: Count = 200,
    segment: Count = 40,
    rows: Count = 4096,
    test_rows: Natural = 128,
    instruction: str = "\n\nHow does the text go on? Think, then write its next words as <answer>…</answer>.",
    seed: int = 0,
) -> EnvironmentSpec:
    """A plain text whose continuation is to be predicted: the environment of reinforcement pre-training.

    Each prompt is up to `context` characters of the text, cut at a space, and `instruction`. The column
    ``continuation`` holds the `segment` characters after it. RPT, arXiv 2506.08007. The positions are drawn at random.
    The last tenth of the text is only for the held-out examples. `path` is a text file, relative to the recipe.

    Raises:
        RecipeError: The file cannot be read, or is too short.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"'{path}' cannot be read: {error}", where="environment.path") from None
    split = len(text) * 9 // 10
    if split < 10 * (context + segment):
        problem = f"'{path}' has {len(text)} characters"
        raise RecipeError(problem, where="environment.path", allowed=f"{12 * (context + segment)} or more")
    train = _examples(text[:split], context, segment, rows, instruction, random.Random(f"train {seed}"))
    test = _examples(text[split:], context, segment, test_rows, instruction, random.Random("test"))
    return EnvironmentSpec(train=train, test=test)


def _examples(
    text: str, context: int, segment: int, count: int, instruction: str, rng: random.Random
) -> list[dict[str, Any]]:
    spaces = [match.end() for match in re.finditer(r"\s+", text) if match.end() < len(text) - segment]
    positions = [rng.choice(spaces) for _ in range(count)] if spaces else []
    return [
        {
            "prompt": [{"role": "user", "content": text[max(0, position - context) : position].lstrip() + instruction}],
            "continuation": text[position : position + segment],
        }
        for position in positions
    ]


class PrefixMatch:
    """1 if the answer is a prefix of the true continuation and ends at the end of one of its tokens, else 0.

    r = 1[y is a prefix of x and |y| ∈ {lengths of the first k tokens of x}], x the column ``continuation``. RPT, arXiv
    2506.08007 eq. 3, whose match is in bytes. The tokens are those of the policy's tokenizer, so an answer may not end
    within one. An answer of any number of tokens scores 1, if it has at least `shortest` characters.

    No label is required, so any corpus is a data set. For a text that the model has memorized, recall is rewarded.
    """

    def __init__(self, *, shortest: Count = 1, tag: str = "answer", untagged: Untagged = "last_line") -> None:
        self._shortest, self._tag, self._untagged = shortest, tag, untagged
        self._tokenizer: Any = None

    def setup(self, policy: Any, results: Mapping[str, Path], tokenizer: Any) -> None:
        """Receive the tokenizer whose tokens an answer may end with."""
        self._tokenizer = tokenizer

    def __call__(self, completions: Sequence[str], continuation: Sequence[str]) -> list[float]:
        """Return the score of each completion."""
        return [self._score(text, truth) for text, truth in zip(completions, continuation, strict=True)]

    def _score(self, completion: str, truth: str) -> float:
        answers = {text.strip() for text in final_answers(completion, self._tag, self._untagged)}
        if len(answers) != 1:
            return 0.0
        answer = answers.pop()
        return float(len(answer) >= self._shortest and truth.startswith(answer) and len(answer) in self._ends(truth))

    def _ends(self, truth: str) -> set[int]:
        """Return the numbers of characters of the first tokens of the continuation, without a space at the end."""
        ids = self._tokenizer(truth, add_special_tokens=False)["input_ids"]
        return {len(self._tokenizer.decode(ids[: count + 1]).rstrip()) for count in range(len(ids))}
