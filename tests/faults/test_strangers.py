"""The run folder of a stranger is inert: no command executes anything of it, writes outside, hangs or raises."""

from __future__ import annotations

import os
import pickle
import resource
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from fault_cases import recipe
from fault_points import in_child
from strangers_folders import ATTACKS, LAST, PLUGIN, STAGE

from rlm_plugins.cli import app

pytestmark = [pytest.mark.slow, pytest.mark.faults(group="F14")]
COMMANDS = (
    ("check", "FOLDER"),
    ("check", "FOLDER", "--full"),
    ("why", "FOLDER"),
    ("view", "FOLDER"),
    ("eval", "FOLDER"),
    ("train", "FOLDER", "--resume"),
)
SECONDS = 120
"""After which a command is said to hang."""
QUICK = {
    "optimizer.pt executes": COMMANDS[-1:],
    "another plugin and its hash": COMMANDS[-2:],
    "a stage leads outside": COMMANDS[-1:],
    "a pipe as log": COMMANDS[2:4],
}
"""Attack → commands; the matrix has all of both."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished run with a trusted plugin of its own."""
    folder = tmp_path_factory.mktemp("sound")
    file = recipe(folder, "critic", max_steps=2)
    (folder / "polite.py").write_text(PLUGIN)
    document = yaml.safe_load(file.read_text()) | {"plugins": {"load": ["polite.py"]}}
    document["rewards"].append("polite")
    file.write_text(yaml.safe_dump(document))
    task = in_shell(folder, "train", str(file), "--out", str(folder / "run"), "--trust")
    assert in_child(task, folder / "log") == 0, (folder / "log").read_text()
    return folder


def in_shell(cache: Path, *arguments: str) -> Callable[[], None]:
    """Return a command as a user would start it, in a process with limits."""

    def command() -> None:
        os.environ.pop("RLM_TRUST", None)
        os.environ["XDG_CACHE_HOME"] = str(cache)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS)
        resource.setrlimit(resource.RLIMIT_AS, (2**36, 2**36))
        app(list(arguments))

    return command


def check_inert(sound: Path, work: Path, name: str, commands: Sequence[Sequence[str]], cases: Any) -> None:
    """Run commands on a copy of the run that a stranger has prepared, finished and unfinished."""
    work.mkdir()
    for command in commands:
        with cases(f"{name}: {command[0]}"):
            folder, bait = work / "here" / "run", work / "bait"
            shutil.copytree(sound / "run", folder)
            if command[0] == "train":
                (folder / STAGE / "done").unlink()
            (work / "outside").write_text("mine")
            (work / "folder").mkdir()
            (work / "folder" / "kept").write_text("mine")
            ATTACKS[name](folder, bait)
            arguments = [str(folder) if word == "FOLDER" else word for word in command]
            status, output = in_child(in_shell(sound, *arguments), work / "log"), (work / "log").read_text()
            assert not bait.exists(), "code of the stranger was executed"
            assert (work / "outside").read_text() == "mine"
            assert [path.name for path in (work / "folder").iterdir()] == ["kept"]
            assert status in (0, 2), f"exit code {status}: {output[-3000:]}"
            assert "Traceback" not in output, output[-3000:]
            assert "\x1b" not in output
        shutil.rmtree(work)
        work.mkdir()


@pytest.mark.parametrize("name", QUICK)
def test_a_strangers_folder_is_inert(sound: Path, tmp_path: Path, name: str, cases: Any) -> None:
    check_inert(sound, tmp_path / "work", name, QUICK[name], cases)


@pytest.mark.matrix
@pytest.mark.parametrize("name", ATTACKS)
def test_every_folder_of_a_stranger_is_inert(sound: Path, tmp_path: Path, name: str, cases: Any) -> None:
    check_inert(sound, tmp_path / "work", name, COMMANDS, cases)


def test_the_attacks_would_work(tmp_path: Path) -> None:
    """Without protection, the payload of a pickle and the code of a plugin create the file `bait`."""
    (tmp_path / LAST).mkdir(parents=True)
    (tmp_path / LAST / "checksums.json").write_text("{}")
    ATTACKS["optimizer.pt is a pickle"](tmp_path, tmp_path / "bait")
    pickle.loads((tmp_path / LAST / "optimizer.pt").read_bytes())
    assert (tmp_path / "bait").exists()
    (tmp_path / "bait").unlink()
    (tmp_path / "plugins").mkdir()
    ATTACKS["another plugin"](tmp_path, tmp_path / "bait")
    exec((tmp_path / "plugins" / "polite.py").read_text())
    assert (tmp_path / "bait").exists()
