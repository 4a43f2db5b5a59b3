"""Valid and invalid plugins, through real entry points and single files."""

from __future__ import annotations

import pickle
import sys
import traceback
from pathlib import Path

import pytest
from fake_plugins import Installer, reward

from rlm_plugins import __version__
from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.errors import PluginError, RecipeError
from rlm_plugins.registry import BUILTIN, Registry
from rlm_plugins.specs import Algorithm

HOOK = "from rlm_plugins import hookimpl\n"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installer:
    return Installer(tmp_path, monkeypatch)


def file(folder: Path, source: str, name: str = "mine") -> Path:
    path = folder / f"{name}.py"
    path.write_text(HOOK + source, encoding="utf-8")
    return path


def test_built_in_parts_are_a_plugin() -> None:
    registry = Registry()
    assert registry.plugins[BUILTIN].origin == f"rlm-plugins {__version__}"
    assert registry.find("rlm_advantages", "gae") is registry.find("rlm_advantages", "builtin/gae")
    assert not registry.broken()


def test_parts_come_in_batch_order() -> None:
    order = [list(HOOKS).index(part.hook) for part in Registry()]
    assert order == sorted(order)
    assert len(set(order)) > 10


def test_every_built_in_part_is_valid() -> None:
    for part in Registry():
        part.check()
        assert Path(part.file).is_file() or isinstance(part.target, Algorithm)


def test_plugin_is_found_through_its_entry_point(install: Installer) -> None:
    path = install("guest", reward(), distribution="rlm-guest", version="3.1")
    registry = Registry()
    part = registry.find("rlm_rewards", "brevity")
    assert part is registry.find("rlm_rewards", "guest/brevity")
    assert registry.plugins["guest"].origin == "rlm-guest 3.1"
    assert registry.plugins["guest"].error is None
    assert part.bind({"characters": 3}).call({"completions": ["a", "b"]}) == [0.0, 0.0]
    assert part.file == str(path)
    assert not registry.broken()


def test_the_entry_point_may_name_an_object(install: Installer) -> None:
    source = """
    from rlm_plugins import hookimpl

    class Offers:
        @hookimpl
        def rlm_samplers(self):
            return {"backwards": lambda size: list(range(size))[::-1]}

    plugin = Offers()
    """
    path = install("guest", source)
    entry = next(path.parent.glob("*.dist-info")) / "entry_points.txt"
    entry.write_text(entry.read_text().strip() + ":plugin\n")
    assert Registry().find("rlm_samplers", "backwards").bind({}).call({"size": 3}) == [2, 1, 0]


def test_bare_names_of_built_ins_are_reserved(install: Installer) -> None:
    install("guest", reward("accuracy"))
    registry = Registry()
    assert registry.find("rlm_rewards", "accuracy").plugin == BUILTIN
    with pytest.raises(RecipeError, match=r"not loaded: guest .*'accuracy' is the reserved name of a built-in part"):
        registry.find("rlm_rewards", "guest/accuracy")


def test_a_clash_lists_the_rivals_and_full_names_still_work(install: Installer) -> None:
    install("one", reward())
    install("two", reward())
    registry = Registry()
    with pytest.raises(RecipeError) as caught:
        registry.find("rlm_rewards", "brevity", where="rewards[0].name")
    assert "rewards[0].name: several plugins offer a part 'brevity'" in str(caught.value)
    assert "allowed: one/brevity, two/brevity" in str(caught.value)
    assert registry.find("rlm_rewards", "two/brevity").plugin == "two"
    assert {"one/brevity", "two/brevity"} <= set(registry.names("rlm_rewards"))
    assert not registry.broken()


def test_two_plugins_of_one_name_are_an_error_that_names_both_packages(install: Installer) -> None:
    install("guest", reward("a"), distribution="rlm-first", version="1.0")
    install("guest", reward("b"), distribution="rlm-second", version="2.0")
    with pytest.raises(
        RecipeError, match=r"two plugins have the name 'guest': rlm-\w+ \d\.0 and rlm-\w+ \d\.0"
    ) as caught:
        Registry().find("rlm_rewards", "guest/a")
    assert "rlm-first 1.0" in str(caught.value)
    assert "rlm-second 2.0" in str(caught.value)
    assert not Registry(block=["guest"]).broken()


