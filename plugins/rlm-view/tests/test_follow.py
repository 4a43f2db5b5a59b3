"""The essentials of a run in the terminal while its logs grow."""

from __future__ import annotations

import json
from pathlib import Path

from logs_of_a_run import run_folder
from rlm_view.follow import GrowingLog, follow, has_ended


def test_torn_lines_are_read_once_they_are_complete(tmp_path: Path) -> None:
    log = GrowingLog(tmp_path / "log")
    assert log.new_records() == []
    line = json.dumps({"step": 1, "text": "→"}).encode() + b"\n"
    for cut in range(1, len(line)):
        (tmp_path / "log").write_bytes(line[:cut])
        assert log.new_records() == []
    (tmp_path / "log").write_bytes(line + b'{"step": 2}\n\xff\xfe broken\n[1]\n{"st')
    assert [record["step"] for record in log.new_records()] == [1, 2]
    with (tmp_path / "log").open("ab") as file:
        file.write(b'ep": 3}\n')
    assert [record["step"] for record in log.new_records()] == [3]


def test_steps_are_printed_until_the_run_ends(tmp_path: Path) -> None:
    run, lines = run_folder(tmp_path / "run", ["1+1=?\x1b[2J"]), []  # type: ignore[var-annotated]

    def more(_: float) -> None:
        with (run / "metrics.jsonl").open("a") as file:
            file.write('po", "step": 4, "reward": 1.0}\n')
        (run / "summary.json").write_text("{}")
        assert len(lines) < 99

    (run / "lock").write_text("{}")
    follow(run, 100, lines.append, pause=more)
    steps = [line for line in lines if line.startswith("step")]
    assert [line.split()[1] for line in steps] == ["1", "2", "3", "3", "4"]
    assert steps[-1].endswith("▁▃▆█")
    assert any(line.startswith("  last  1+1=?\\u001b[2J") for line in lines)
    assert not any("\x1b" in line for line in lines)


def test_finding_is_printed_once(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", [])
    cut = {"completions/clipped_ratio": 1.0, "reward": 0.0, "grad_norm": 0.1}
    lines = [json.dumps({"stage": "01-grpo", "step": i, **cut}) for i in range(1, 9)]
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    printed, looks = [], [0]  # type: ignore[var-annotated]

    def over(_: Path) -> bool:
        looks[0] += 1
        return looks[0] > 3

    follow(run, 200, printed.append, is_over=over, pause=lambda _: None)
    assert sum("truncated_completions" in line for line in printed) == 1


def test_end_of_a_run(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", [])
    assert has_ended(run), "logs, and no process holds the lock"
    (run / "lock").write_text(json.dumps({"host": "elsewhere", "pid": 1, "started": None}))
    assert not has_ended(run)
    (run / "lock").write_text('{"host": ')
    assert not has_ended(run), "the lock is being written"
    (run / "summary.json").write_text("{}")
    assert has_ended(run)
