"""The run folder of a stranger executes nothing before its code is compared, and no command writes outside of it."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from fault_cases import run
from typer.testing import CliRunner

from rlm_plugins.cli import app

pytestmark = [pytest.mark.slow, pytest.mark.faults("F14", "the run folder of a stranger")]
MARK = "RLM_STRANGER"
CODE = f"import os, pathlib\npathlib.Path(os.environ['{MARK}']).write_text('executed')\n"


class Payload:
    """Executed by `pickle.load`."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f'echo executed > "${MARK}"',)


def edited(name: str, edit: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    """Change a YAML or JSON document of the run."""

    def change(folder: Path) -> None:
        document = yaml.safe_load((folder / name).read_text())
        edit(document)
        (folder / name).write_text(json.dumps(document) if name.endswith(".json") else yaml.safe_dump(document))

    return change


def text(name: str, content: bytes) -> Callable[[Path], None]:
    """Write a file of the run; `name` may be a pattern."""

    def write(folder: Path) -> None:
        for path in sorted(folder.glob(name)) or [folder / name]:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    return write


def link(name: str) -> Callable[[Path], None]:
    """Replace a file or folder by a link that leads out of the run."""

    def replace(folder: Path) -> None:
        outside = folder.parent / "outside"
        path = next(iter(sorted(folder.glob(name))), folder / name)
        target = outside / "folder" if path.is_dir() else outside / "file"
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        path.symlink_to(target)

    return replace


def pipe(name: str) -> Callable[[Path], None]:
    """Replace a file by a named pipe, on which a reader waits for ever."""

    def replace(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return replace


def loads(name: str) -> Callable[[Path], None]:
    """The recipe loads a file of code."""

    def change(folder: Path) -> None:
        (folder / "evil.py").write_text(CODE)
        edited("recipe.yaml", lambda d: d.update(plugins={"load": [name.replace("RUN", str(folder))]}))(folder)

    return change


PICKLE = pickle.dumps(Payload())
FOLDERS: dict[str, Callable[[Path], None]] = {
    "optimizer.pt is a pickle": text("01-*/checkpoint-*/optimizer.pt", PICKLE),
    "scheduler.pt is a pickle": text("01-*/checkpoint-*/scheduler.pt", PICKLE),
    "rng_state.pth is a pickle": text("01-*/checkpoint-*/rng_state.pth", PICKLE),
    "training_args.bin is a pickle": text("01-*/*/training_args.bin", PICKLE),
    "a result that is a pickle": text("01-grpo/model/pytorch_model.bin", PICKLE),
    "weights that are a pickle": text("01-*/*/model.safetensors", PICKLE),
    "code beside the model": text("01-grpo/model/modeling_evil.py", CODE.encode()),
    "a recipe that loads code of the run": loads("evil.py"),
    "a recipe that loads code by its path": loads("RUN/evil.py"),
    "a recipe that loads code from above": loads("../run/evil.py"),
    "a reward by address": edited("recipe.yaml", lambda d: d.update(rewards=["evil.py:f"])),
    "a package of code": edited("recipe.yaml", lambda d: d.update(plugins={"packages": ["antigravity"]})),
    "a model with remote code": edited(
        "01-grpo/model/config.json", lambda d: d.update(auto_map={"AutoConfig": "evil.C"})
    ),
    "a recipe with a tag": text("recipe.yaml", b"a: !!python/object/apply:os.system ['echo x > $RLM_STRANGER']"),
    "a recipe with aliases": text("recipe.yaml", b"a: &a [x]\n" + b"b: [*a, *a]\n"),
    "a recipe that is empty": text("recipe.yaml", b""),
    "a recipe of bytes": text("recipe.yaml", bytes(range(256))),
    "a manifest that is no JSON": text("manifest.json", b"{"),
    "a manifest that is deep": text("manifest.json", b"[" * 100_000),
    "a manifest that is a list": text("manifest.json", b"[]"),
    "a manifest with other types": edited(
        "manifest.json", lambda d: d.update(recipe=1, code=[], data="x", stages=None)
    ),
    "a log that is no JSON": text("metrics.jsonl", b"\xff\x00{" * 1000),
    "a log with other types": text("metrics.jsonl", b'{"stage": [], "step": {}}\n[]\n1\n{"step": "x"}\n'),
    "a summary with other types": text("summary.json", b'{"before": [], "after": {}, "seconds": "x"}'),
    "a log that is a link": link("metrics.jsonl"),
    "a summary that is a link": link("summary.json"),
    "a stage that is a link": link("01-grpo"),
    "plugins that are a link": link("plugins"),
    "a checkpoint that is a link": link("01-grpo/checkpoint-4"),
    "a lock that is a link": link("lock"),
    "a curve that is a link": link("curve.png"),
    "a log that is a pipe": pipe("metrics.jsonl"),
    "checksums with paths above": edited(
        "01-grpo/model/checksums.json",
        lambda d: d["files"].update({"../../../outside/file": {"size": 4, "sha256": ""}}),
    ),
}
COMMANDS = (["check"], ["show"], ["eval", "--rows", "1"], ["why"], ["compare"], ["train", "--resume"])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("finished"), "full", max_steps=4)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", FOLDERS)
def test_nothing_is_executed_and_nothing_is_written_outside(
    finished: Path, tmp_path: Path, name: str, cases: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    (outside / "folder").mkdir(parents=True)
    for file in (outside / "file", outside / "folder" / "file"):
        file.write_text("kept")
    monkeypatch.setenv(MARK, str(tmp_path / "executed"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("RLM_TRUST", raising=False)
    before = contents(outside)
    with cases(name):
        for number, (command, *options) in enumerate(COMMANDS):
            folder = tmp_path / "run"
            shutil.copytree(finished, folder)
            if command == "train":
                for path in (folder / "summary.json", folder / "01-grpo" / "done"):
                    path.unlink()
            FOLDERS[name](folder)
            done = CliRunner().invoke(app, [command, str(folder), *options])
            assert done.exit_code in (0, 2), f"{number} {command}: {done.output} {done.exception!r}"
            assert "Traceback" not in done.output, done.output
            assert not (tmp_path / "executed").exists(), command
            assert contents(outside) == before, command
            shutil.rmtree(folder)
