"""``python -m rlm_gym list``: the tasks; ``python -m rlm_gym show TASK [LEVEL]``: what one asks, and its settings."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import islice

from rlm_gym import tasks
from rlm_gym.beyond import EVALUATED
from rlm_plugins.errors import RlmError


def main(arguments: Sequence[str] | None = None) -> str:
    """What a command has to say."""
    parser = argparse.ArgumentParser(prog="python -m rlm_gym", description="The tasks of reasoning-gym.")
    commands = parser.add_subparsers(dest="command", required=True)
    listing = commands.add_parser("list", help="every task with its family and its levels")
    listing.add_argument("family", nargs="?", help="only this one: logic, games, …")
    showing = commands.add_parser("show", help="the settings of a task, and two of its items")
    showing.add_argument("task")
    showing.add_argument("level", nargs="?", type=int)
    given = parser.parse_args(arguments)
    return listed(given.family) if given.command == "list" else shown(given.task, given.level)


def listed(family: str | None = None) -> str:
    """One line per task, family by family.

    >>> print(listed("probability"))
    probability  coin_flip              2 levels
    """
    chosen = sorted((tasks.family(name), name) for name in tasks.names() if family in (None, tasks.family(name)))
    lines = []
    for of, name in chosen:
        marks = [f"{tasks.levels(name)} levels" if tasks.levels(name) else "no levels"]
        marks += ["evaluates the answer"] * (name in EVALUATED) + ["needs PYTHONHASHSEED"] * (name in tasks.UNSTEADY)
        lines.append(f"{of:<11}  {name:<26} {', '.join(marks)}")
    return "\n".join(lines)


def shown(task: str, level: int | None) -> str:
    """Settings and items."""
    settings = tasks.settings(task, level, {}, task)
    parts = ["\n".join(f"{name}: {value!r}" for name, value in settings.items())]
    for item in islice(tasks.items(task, settings, "shown"), 2):
        parts.append(f"{item['question']}\n→ {item['answer']}")
    return f"\n{'-' * 60}\n".join(parts)


if __name__ == "__main__":
    try:
        print(main())
    except RlmError as error:
        raise SystemExit(str(error)) from None
