"""Command line: ``python -m rlm_gym list`` lists the tasks; ``show TASK [LEVEL]`` prints settings and two items."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import islice

from rlm_gym import tasks
from rlm_gym.sandboxed_scorer import EVALUATING_TASKS
from rlm_plugins.errors import RlmError


def main(arguments: Sequence[str] | None = None) -> str:
    """Run a command and return its output."""
    parser = argparse.ArgumentParser(prog="python -m rlm_gym", description="The tasks of reasoning-gym.")
    subparsers = parser.add_subparsers(dest="command", required=True)
    list_parser = subparsers.add_parser("list", help="every task with its family and its levels")
    list_parser.add_argument("family", nargs="?", help="list this family only: logic, games, …")
    show_parser = subparsers.add_parser("show", help="the settings of a task and two of its items")
    show_parser.add_argument("task")
    show_parser.add_argument("level", nargs="?", type=int)
    options = parser.parse_args(arguments)
    return list_tasks(options.family) if options.command == "list" else show_task(options.task, options.level)


def list_tasks(family: str | None = None) -> str:
    """Return one line per task, sorted by family.

    >>> print(list_tasks("probability"))
    probability  coin_flip              2 levels
    """
    chosen = sorted((tasks.family(name), name) for name in tasks.names() if family in (None, tasks.family(name)))
    lines = []
    for task_family, name in chosen:
        notes = [f"{tasks.levels(name)} levels" if tasks.levels(name) else "no levels"]
        notes += ["evaluates the answer"] * (name in EVALUATING_TASKS) + ["needs PYTHONHASHSEED"] * (
            name in tasks.HASH_DEPENDENT
        )
        lines.append(f"{task_family:<11}  {name:<26} {', '.join(notes)}")
    return "\n".join(lines)


def show_task(task: str, level: int | None) -> str:
    """Return the settings of a task and two of its items."""
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