@pytest.mark.parametrize(
    ("hook", "name", "expected"),
    [
        ("rlm_advantages", "group_relativ", "did you mean 'group_relative'?"),
        ("rlm_algorithms", "GRPO", "did you mean 'grpo'?"),
        ("rlm_advantages", "clip", "'clip' is a part for `policy_loss`"),
        ("rlm_rewards", "nobody/accuracy", "unknown plugin 'nobody': is it installed?"),
        ("rlm_rewards", "buildin/accuracy", "did you mean 'builtin'?"),
        ("rlm_rewards", "math_accuracy", "pip install rlm-math"),
        ("rlm_rewards", "math/math_accuracy", "pip install rlm-math"),
    ],
)
def test_an_unknown_name(hook: str, name: str, expected: str) -> None:
    with pytest.raises(RecipeError) as caught:
        Registry().find(hook, name, where="here")
    assert f"here: unknown part '{name}' for `{HOOKS[hook].key}`" in str(caught.value)
    assert expected in caught.value.hint
    assert caught.value.allowed


def test_a_part_of_a_blocked_or_disabled_package_is_not_to_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RecipeError) as blocked:
        Registry(block=["algorithms"]).find("rlm_advantages", "algorithms/gpg")
    assert "pip install" not in str(blocked.value)
    monkeypatch.setattr("rlm_plugins.registry.registry.disabled", lambda: {"algorithms"})
    with pytest.raises(RecipeError, match="rlm-algorithms is disabled: `rlm doctor --enable algorithms`"):
        Registry().find("rlm_advantages", "gpg")


