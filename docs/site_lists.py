"""The pages of the site on findings, metrics, keys of a recipe, commands and papers, and its navigation."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from rlm_lab.metrics import METRICS
from rlm_lab.recipe_keys import recipe_keys
from rlm_lab.rules import QUANTITIES, RULES
from site_pages import ROOT, algorithms_of, named, parts_of, place
from site_runs import evidence, healthy_values, readers
from site_text import link, page, paper_numbers, prose, table, titled
from typer.main import get_command

from rlm_plugins.cli.typer_app import app
from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Part
from rlm_plugins.report.objective_text import doc

NAVIGATION: Mapping[str, Sequence[str]] = {
    "Start": ["README.md"],
    "Lessons": [
        "docs/lessons.md",
        "docs/traps.md",
        "recipes/lessons/04-from-grpo-to-ppo/README.md",
        "docs/python.md",
        "docs/your-data.md",
        "docs/writing-parts.md",
        "docs/worlds.md",
        "docs/nodes.md",
        "recipes/pipelines/README.md",
    ],
    "Algorithms": ["book/algorithms/index.md", "book/papers.md", "recipes/papers/README.md", "docs/algorithms.md"],
    "Symbols and parts": ["book/symbols/index.md"],
    "Experiments": [
        "benchmarks/results/rows.md",
        "benchmarks/results/effects.md",
        "benchmarks/results/staleness.md",
        "recipes/survey/README.md",
        "benchmarks/results/language_model.md",
        "benchmarks/results/grpo_speed.md",
        "benchmarks/results/ppo_memory.md",
    ],
    "When a run fails": [
        "docs/diagnosis.md",
        "book/findings/index.md",
        "book/metrics.md",
        "docs/view.md",
        "docs/faults.md",
    ],
    "Reference": [
        "docs/reference/README.md",
        "book/keys.md",
        "book/commands.md",
        "plugins/README.md",
        "docs/architecture.md",
        "docs/speed.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "SECURITY.md",
    ],
}
"""Tab → its pages in their order; the pages of algorithms and symbols follow."""


SOURCES = ("recipes/*/*.yaml", "rlm_plugins/**/*.py", "plugins/*/src/**/*.py", "benchmarks/*.py")
"""Files whose papers are in the index, if no page cites them."""


def navigation(registry: Registry) -> str:
    """Return the navigation as settings of mkdocs."""
    keys = sorted({HOOKS[part.hook].key for part in parts_of(registry)})
    algorithms = [place(part) for part in algorithms_of(registry)]
    added = {"Algorithms": algorithms, "Symbols and parts": [f"book/symbols/{key}.md" for key in keys]}
    tabs = [{tab: [*pages, *added.get(tab, [])]} for tab, pages in NAVIGATION.items()]
    return json.dumps({"nav": tabs})[1:-1] + "\n"


def list_pages(registry: Registry) -> dict[str, str]:
    """Return the pages of this module."""
    rules = [rule.described() for rule in RULES]
    return {
        **{f"book/findings/{rule.name}.md": finding_page(rule.described(), evidence(rule)) for rule in RULES},
        **key_pages(),
        "book/findings/index.md": findings_page(rules),
        "book/metrics.md": metrics_page(),
        "book/keys.md": keys_page(),
        "book/commands.md": commands_page(),
        "book/papers.md": papers_page([*algorithms_of(registry), *parts_of(registry)]),
    }


def findings_page(rules: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of the findings."""
    links = [link(rule["name"], f"book/findings/{rule['name']}.md") for rule in rules]
    rows = [(name, rule["severity"], prose(rule["evidence"])) for name, rule in zip(links, rules, strict=True)]
    return page("Findings of rlm why", table(("finding", "severity", "evidence"), rows))


def finding_page(rule: Mapping[str, Any], run: str) -> str:
    """Return the page of a finding: its bounds, a remedy, and a run that has it, with what is said of it."""
    command = f"`rlm train recipes/lessons/01-addition.yaml {rule['example']}`"
    example = command if re.match(r"[\w.]+=", rule["example"]) else prose(rule["example"])
    sections = {
        "Reported if": "\n".join(
            f"- {bound}" for bound in [*map(explained, rule["bounds"]), prose(rule["when"])] if bound
        ),
        "Try": prose(rule["remedy"]),
        "A run that has it": f"{example}\n\n{run}",
        "Symptoms that it explains": ", ".join(map(symptom, rule["symptoms"])),
    }
    head = f"A finding of `rlm why`: {rule['severity']}."
    return page(rule["name"], head, prose(rule["evidence"]), *titled(sections))


def explained(bound: str) -> str:
    """Return a bound with the meaning of its quantity; that of a metric is on the page of metrics."""
    meaning = QUANTITIES.get(bound.split("`")[1], "")
    return f"{bound}: {prose(meaning)}" if meaning else bound


def symptom(name: str) -> str:
    """Return a symptom as a link to its page; a layer, such as `signal (any)`, has none."""
    return f"`{name}`" if " " in name else link(name, f"book/findings/{name}.md")


def metrics_page() -> str:
    """Return the page of all metrics, each under its own heading, with the values of a recorded run."""
    sections = []
    for metric in METRICS:
        facts = {"Formula": metric.formula, "To expect": metric.healthy}
        lines = [f"- {name}: {prose(text)}" for name, text in facts.items() if text]
        values = [f"`{name}` {first:.3g} → {last:.3g}" for name, first, last in healthy_values(metric.name)]
        lines += [f"- In a recorded run that learns: {', '.join(values)}"] if values else []
        rules = [link(name, f"book/findings/{name}.md") for name in readers(metric.name)]
        lines += [f"- Findings: {', '.join(rules)}"] if rules else []
        sections.append("\n\n".join([f"## `{metric.name}`", prose(metric.meaning), "\n".join(lines)]))
    return page("Metrics", "Everything that a run logs in `metrics.jsonl`.", *sections)


