"""The table of algorithms, two algorithms compared, and the equation of `rlm explain`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from rlm_lab import algorithms as table
from rlm_lab.explain import part_entry
from rlm_lab.explain_text import render as text_of
from typer.testing import CliRunner

from rlm_plugins.cli import app
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Part
from rlm_plugins.report.objective_text import slots_of
from rlm_plugins.specs import Algorithm

REGISTRY = Registry()
ROWS = [part for part in REGISTRY if part.hook == "rlm_algorithms"]
NAMES = REGISTRY.names("rlm_algorithms")
ENTRIES = table.table(REGISTRY)
every_algorithm = pytest.mark.parametrize("part", ROWS, ids=lambda part: part.full_name)


def output_of(*arguments: str, width: int = 120) -> str:
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": str(width)})
    assert result.exit_code == 0, result.output
    return str(result.stdout)


def words(text: str) -> str:
    """Return text without line breaks, also without those after an underscore."""
    return re.sub(r"(?<=_) (?=\w)", "", " ".join(text.split()))


@every_algorithm
def test_file_of_an_algorithm_is_where_it_is_defined(part: Part) -> None:
    line = Path(part.file).read_text().splitlines()[part.target.line - 1]
    assert line in (f'["{part.name}"]', f"{part.name} = Algorithm(")


@pytest.mark.parametrize("width", [112, 120])
def test_the_table_fits(width: int) -> None:
    assert max(map(len, output_of("explain", "algorithms", width=width).splitlines())) <= width


def test_table_lists_every_algorithm_with_parts_and_knobs() -> None:
    text = words(table.render(ENTRIES, 1000))
    assert [entry["name"] for entry in ENTRIES] == sorted(NAMES, key=[e["name"] for e in ENTRIES].index)
    for entry in ENTRIES:
        row, _, library = entry["name"].partition("@")
        assert f"{row} " in text
        assert not library or f"@{library}" in text.partition(f"{row} ")[2]
    cells = {entry["name"]: " ".join(table._cells(entry)) for entry in ENTRIES}
    for part in ROWS:
        for spec in part.target.slots().values():
            for one in spec if isinstance(spec, list | tuple) else [spec]:
                for value in {"name": one}.values() if isinstance(one, str) else (one or {}).values():
                    shown = f"{value:g}" if type(value) in (int, float) else json.dumps(value).strip('"')
                    assert shown in cells[part.name], (part.name, value)


def test_sources_and_years() -> None:
    of = {entry["name"]: (table.reference(entry["source"]), entry["year"]) for entry in ENTRIES}
    assert of["grpo"] == ("2402.03300", 2024)
    assert of["reinforce"] == ("Williams 1992", 1992)
    assert of["flash_rl"] == ("Yao et al. 2025", 2025)
    assert of["sft"][1] is None
    assert "Williams 1992 · 1992" not in output_of("explain", "algorithms")


def test_the_table_as_data() -> None:
    found = json.loads(output_of("explain", "algorithms", "--json"))
    assert [row["name"] for row in found] == [entry["name"] for entry in ENTRIES]
    assert set(found[0]) == {"name", "full_name", "family", "about", "source", "year", "trainer", "slots"}


@every_algorithm
def test_the_equation_names_every_part_with_its_file(part: Part) -> None:
    entry = part_entry(part, REGISTRY)
    slots = slots_of(part.target, REGISTRY)
    bound = [p for spec in slots.values() for p in (spec if isinstance(spec, list) else [spec]) if p is not None]
    assert sorted(s["full_name"] for s in entry["symbols"]) == sorted(p.part.full_name for p in bound)
    text = " ".join(text_of(entry).split())
    for symbol in entry["symbols"]:
        source = Path(symbol["file"]).read_text().splitlines()[symbol["line"] - 1 :]
        assert any(symbol["name"] in line or line.startswith("class ") for line in source[:3])
        assert symbol["call"] in text
        assert symbol["formula"]
        assert not re.search(r"ε_high|ε_low|(?<!\w)ε(?!\w)", symbol["formula"]), "every ε has its value"
    for name in part.target.names.values():
        assert f"in the source: {name}" in text


def test_grpo_and_dapo() -> None:
    found = table.diff("grpo", "dapo", REGISTRY)
    changes = {(c["key"], c["name"], c["knob"]): (c["before"], c["after"]) for c in found["changes"]}
    assert changes[("policy_loss", "clip", "epsilon_high")] == ("null (0.2)", 0.28)
    assert changes[("aggregator", "sequence_mean", None)] == ("sequence_mean(empty_completions=excluded)", "token_mean")
    assert changes[("filters", "nonzero_std", None)] == (
        None,
        "nonzero_std(refill=10, reward=accuracy, singleton=zero)",
    )
    assert changes[("penalties", "kl", None)][0].startswith("kl(beta=0.04, ")
    assert {one["key"] for one in found["same"]} == {"importance", "advantage"}
    text = output_of("explain", "grpo", "dapo", width=100)
    assert max(map(len, text.split("unchanged")[0].splitlines()[4:])) <= 100
    assert "null (0.2)" in text
    assert json.loads(output_of("explain", "grpo", "dapo", "--json"))["changes"][0]["symbol"] == "1/Z"


@every_algorithm
def test_diff_is_empty_only_with_itself(part: Part) -> None:
    name = REGISTRY.names("rlm_algorithms")[ROWS.index(part)]
    found = table.diff(name, name, REGISTRY)
    assert not found["changes"]
    assert "nothing" in table.render_diff(found, 120)
    forth, back = table.diff("grpo", name, REGISTRY), table.diff(name, "grpo", REGISTRY)
    assert len(forth["changes"]) == len(back["changes"])
    if name != "grpo":
        assert forth["changes"] or part.target.trainer != "grpo"


def test_a_list_with_a_part_twice() -> None:
    def row(*penalties: Any) -> Algorithm:
        return Algorithm(about="", source="", advantage="leave_one_out", policy_loss="unclipped", penalties=penalties)

    registry = Registry()
    one, two = {"name": "kl", "beta": 0.1}, {"name": "kl", "estimator": "k2", "beta": 0.2}
    registry.add(Part("rlm_algorithms", "a", "builtin", row(one, two)))
    registry.add(Part("rlm_algorithms", "b", "builtin", row(one, {**two, "beta": 0.3})))
    (change,) = table.diff("a", "b", registry)["changes"]
    assert (change["symbol"], change["knob"], change["before"], change["after"]) == ("Ω", "beta", 0.2, 0.3)


def test_another_trainer_is_a_difference() -> None:
    assert re.search(r"trainer +sft +grpo", output_of("explain", "sft", "grpo"))
