"""What runs beyond the wall: reasoning-gym's scorers, imported once, before the locks close. No trainer imports it.

Nine of them evaluate an answer as Python (reasoning-gym 0.1.25). The sandbox keeps such an answer from the machine, but
it would still share a process with its own score. So nothing is executed here either: where a list may be the answer,
`eval` reads literals; where an expression is, only arithmetic is passed on.
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
from reasoning_gym.algorithmic.word_ladder import WordLadderDataset
from reasoning_gym.factory import DATASETS
from reasoning_gym.games.contrib.sokoban.src.game import Game
from reasoning_gym.games.contrib.sokoban.src.utils import is_solved

from rlm_gym.arithmetic import Arithmetic
from rlm_gym.entries import read

LITERALS = {
    "binary_matrix": "algorithmic.binary_matrix",
    "n_queens": "games.n_queens",
    "spiral_matrix": "algorithmic.spiral_matrix",
    "string_insertion": "algorithmic.string_insertion",
}
"""Tasks whose scorer calls `eval` on an answer that may be a list, and their modules."""
for _module in LITERALS.values():
    vars(importlib.import_module(f"reasoning_gym.{_module}"))["eval"] = ast.literal_eval

EXPRESSIONS = {
    "countdown": Arithmetic(),
    "puzzle24": Arithmetic(),
    "polynomial_multiplication": Arithmetic(variables=True),
    "simple_integration": Arithmetic(variables=True, functions=True),
    "intermediate_integration": Arithmetic(variables=True, functions=True),
}
"""Tasks whose scorer has sympy evaluate an answer, and what may stand in it."""
EVALUATED = sorted([*LITERALS, *EXPRESSIONS])

for _text in ("x**3/3 - x*exp(2*x)/2 + C", "log(x**2 + 1)*sin(x)*cos(x) + sqrt(x)", "tan(x) + sinh(x) + 1/x"):
    _slope = sympy.diff(sympy.parse_expr(_text), sympy.Symbol("x"))
    sympy.simplify(_slope - _slope.expand())  # sympy imports much of itself when it is first used

WORDS = WordLadderDataset._load_words_from_csv(3, 5)  # no file can be read later


class Unfound(importlib.abc.MetaPathFinder):
    """Notes the modules that are asked for once no file can be read."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def find_spec(self, name: str, *_: Any) -> None:
        if name.startswith(("sympy.", "reasoning_gym.")):
            self.names.append(name)


unfound = Unfound()


def score(entry: str, answer: str) -> float:
    """What the scorer of a row's task says of an answer; 0 for one that it would have to execute."""
    unfound.names.clear()
    if unfound not in sys.meta_path:
        sys.meta_path.append(unfound)
    row = read(entry)
    task, item = row["task"], row["item"]
    gold = item["answer"]
    if isinstance(gold, str) and answer == gold.strip():
        answer = gold  # some golds end in white space, which nobody can see
    if task == "game_of_life_halting":  # its scorer takes every text for a yes
        return float(answer.casefold() == gold.casefold())
    if task in EXPRESSIONS and not EXPRESSIONS[task].fits(answer):
        return 0.0
    if task == "puzzle24" and sorted(map(int, re.findall(r"\d+", answer))) != sorted(item["metadata"]["numbers"]):
        return 0.0  # its scorer takes any four numbers: 6+6+6+6 would always be right
    value = float(_dataset(task, row["settings"]).score_answer(answer, item))
    if unfound.names and value == 0.0:  # scorers take any error for a wrong answer; this one is ours
        raise ImportError(f"a module that is not loaded: {', '.join(unfound.names)}")
    return value


def _dataset(task: str, settings: dict[str, Any]) -> Any:
    """As much of a data set as its scorer needs; to make a whole one, files would be read."""
    kind, config_type = DATASETS[task]
    made = kind.__new__(kind)
    made.config = config_type(**settings)
    made.word_sets = WORDS
    made._Game, made._is_solved = Game, is_solved
    made.board_format_opts = getattr(made.config, "board_format_opts", None)
    return made
