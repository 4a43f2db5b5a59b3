"""Run folders with an attack each, as functions of the folder and the file that an executed attack creates.

The stranger owns the folder, so every change to a checkpoint or result is sealed with new checksums. Code of a stranger
would create the file `bait`, which lies beside the folder; `bait.parent / "outside"` is a file that must not change.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import py_compile
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import yaml

from rlm_plugins.durable.files import CHECKSUMS, seal

Attack = Callable[[Path, Path], None]
STAGE, LAST = "01-ppo", "01-ppo/checkpoint-2"
PLUGIN = """
from rlm_plugins import hookimpl

def polite(completions):
    return [1.0] * len(completions)

@hookimpl
def rlm_rewards():
    return {"polite": polite}
"""
"""The plugin `polite.py` that the user trusts."""


class Payload:
    """Object whose unpickling executes a command."""

    def __init__(self, bait: Path) -> None:
        self.bait = bait

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.bait}",)


def code(bait: Path) -> str:
    """Return the source of a module that creates the file `bait` when it is executed."""
    return f"open({str(bait)!r}, 'w').close()\nfrom rlm_plugins import hookimpl\n"


def tensors(name: str, place: str = LAST) -> Attack:
    """Replace a file of tensors by one with a payload."""

    def attack(folder: Path, bait: Path) -> None:
        torch.save({"state": Payload(bait), "param_groups": []}, folder / place / name)
        seal(folder / place)

    return attack


def raw_pickle(name: str, place: str = LAST) -> Attack:
    def attack(folder: Path, bait: Path) -> None:
        (folder / place / name).write_bytes(pickle.dumps(Payload(bait), protocol=2))
        seal(folder / place)

    return attack


def instead_of_safetensors(name: str, place: str) -> Attack:
    """Replace safetensors files by a pickle with a payload."""

    def attack(folder: Path, bait: Path) -> None:
        for file in (folder / place).glob("*.safetensors"):
            file.unlink()
        tensors(name, place)(folder, bait)

    return attack


def edit(name: str, change: Callable[[Any, Path], Any]) -> Attack:
    """Change the value of a JSON file; a sealed folder is sealed again."""

    def attack(folder: Path, bait: Path) -> None:
        file = folder / name
        value = change(json.loads(file.read_text()), bait)
        file.write_text(json.dumps(value))
        if (file.parent / CHECKSUMS).exists() and file.name != CHECKSUMS:
            seal(file.parent)

    return attack


def text(name: str, content: str) -> Attack:
    """Replace the content of a file."""
    return lambda folder, bait: (folder / name).write_text(content) and None


def recipe(**changes: Any) -> Attack:
    """Change keys in the recipe and the manifest of the run; {bait} and {folder} stand for their paths."""

    def attack(folder: Path, bait: Path) -> None:
        for place in (bait.parent, folder.parent, folder):
            (place / "evil.py").write_text(code(bait))
        named = json.loads(json.dumps(changes).replace("BAIT", str(bait)).replace("FOLDER", str(folder)))
        document = yaml.safe_load((folder / "recipe.yaml").read_text()) | named
        (folder / "recipe.yaml").write_text(yaml.safe_dump(document))
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["recipe"] |= named
        (folder / "manifest.json").write_text(json.dumps(manifest))

    return attack


def link(name: str, target: str) -> Attack:
    """Replace a file or folder by a link out of the run folder."""

    def attack(folder: Path, bait: Path) -> None:
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.symlink_to(bait.parent / target)

    return attack


def pipe(name: str) -> Attack:
    """Replace a file by a named pipe, which blocks a reader forever."""

    def attack(folder: Path, bait: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return attack


def other_plugin(folder: Path, bait: Path) -> None:
    (folder / "plugins" / "polite.py").write_text(code(bait))


def other_plugin_with_its_hash(folder: Path, bait: Path) -> None:
    other_plugin(folder, bait)
    digest = hashlib.sha256((folder / "plugins" / "polite.py").read_bytes()).hexdigest()
    edit("manifest.json", lambda manifest, _: manifest | {"code": {"polite.py": digest}})(folder, bait)


def tags(folder: Path, bait: Path) -> None:
    with (folder / "recipe.yaml").open("a") as file:
        file.write(f'\nname: !!python/object/apply:os.system ["touch {bait}"]\n')


def model_as_pickle(folder: Path, bait: Path) -> None:
    model = folder / "model"
    shutil.copytree(folder / STAGE / "adapter", model)
    for file in (*model.glob("*.safetensors"), model / CHECKSUMS, model / "adapter_config.json"):
        file.unlink()
    config = {"model_type": "llama", "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    (model / "config.json").write_text(json.dumps(config | {"intermediate_size": 16, "vocab_size": 40}))
    torch.save({"lm_head.weight": Payload(bait)}, model / "pytorch_model.bin")
    recipe(model={"name": "pretrained", "path": str(model)})(folder, bait)


def a_huge_log(folder: Path, bait: Path) -> None:
    os.truncate(folder / "metrics.jsonl", 2**42)


def an_empty_checkpoint(folder: Path, bait: Path) -> None:
    (folder / STAGE / "checkpoint-999999999999999999999").mkdir()
    (folder / STAGE / "checkpoint-999999999999999999999" / CHECKSUMS).write_text('{"files": {}}')


def module_beside(folder: Path, bait: Path) -> None:
    for name in ("torch", "sitecustomize", "yaml", "rlm_plugins", "conftest"):
        (folder / f"{name}.py").write_text(code(bait))
        (folder / "plugins" / f"{name}.py").write_text(code(bait))


def compiled_plugin(folder: Path, bait: Path) -> None:
    """Write bytecode that Python would load instead of an equal source file."""
    evil = bait.parent / "polite.py"
    evil.write_text(code(bait))
    (folder / "plugins" / "__pycache__").mkdir(exist_ok=True)
    for target in ("plugins/__pycache__/polite.cpython-311.pyc", "plugins/polite.pyc"):
        py_compile.compile(
            str(evil), str(folder / target), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
        )


EVIL = [{"name": "verl", "function": "FOLDER/../evil.py:score"}]
ATTACKS: dict[str, Attack] = {
    **{f"{name} executes": tensors(name) for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "parts.pt")},
    "optimizer.pt is a pickle": raw_pickle("optimizer.pt"),
    "adapter of a checkpoint is a pickle": instead_of_safetensors("adapter_model.bin", LAST),
    "another plugin": other_plugin,
    "another plugin and its hash": other_plugin_with_its_hash,
    "bytecode of a plugin": compiled_plugin,
    "modules beside the recipe": module_beside,
    "a plugin outside": recipe(plugins={"load": ["BAIT/../evil.py"]}),
    "a reward outside": recipe(rewards=EVIL),
    "tags in the recipe": tags,
    "a model as a pickle": model_as_pickle,
    "an adapter of megatron": edit(
        f"{STAGE}/adapter/adapter_config.json", lambda c, _: c | {"megatron_config": {"a": 1}, "megatron_core": "evil"}
    ),
    **{f"{name} leads outside": link(name, "outside") for name in ("metrics.jsonl", "summary.json", "manifest.json")},
    "a stage leads outside": link(STAGE, "folder"),
    "a pipe as log": pipe("metrics.jsonl"),
    "a log of four terabytes": a_huge_log,
    "a manifest nested deeply": text("manifest.json", "[" * 100_000),
    "a manifest of other types": edit(
        "manifest.json", lambda m, _: m | {"stages": {STAGE: []}, "changes": 3, "hardware": 7, "processes": {"a": []}}
    ),
    "checksums that lead outside": edit(
        f"{LAST}/{CHECKSUMS}", lambda c, _: {"files": c["files"] | {"../../../outside": {"size": 4, "sha256": "0"}}}
    ),
    "an empty checkpoint": an_empty_checkpoint,
    "a state of other types": edit(f"{LAST}/trainer_state.json", lambda s, _: s | {"global_step": "two", "epoch": []}),
}
"""Name → what the stranger has prepared."""
