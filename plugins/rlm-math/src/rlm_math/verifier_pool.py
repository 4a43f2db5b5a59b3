"""The pool of comparison workers, which are killed at their time limit and restarted."""

from __future__ import annotations

from pathlib import Path

from rlm_plugins.workers import pool

PROGRAM = pool.Program(
    Path(__file__).with_name("verifier_worker.py"), name="comparison worker", hint="pip install rlm-math"
)
"""The worker program; its replies are ``right``, ``wrong`` and ``unreadable``."""


def shared(size: int | None) -> pool.Pool:
    """Return the pool of this process; by default one worker per available core, at most four."""
    return pool.shared(PROGRAM, size)