@cache
def recipes() -> dict[str, Any]:
    """Return the recipes of the repository by their paths."""
    files = sorted(ROOT.glob("recipes/**/*.yaml"))
    read = {str(path.relative_to(ROOT)): yaml.safe_load(path.read_text(encoding="utf-8")) for path in files}
    return {path: recipe for path, recipe in read.items() if isinstance(recipe, dict)}


def values_at(recipe: Any, keys: Sequence[str]) -> list[Any]:
    """Return the values at a path of keys in a recipe, in its stages, and in each entry of a list."""
    if isinstance(recipe, list):
        return [value for entry in recipe for value in values_at(entry, keys)]
    if not keys:
        return [recipe]
    if not isinstance(recipe, dict):
        return []
    inner = values_at(recipe[keys[0]], keys[1:]) if keys[0] in recipe else []
    return [*inner, *values_at(recipe.get("stages", []), keys)]


def key_pages() -> dict[str, str]:
    """Return the page of each key of a recipe: what it means, and the recipes here that set it."""
    return {f"book/keys/{path}.md": key_page(path, entry) for path, entry in recipe_keys().items()}


def key_page(path: str, entry: Mapping[str, Any]) -> str:
    """Return the page of a key."""
    default = "" if entry["default"] in ("", None) else f"; default `{entry['default']}`"
    set_by = {file: values_at(recipe, path.split(".")) for file, recipe in recipes().items()}
    set_by = {file: values for file, values in set_by.items() if values}
    rows = [(f"[{file}](/source/{file}.md)", f"`{cell_of(values[0])}`") for file, values in set_by.items()]
    inner = [link(key, f"book/keys/{key}.md") for key in recipe_keys() if key.startswith(f"{path}.")]
    count = f"{len(set_by)} of {len(recipes())} recipes of this repository set it, counted when this page was built."
    sections = {
        "Keys below it": ", ".join(inner),
        "In recipes": "\n\n".join([count, table(("recipe", "value"), rows[:12])]),
    }
    return page(
        path,
        f"Type: {prose(str(entry['type']))}{default}. `rlm explain {path}`",
        prose(entry["doc"]),
        *titled(sections),
    )


def cell_of(value: Any) -> str:
    """Return a value of a recipe on one line, its end left out if it is long."""
    text = json.dumps(value, ensure_ascii=False).replace("`", "'")
    return text if len(text) <= 90 else f"{text[:90]}…"


def keys_page() -> str:
    """Return the table of the keys of a recipe."""
    rows = []
    for path, entry in recipe_keys().items():
        default = "" if entry["default"] in ("", None) else f"`{entry['default']}`"
        rows.append((link(path, f"book/keys/{path}.md"), prose(str(entry["type"])), default, prose(entry["doc"])))
    head = """The sections and their keys. The fields of `trainer:` are those of TRL's config;
`rlm explain trainer.NAME` prints each."""
    return page("Keys of a recipe", head, table(("key", "type", "default", "meaning"), rows))


def commands_page() -> str:
    """Return the page of the commands of `rlm` with their arguments."""
    group: Any = get_command(app)
    context = group.make_context("rlm", [], resilient_parsing=True)
    sections = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        rows = [
            (f"`{argument(parameter)}`", prose(getattr(parameter, "help", "") or "")) for parameter in command.params
        ]
        heading = f"## rlm {name}"
        sections.append("\n\n".join([heading, prose(command.help or ""), table(("argument", "meaning"), rows)]))
    return page("Commands", *sections)


def argument(parameter: Any) -> str:
    """Return an argument or an option of a command as it is typed."""
    if parameter.param_type_name == "option":
        return ", ".join(parameter.opts)
    return str(parameter.metavar or parameter.name)


def papers_page(parts: Sequence[Part]) -> str:
    """Return the index of papers: every arXiv number with the algorithms, parts and pages that cite it."""
    cited: dict[str, list[str]] = defaultdict(list)
    for where, text in citing_texts(parts):
        for number in paper_numbers(text):
            cited[number].append(where)
    for path in sorted(path for pattern in SOURCES for path in ROOT.glob(pattern)):  # for what no page cites
        for number in paper_numbers(path.read_text(encoding="utf-8")):
            if number not in cited:
                cited[number].append(f"[{path.name}](/source/{path.relative_to(ROOT)}.md)")
    rows = []
    for number, places in sorted(cited.items(), reverse=True):
        rows.append((f"[{number}](https://arxiv.org/abs/{number})", ", ".join(dict.fromkeys(places))))
    head = f"{len(rows)} papers by their arXiv numbers, newest first, each with what implements or cites it here."
    return page("Papers", head, table(("arXiv", "here"), rows))


def citing_texts(parts: Sequence[Part]) -> Iterator[tuple[str, str]]:
    """Yield (link, text) of everything that may cite a paper."""
    for part in parts:
        algorithm = part.target
        is_algorithm = part.hook == "rlm_algorithms"
        text = f"{algorithm.about} {algorithm.source} {algorithm.pitfalls}" if is_algorithm else doc(part.target)
        yield named(part), text
    for pattern in ("docs/*.md", "benchmarks/results/*.md", "recipes/*/README.md", "plugins/*/README.md"):
        for path in sorted(ROOT.glob(pattern)):
            yield _file_link(path), path.read_text(encoding="utf-8")


def _file_link(path: Path) -> str:
    """Return the link to a page of the repository."""
    name = path.relative_to(ROOT)
    return f"[{name}](/{name})"