BROKEN = {
    "ImportError": "import a_module_that_nobody_has",
    "SystemExit": "import sys; sys.exit(3)",
    "BaseException": "raise BaseException('odd')",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_plugin_fails_only_where_used(install: Installer, kind: str) -> None:
    path = install("broken", BROKEN[kind])
    install("sound", reward())
    registry = Registry()
    assert registry.find("rlm_rewards", "brevity").plugin == "sound"
    registry.load_all()
    error = registry.plugins["broken"].error
    assert error is not None
    assert kind in [c.__name__ for c in type(error).__mro__]
    for name in ("broken/brevity", "anything"):
        with pytest.raises(RecipeError, match="not loaded: broken") as caught:
            registry.find("rlm_rewards", name)
        assert caught.value.__cause__ is error
        assert path.name in "".join(traceback.format_exception(caught.value))


def test_an_interrupt_is_not_swallowed(install: Installer) -> None:
    """Ctrl-C during an import ends the command; a plugin that raises KeyboardInterrupt is only disabled."""
    install("raises", "raise KeyboardInterrupt")
    (broken,) = Registry().broken()
    assert "raised KeyboardInterrupt" in str(broken.error)
    install("slow", "import signal, time, os\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(1)")
    with pytest.raises(KeyboardInterrupt):
        Registry().load_all()


OFFER = "@hookimpl\ndef rlm_rewards():\n    return {}"  # to be formatted
CONTRACT = {
    "misspelt hook": ("@hookimpl\ndef rlm_reward():\n    return {}",
        ["unknown hook 'rlm_reward'", "did you mean 'rlm_rewards'?"]),
    "hook without mark": ("def rlm_rewards():\n    return {}\n@hookimpl\ndef rlm_shapers():\n    return {}",
        ["'rlm_rewards' is not marked with", "@hookimpl"]),
    "a name with a slash": (OFFER.format('{"a/b": print}'), ["registers a part called 'a/b'"]),
    "a row that is none": ("@hookimpl\ndef rlm_algorithms():\n    return {'mine': {'advantage': 'gae'}}",
        ["rlm_algorithms 'mine'", "is of type dict", "rlm_plugins.specs.Algorithm"]),
    "a wrong signature": ("@hookimpl\ndef rlm_advantages():\n    return {'mine': lambda reward: reward}",
        ["rlm_advantages 'mine'", "requires 'reward'", "did you mean 'rewards'?"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", CONTRACT)
def test_a_broken_contract_leaves_one_plugin_out(
    install: Installer, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It stops only what names its parts, and one line tells the command that leaves it out for good."""
    source, expected = CONTRACT[kind]
    path = install("guest", HOOK + source)
    registry = Registry()
    assert registry.find("rlm_rewards", "accuracy").plugin == BUILTIN
    with pytest.raises(RecipeError) as caught:
        registry.find("rlm_rewards", "guest/a")
    assert isinstance(caught.value.__cause__, PluginError)
    for text in [*expected, "plugin 'guest'", path.name]:
        assert text in str(caught.value.__cause__)
    assert "`rlm doctor --disable guest`" in caplog.text


def test_a_single_file_is_a_plugin(tmp_path: Path) -> None:
    path = file(tmp_path, "@hookimpl\ndef rlm_advantages():\n    return {'median': lambda rewards, group: rewards}")
    registry = Registry(load=[path])
    assert registry.find("rlm_advantages", "median") is registry.find("rlm_advantages", "mine/median")
    assert registry.plugins["mine"].origin.startswith(f"{path} sha256:")
    assert registry.find("rlm_advantages", "median").file == str(path)
    assert not (tmp_path / "__pycache__").exists(), "no litter beside the recipe"


def test_file_changed_within_a_second_is_loaded_again(tmp_path: Path) -> None:
    for answer in (111, 222):
        path = file(tmp_path, f"@hookimpl\ndef rlm_samplers():\n    return {{'s': lambda size: {answer}}}")
        assert Registry(load=[path]).find("rlm_samplers", "s").bind({}).call({"size": 1}) == answer


def test_a_class_in_a_file_can_be_pickled_and_a_dataclass_be_a_part(tmp_path: Path) -> None:
    source = """
from __future__ import annotations
from dataclasses import dataclass
from typing import Literal
Mode = Literal["slow", "fast"]

@dataclass(kw_only=True)
class Running:
    mode: Mode = "slow"
    def __call__(self, rewards):
        return rewards

@hookimpl
def rlm_advantages():
    return {"running": Running}
"""
    path = tmp_path / "memory.py"
    path.write_text(source.replace("from dataclasses", "from rlm_plugins import hookimpl\nfrom dataclasses"))
    bound = Registry(load=[path]).find("rlm_advantages", "running").bind({"mode": "fast"})
    assert bound.stateful
    assert bound.target.mode == "fast"
    assert pickle.loads(pickle.dumps(bound.target)) == bound.target


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = undefined_name", "line 2: x = undefined_name"),
        ("def oops(:", "SyntaxError"),
        ("@hookimpl\ndef rlm_rewardz():\n    return {}", "did you mean 'rlm_rewards'?"),
        ("@hookimpl\ndef rlm_rewards():\n    return {'r': open('/nowhere/at/all')}", "FileNotFoundError"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_an_error_at_once(tmp_path: Path, source: str, expected: str) -> None:
    path = file(tmp_path, source)
    with pytest.raises(PluginError) as caught:
        Registry(load=[path])
    assert expected in str(caught.value)
    assert "mine.py" in str(caught.value)


def test_a_file_that_is_not_there_or_has_the_name_of_a_plugin(install: Installer, tmp_path: Path) -> None:
    install("mine", reward(), distribution="rlm-mine")
    path = file(tmp_path, "@hookimpl\ndef rlm_rewards():\n    return {}")
    with pytest.raises(RecipeError, match=r"there is a plugin 'mine' already: rlm-mine 1.0"):
        Registry(load=[path])
    with pytest.raises(RecipeError, match=r"plugins.load: .*nowhere.py: there is no such file"):
        Registry(load=[tmp_path / "nowhere.py"])
    assert "mine" in Registry(load=[path], block=["mine"]).plugins, "a blocked plugin makes room"


def test_a_blocked_plugin_is_not_even_imported(install: Installer) -> None:
    path = install("guest", f"{reward()}\nopen(__file__ + '.imported', 'w').close()")
    registry = Registry(block=["guest"])
    assert not Path(f"{path}.imported").exists()
    assert "guest" not in registry.plugins
    with pytest.raises(RecipeError, match="the recipe blocks the plugin 'guest'"):
        registry.find("rlm_rewards", "guest/brevity")
    Registry().load_all()
    assert Path(f"{path}.imported").exists()


def test_blocking_an_uninstalled_plugin(install: Installer) -> None:
    install("guest", reward())
    with pytest.raises(RecipeError, match=r"plugins.block: unknown installed plugin 'gest'") as caught:
        Registry(block=["gest"])
    assert "did you mean 'guest'?" in str(caught.value)


def test_every_hook_is_called_exactly_once(install: Installer) -> None:
    path = install(
        "guest",
        HOOK
        + "calls = []\n@hookimpl\ndef rlm_rewards():\n    calls.append(1)\n    return {'r': lambda completions: []}",
    )
    registry = Registry()
    registry.find("rlm_rewards", "r").bind({}).call({"completions": []})
    list(registry)
    registry.names("rlm_rewards")
    assert sys.modules[path.stem].calls == [1]


def test_trace_shows_every_hook_call(
    install: Installer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = install("guest", reward())
    install("broken", HOOK + "@hookimpl\ndef rlm_rewards():\n    raise RuntimeError('no GPU here')")
    Registry().load_all()
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("RLM_TRACE", "1")
    Registry().load_all()
    shown = capsys.readouterr().err.splitlines()
    assert f"rlm: guest:{path.stem} rlm_rewards() → brevity" in shown
    assert any(line.startswith("rlm: broken:") and line.endswith("RuntimeError('no GPU here')") for line in shown)
    assert any(line.startswith("rlm: builtin:") and "rlm_advantages() → group_relative" in line for line in shown)
