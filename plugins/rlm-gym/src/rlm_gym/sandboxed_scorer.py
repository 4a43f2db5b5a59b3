"""The scorers of reasoning-gym, imported in the sandbox process before its locks close; no trainer imports this module.

Nine scorers evaluate an answer as Python (reasoning-gym 0.1.25). The sandbox isolates the answer from the machine,
but an executed answer could change its own score in the same process. So this module executes no answer. Where the
answer may be a list, `eval` parses only literals. Where it is an expression, only arithmetic is accepted.
"""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import re
import sys
from typing import Any

import reasoning_gym  # noqa: F401  (registers the tasks)
import sympy
import sympy.physics.units
from reasoning_gym.algorithmic.word_ladder import WordLadderDataset
from reasoning_gym.factory import DATASETS
from reasoning_gym.games.contrib.sokoban.src.game import Game
from reasoning_gym.games.contrib.sokoban.src.utils import is_solved

from rlm_gym.numeric_answers import Arithmetic, is_plausible
from rlm_gym.serialization import deserialize

LITERAL_TASKS = {
    "binary_matrix": "algorithmic.binary_matrix",
    "n_queens": "games.n_queens",
    "spiral_matrix": "algorithmic.spiral_matrix",
    "string_insertion": "algorithmic.string_insertion",
}
"""Tasks whose scorer calls `eval` on an answer that may be a list → their modules."""
for _module in LITERAL_TASKS.values():
    vars(importlib.import_module(f"reasoning_gym.{_module}"))["eval"] = ast.literal_eval

EXPRESSION_TASKS = {
    "countdown": Arithmetic(),
    "puzzle24": Arithmetic(),
    "polynomial_multiplication": Arithmetic(variables=True),
    "simple_integration": Arithmetic(variables=True, functions=True),
    "intermediate_integration": Arithmetic(variables=True, functions=True),
}
"""Tasks whose scorer evaluates an answer with sympy → the grammar that the answer must match."""
EVALUATING_TASKS = sorted([*LITERAL_TASKS, *EXPRESSION_TASKS])

for _text in ("x**3/3 - x*exp(2*x)/2 + C", "log(x**2 + 1)*sin(x)*cos(x) + sqrt(x)", "tan(x) + sinh(x) + 1/x"):
    _slope = sympy.diff(sympy.parse_expr(_text), sympy.Symbol("x"))
    sympy.simplify(_slope - _slope.expand())  # sympy imports submodules lazily, and the locks forbid it later

FULL_MARKS = 1 - 1e-9

WORDS = WordLadderDataset._load_words_from_csv(3, 5)  # the locks forbid reading files later


class MissingModules(importlib.abc.MetaPathFinder):
    """Import finder that records modules requested after the locks have closed."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def find_spec(self, name: str, *_: Any) -> None:
        if name.startswith(("sympy.", "reasoning_gym.")):
            self.names.append(name)


missing_modules = MissingModules()


def score(entry: str, answer: str) -> float:
    """Return the score of an answer by the scorer of its task; 0 for an answer that the scorer would have to execute.

    Raises:
        ImportError: The scorer needs a module that was not loaded before the locks closed.
    """
    missing_modules.names.clear()
    if missing_modules not in sys.meta_path:
        sys.meta_path.append(missing_modules)
    example = deserialize(entry)
    task, item = example["task"], example["item"]
    reference = item["answer"]
    if isinstance(reference, str) and answer == reference.strip():
        answer = reference  # some references end in white space, which no prompt shows
    if task == "game_of_life_halting":  # its scorer treats every text as a yes
        return float(answer.casefold() == reference.casefold())
    if task in EXPRESSION_TASKS and not EXPRESSION_TASKS[task].accepts(answer):
        return 0.0
    if task == "puzzle24" and sorted(map(int, re.findall(r"\d+", answer))) != sorted(item["metadata"]["numbers"]):
        return 0.0  # its scorer accepts any four numbers: 6+6+6+6 would always be right
    result = float(_dataset(task, example["settings"]).score_answer(answer, item))
    if (
        missing_modules.names and result == 0.0
    ):  # scorers treat any error as a wrong answer; this error is the sandbox's
        raise ImportError(f"modules not loaded before the locks closed: {', '.join(missing_modules.names)}")
    if result >= FULL_MARKS and isinstance(reference, str) and not is_plausible(answer, reference):
        return 0.0  # the scorer has an absolute tolerance, or takes "nan" for any number
    return result


def _dataset(task: str, settings: dict[str, Any]) -> Any:
    """Build the part of a data set that its scorer needs; building all of it would read files."""
    dataset_type, config_type = DATASETS[task]
    dataset = dataset_type.__new__(dataset_type)
    dataset.config = config_type(**settings)
    dataset.word_sets = WORDS
    dataset._Game, dataset._is_solved = Game, is_solved
    dataset.board_format_opts = getattr(dataset.config, "board_format_opts", None)
    return dataset
