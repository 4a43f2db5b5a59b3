"""The page on doors to worlds: its adapters run and obey the laws of environments."""

from __future__ import annotations

import random
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import fixtures_environments
import pytest
import tiny
from rlm_testing.conformance_kit import check_law
from rlm_testing.law import Subject, battery

from rlm_plugins.registry import Registry
from rlm_plugins.rollout.episodes import reset_environment, step_environment

PAGE = (Path(__file__).parents[1] / "docs" / "worlds.md").read_text()
FILES = {name: text for text, name in re.findall(r"^```python\n(# (\w+\.py)\n.*?)^```", PAGE, flags=re.S | re.M)}


def part(name: str, file: str, folder: Path) -> Any:
    """Return an environment of a file of the page, after its laws."""
    for other, text in FILES.items():
        (folder / other).write_text(text)
    found = Registry([folder / file]).find("rlm_environments", name)
    subject = Subject(found)
    for law in battery(subject):
        check_law(law, subject, None)
    return found.target


@pytest.mark.slow
def test_a_class_of_trl(tmp_path: Path) -> None:
    model, tokenizer = fixtures_environments.scratch(tools=True)
    settings = tiny.settings(output_dir=str(tmp_path), max_steps=1)
    scope: dict[str, Any] = {"model": model, "tokenizer": tokenizer, "settings": settings}
    exec(FILES["trl_door.py"], scope)
    assert scope["trainer"].state.global_step == 1


def test_gymnasium(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium")
    spec = part("lake", "lake.py", tmp_path)()
    world = spec.environment()
    text = reset_environment(world, spec.train[0])
    assert text.count("\n") == 5
    assert step_environment(world, "fly") == ("left, down, right or up?", 0.0, False)
    seen = [step_environment(world, move)[0] for move in ("left", "left")]
    assert seen == ["field 0", "field 0"]


def test_an_mcp_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mcp")
    monkeypatch.chdir(tmp_path)
    (times,) = part("products", "mcp_door.py", tmp_path)().tools
    assert (times(3, b=4), times.__doc__.splitlines()[0]) == ("12", "Return the product.")
    with pytest.raises(ValueError, match="b"):
        times(a=3)


OPENENV_SERVER = """
import random, sys
import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_app

class Guess(Action):
    text: str

class Seen(Observation):
    text: str

class Number(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True
    state = State()

    def reset(self, seed=None, episode_id=None, **more):
        self.number = random.Random(seed).randrange(10)
        return Seen(text="Which number?")

    def step(self, action, timeout_s=None, **more):
        right = action.text.strip() == str(self.number)
        return Seen(text="yes" if right else "no", done=right, reward=float(right))

uvicorn.run(create_app(Number, Guess, Seen, max_concurrent_envs=64), port=int(sys.argv[1]), log_level="error")
"""


def test_an_openenv_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openenv", reason="pip install openenv-core")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setitem(FILES, "openenv_door.py", FILES["openenv_door.py"].replace("8765", str(port)))
    server = subprocess.Popen([sys.executable, "-c", OPENENV_SERVER, str(port)])
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if not probe.connect_ex(("127.0.0.1", port)):
                    break
            time.sleep(0.1)
        spec = part("remote", "openenv_door.py", tmp_path)()
        world = spec.environment()
        assert reset_environment(world, spec.train[0]) == "\nWhich number?"
        seen = [
            step_environment(world, str(guess))
            for guess in range(random.Random(spec.train[0]["seed"]).randrange(10) + 1)
        ]
        assert seen[-1] == ("yes", 1.0, True)
        assert set(seen[:-1]) <= {("no", 0.0, False)}
    finally:
        server.terminate()
        server.wait()
