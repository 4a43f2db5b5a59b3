"""Cases for ``rlm reward audit gym_score``: constants, text copied from the question, and reference answers."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Any

from rlm_audit.kinds import Case, Family, Generator

from rlm_gym import tasks
from rlm_gym.numeric_answers import number
from rlm_gym.serialization import serialize
from rlm_plugins.errors import RecipeError

ITEMS = 12
"""Items per task and level."""
CONSTANTS = """
nan|NaN|-nan|inf|-inf|Infinity|nan+nanj|nanj|complex('nan')|0|1|-1|2|3|4|5|6|7|8|9|10|12|20|42|50|100|1000|0.0
0.5|1.0|0.1|0.25|0.01|1/2|0/1|1e-9|1e9|1e308|1e-400|-0|+0|00|0.|.5|0x10|1_000|1,000|٣|½|∞|0i|0+0i|0j|1j|i|True
False|true|false|Yes|No|yes|no|YES|None|null|N/A|unknown|impossible|No solution|infeasible|safe|[]|{}|()|[[]]
[0]|[1]|[None]|[True]|[1, 2]|[0, 0]|(0, 0)|{'a': 1}|''|a|b|A|B|C|D|x|y|X|P|Q|x=0|x = 1|x**2|0*x|C|A B C D
A, B, C|.|-|,|#|*|?|!|+|=|==|()()|{}[]()|<>|0 0 0|1 2 3|0,0|(0,0)|-1 -1|1 1|up|down|left|right|north|U|R|L|UDLR
R R R|knight|A is a knight|Monday|Sunday|2020-01-01|January 1, 2020|00:00|12:00|12:00 AM|the|The answer is 0
Answer: 1|0 or 1|0 1 2 3 4 5 6 7 8 9|1+1|6+6+6+6|x+1|0%|50%|$0|one|zero|red|blue|white|black|All of the above
None of the above|I don't know|\\boxed{0}|$0$|[[0, 0], [0, 0]]|{"a": 1}|a,b,c|abc|lambda x: x|__import__('os')
[1] * 9|[[0]]|{"A": "knight"}|knave|A is a knight, and B is a knave.|1.|1)|(A)|#1|1:1|1/3|2/3|pi|e|sqrt(2)
1e-12|-0.0|0.5%|100%|1j*1j|((()))|I|II|IV|T|F|Y|N|YES NO|yes or no|0b1|0o7|１|①|²|""|range(10)|set()|None None
a b c|z|aa|hello|ABC|south|east|west|forward|Tuesday|January|01/01/2020|2020-02-30|25:00|1 day|1 hour|today|never
always|neither|both|maybe|it depends|x=1, y=1|x = 0, y = 0|a=1|0.999|1.001|99999999999|123456789|-999|3.14159|2.71828
1.41421|0.333|0.3333333|1,2,3,4|4 3 2 1|[1, 2, 3]|[[1, 2], [3, 4]]|1-2-3|a->b|A->B|S|NSEW|((1, 2), (3, 4))|["a"]|~0
0 ** 0|1 if 1 else 2|[0] * 99|'a' 'b'|1;2|\ufeff1|_|true false|not|and|or|A and B|(A, B)|knight knave knight
""".strip().replace("\n", "|")
DRAWN = tuple(CONSTANTS.split("|"))


def parroted(question: str) -> Iterator[str]:
    """Yield answers copied from the question: the whole text, its lines, blocks, numbers and ends of lines."""
    lines = [line.strip() for line in question.splitlines() if line.strip()]
    numbers, words = re.findall(r"-?\d+(?:\.\d+)?", question), question.split()
    yield from (question, *lines, *words[:1], *words[-1:], *numbers)
    yield from (" ".join(numbers), ",".join(numbers), f"[{', '.join(numbers)}]", " ".join(words[-5:]))
    yield from (part.strip() for part in re.split(r"[:\n]", question) if part.strip())
    yield from question.split("\n\n")
    yield "\n".join(lines[1:])


@lru_cache(maxsize=2048)
def drawn_items(task: str, level: int | None) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the settings of a task at a level and its first items; none if the level is an error."""
    try:
        settings = tasks.settings(task, level, {}, task)
        return settings, [*islice(tasks.items(task, settings, "audit"), ITEMS)]
    except RecipeError:
        return {}, []


def _item(rng: random.Random, task: str) -> tuple[dict[str, str], dict[str, Any]] | None:
    if not tasks.is_reproducible(task):
        return None
    level = rng.choice([None, *range(min(2, tasks.levels(task)))])
    settings, items = drawn_items(task, level)
    if not items:
        return None
    item = rng.choice(items)
    return {"entry": serialize({"task": task, "settings": settings, "item": item}), "task": task}, item


def _constants(task: str) -> Generator:
    def generate(rng: random.Random, size: int) -> Case | None:
        drawn = _item(rng, task)
        if drawn is None:
            return None
        columns, item = drawn
        answer = rng.choice(DRAWN if rng.random() < 0.6 else [*parroted(item["question"])]).strip()
        is_right = says_the_same(answer, str(item["answer"]))
        return None if is_right else Case(columns, answer, False, item["question"])

    return generate


def _references(rng: random.Random, size: int) -> Case | None:
    drawn = _item(rng, rng.choice(tasks.names()))
    if drawn is None or not isinstance(drawn[1]["answer"], str) or not drawn[1]["answer"].strip():
        return None
    columns, item = drawn
    return Case(columns, item["answer"], True, item["question"])


def says_the_same(answer: str, reference: str) -> bool:
    """Return True if a text is the reference: its words, its number, or its literal.

    >>> says_the_same("1.0", "1"), says_the_same("[1,2]", "[1, 2]"), says_the_same(" YES", "yes")
    (True, True, True)
    """
    if answer.split() == reference.split() or answer.strip().casefold() == reference.strip().casefold():
        return True
    value, expected = number(answer), number(reference)
    if value is not None and expected is not None:
        return value == expected
    return _literal(answer) is not None and _literal(answer) == _literal(reference)


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None


def _family() -> Family:
    constants = {f"constants: {task}": _constants(task) for task in tasks.names()}
    return Family({"the reference answer": _references, **constants}, form="<answer>{answer}</answer>")


FAMILY = _family()
"""Cases for `gym_score`, one class per task; without PYTHONHASHSEED, classes that depend on hashes have no cases."""
