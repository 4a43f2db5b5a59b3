"""A signal at a line of this package outside of a step: the message explains how to resume, and nothing is lost."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from fault_cases import recipe, resume, weights
from fault_points import in_child

import rlm_plugins
from rlm_plugins.cli import app

pytestmark = [pytest.mark.slow, pytest.mark.full, pytest.mark.faults(group="signals")]
CODE = str(Path(rlm_plugins.__file__).parent)
SAVED = {"max_steps": 2, "save_steps": 1}


class Lines:
    """Tracer that calls an action at each line that is executed for the first time.

    Args:
        wanted: File, number and function of the line; empty: none.
        action: Called there, once.
    """

    def __init__(self, wanted: str, action: Callable[[], None]) -> None:
        self._wanted, self._action = wanted, action
        self.found: dict[tuple[str, int], str] = {}

    def install(self) -> None:
        """Trace this thread."""
        sys.settrace(self._call)

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(CODE) else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        key = frame.f_code.co_filename, frame.f_lineno
        if event == "line" and key not in self.found:
            self.found[key] = f"{key[0].removeprefix(CODE)}:{key[1]} {frame.f_code.co_qualname}"
            if self.found[key] == self._wanted:
                sys.settrace(None)
                self._action()
        return self._line


def traced(file: Path, out: Path, line: str, listed: Path) -> Callable[[], None]:
    """Return a task that trains, receives SIGTERM at a line, and lists all lines."""

    def task() -> None:
        lines = Lines(line, lambda: os.kill(os.getpid(), signal.SIGTERM))
        lines.install()
        try:
            app(["train", str(file), "--out", str(out)])
        finally:
            listed.write_text("\n".join(lines.found.values()))

    return task


@pytest.mark.parametrize("every", [24, pytest.param(3, marks=pytest.mark.matrix)])
def test_at_lines_after_the_last_step(tmp_path: Path, every: int, cases: Any) -> None:
    file, log, listed = recipe(tmp_path, **SAVED), tmp_path / "log", tmp_path / "lines"
    assert in_child(traced(file, tmp_path / "whole", "", listed), log) == 0, log.read_text()
    lines, expected = listed.read_text().splitlines(), weights(tmp_path / "whole")
    end = max(number for number, line in enumerate(lines) if line.endswith("on_train_end"))
    for line in lines[end::every]:
        folder = tmp_path / "run"
        with cases(line):
            status, output = in_child(traced(file, folder, line, listed), log), log.read_text()
            assert status == 143, output
            assert "Traceback" not in output
            assert not (folder / "lock").exists()
            if (folder / "summary.json").exists():
                assert f"stopped by SIGTERM; the run is finished: {folder}" in output, output
                assert weights(folder) == expected
            else:
                assert f"stopped by SIGTERM; resume with: rlm train {folder} --resume" in output, output
                assert weights(resume(folder)) == expected
        shutil.rmtree(folder)
