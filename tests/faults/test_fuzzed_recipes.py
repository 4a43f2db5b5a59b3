"""Recipes with random mistakes are composed, or refused with an `RlmError`: no traceback and no hang."""

from __future__ import annotations

import copy
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from golden_run import TINY

from rlm_plugins import recipe as recipes
from rlm_plugins.errors import RlmError
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry

RECIPES = Path(__file__).parents[2] / "recipes"
SECONDS = 30
"""Of this process's own CPU time, about a thousand times what a recipe takes."""
ODD: list[Any] = [
    *(None, True, 0, -1, 0.5, 1e9, 10**30, float("nan"), float("inf")),
    *("", "x", "grpo", "accuracy", "a/b/c", "grpo@verl", "1e-6", "null", "\0", "é数🙂"),
    *("../../etc/passwd", "/dev/null", "{answer}", "x" * 10_000, "part.py:fn"),
    *([], {}, [[]], [{}], {"name": None}, {"name": "grpo"}, {"": 1}, {"x": {"y": {"z": 1}}}, [1, "a", None], {1: 2}),
]
KEYS = ["name", "knob", "trainer", "environment", "rewards", "stages", "beta", "epsilon", "", "a.b", "0"]


INVALID = ("arpo", "echo", "gigpo", "flash_rl", "reinforce_pp_baseline", "rlep", "ttrl")
"""Recipes that are refused once their model and sizes are replaced."""


class Hang(BaseException):
    """A recipe took too long."""


@contextmanager
def deadline() -> Iterator[None]:
    """Raise `Hang` after `SECONDS` of CPU time."""

    def late(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@cache
def documents() -> list[tuple[Path, Any]]:
    """Return every recipe of this project, without the parts that need a network."""
    found = []
    for path in sorted(RECIPES.rglob("*.yaml")):
        document = yaml.safe_load(path.read_text())
        environment = {"name": "gist" if path.stem == "reward_model" else "addition", "train_rows": 128, "test_rows": 4}
        for body in (document, *document.get("stages", ())):
            model = body.get("model") or {}
            if not isinstance(model, dict) or model.get("name", "scratch") != "scratch":
                lora = model.get("lora") if isinstance(model, dict) else None
                body["model"] = {"name": "scratch"} | ({"lora": lora} if lora else {})
            if isinstance(named := body.get("environment"), dict):
                is_sized = "train_rows" in named or named["name"] == "addition"
                rows = {"train_rows": 128, "test_rows": 4} if is_sized else {}
                body["environment"] = environment if named["name"] == "dataset" else named | rows
                body["environment"].pop("instruction", None)
            trainer = body.get("trainer", {})
            trainer.update({key: value for key, value in TINY.items() if key in trainer})
        if path.stem not in INVALID:
            found.append((path, document))
    return found


def nodes(value: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield container, key and value of every node."""
    pairs = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    for key, child in pairs:
        yield value, key, child
        yield from nodes(child)


def delete(container: Any, key: Any, value: Any, rng: random.Random) -> None:
    del container[key]


def replace(container: Any, key: Any, value: Any, rng: random.Random) -> None:
    container[key] = copy.deepcopy(rng.choice(ODD))


def rename(container: Any, key: Any, value: Any, rng: random.Random) -> None:
    if isinstance(container, dict):
        container[rng.choice([*KEYS, f"{key}x", str(key)[1:], str(key).upper()])] = container.pop(key)


def insert(container: Any, key: Any, value: Any, rng: random.Random) -> None:
    if isinstance(container, dict):
        container[rng.choice(KEYS)] = copy.deepcopy(rng.choice(ODD))
    else:
        container.insert(key, copy.deepcopy(rng.choice(ODD)))


def swap(container: Any, key: Any, value: Any, rng: random.Random) -> None:
    """Replace a value by that of the same key in another recipe."""
    found = [v for _, document in documents() for _, k, v in nodes(document) if k == key and not isinstance(k, int)]
    if found:
        container[key] = copy.deepcopy(rng.choice(found))


MISTAKES = (delete, replace, rename, insert, *(swap,) * 5)
"""More than half of them leave the structure valid, so that what is checked last is reached."""


def spoiled(rng: random.Random) -> tuple[Path, bytes]:
    """Return a recipe with one to three structural mistakes, or with random bytes in its text."""
    path, document = rng.choice(documents())
    if rng.random() < 0.1:
        text = bytearray(yaml.safe_dump(document).encode())
        for _ in range(rng.randint(1, 4)):
            start = rng.randrange(len(text))
            text[start : start + rng.choice([0, 1, 5, 50])] = rng.choice(
                [b":", b"\n", b"  ", b"- ", b"{", b"]", b"'", b"\xff", b"\t", b"*a", b"!!x", b"1", text[:80]]
            )
        return path, bytes(text)
    document = copy.deepcopy(document)
    for _ in range(rng.choice([1, 1, 2, 3])):
        rng.choice(MISTAKES)(*rng.choice(list(nodes(document)) or [(document, "x", 0)]), rng)
    return path, yaml.safe_dump(document, allow_unicode=True).encode()


@cache
def registry(load: tuple[Path, ...], block: tuple[str, ...]) -> Registry:
    return Registry(load, block)


def outcome(file: Path, text: bytes) -> str:
    """Compose a recipe; return its error, or an empty text."""
    file.write_bytes(text)
    try:
        with deadline():
            document = recipes.load(file)
            compose(document, registry(tuple(document.load), tuple(document.block)))
    except RlmError as error:
        return str(error)
    return ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "count"),
    [(0, 60), *(pytest.param(n, 1000, marks=[pytest.mark.full, pytest.mark.matrix]) for n in range(0, 10_000, 1000))],
)
@pytest.mark.faults(group="F8")
def test_a_spoiled_recipe_is_composed_or_refused(tmp_path: Path, start: int, count: int, cases: Any) -> None:
    refused = 0
    for seed in range(start, start + count):
        path, text = spoiled(random.Random(seed))
        with cases(f"{seed}, {path.name}"):
            for script in path.parent.glob("*.py"):
                (tmp_path / script.name).write_bytes(script.read_bytes())
            try:
                error = outcome(tmp_path / path.name, text)
            except Hang:
                raise AssertionError("hangs") from None
            refused += bool(error)
            assert len(error) < 20_000
    assert count // 4 < refused < count * 17 // 20
