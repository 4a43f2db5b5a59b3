"""The workers that run math-verify: killed after their time, and started anew."""

from __future__ import annotations

from pathlib import Path

from rlm_plugins.workers import pool
from rlm_plugins.workers.worker import Program

PROGRAM = Program(Path(__file__).with_name("worker.py"), name="math-verify worker", hint="pip install rlm-math")
"""Its replies: ``right``, ``wrong``, ``unreadable``."""


def shared(size: int | None) -> pool.Pool:
    """The pool of this process; by default its share of the machine's cores, four workers at most."""
    return pool.shared(PROGRAM, size)
