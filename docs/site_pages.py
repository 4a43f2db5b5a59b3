"""The pages of the site on algorithms, symbols and parts, written from the registry.

Every number on them is computed when they are built: the values of each library's variant on one batch, the curves of
benchmarks/results/rows.jsonl, the differences between algorithms.
"""

from __future__ import annotations

import ast
import inspect
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

from rlm_lab.explain import explain, part_entry
from rlm_lab.part_changes import change_line, changes
from site_samples import first_example, scores_of
from site_text import code, curve, link, page, page_name, papers_of, prose, table, titled

from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.registry import Registry
from rlm_plugins.registry.contract import code_of
from rlm_plugins.registry.part import Part
from rlm_plugins.report.objective_text import about, slots_of

ROOT = Path(__file__).resolve().parents[1]
ROWS = ROOT / "benchmarks" / "results" / "rows.jsonl"
NEIGHBORS = 3

Entry = dict[str, Any]
Curves = Mapping[str, Sequence[Sequence[Sequence[float]]]]
"""Algorithm → per seed the points (step, accuracy)."""


def algorithms_of(registry: Registry) -> list[Part]:
    """Return the algorithms, without the variants of other libraries."""
    return [part for part in registry if part.hook == "rlm_algorithms" and "@" not in part.name]


def parts_of(registry: Registry) -> list[Part]:
    """Return the parts that have a page: all but algorithms, and the fields of a trainer's config."""
    return [part for part in registry if part.hook not in ("rlm_algorithms", "rlm_settings")]


def place(part: Part) -> str:
    """Return the path of the page of a part or an algorithm."""
    if part.hook == "rlm_algorithms":
        return f"book/algorithms/{page_name(part.full_name)}.md"
    return f"book/parts/{HOOKS[part.hook].key}/{page_name(part.full_name)}.md"


def named(part: Part) -> str:
    """Return the name of a part as a link to its page."""
    return link(part.name if part.plugin == "builtin" else part.full_name, place(part))


def package_of(entry: Entry) -> str:
    """Return the package of a part or an algorithm, as a link to its page if there is one."""
    name = entry["origin"].partition(" ")[0]
    readme = f"plugins/{name}/README.md"
    return link(name, readme) if (ROOT / readme).exists() else f"`{name}`"


# ---- parts and symbols


def part_pages(registry: Registry) -> dict[str, str]:
    """Return the page of every part."""
    return {place(part): part_page(part, part_entry(part, registry)) for part in parts_of(registry)}


def part_page(part: Part, entry: Entry) -> str:
    """Return the page of a part: formula, meaning, knobs, data and code."""
    slot = link(HOOKS[part.hook].key, f"book/symbols/{HOOKS[part.hook].key}.md")
    defaults = ["required" if k["required"] else f"`{json.dumps(k['default'], default=str)}`" for k in entry["knobs"]]
    knobs = [(f"`{k['name']}`", k["type"], default) for k, default in zip(entry["knobs"], defaults, strict=True)]
    sections = {
        "Knobs": table(("knob", "type", "default"), knobs),
        "Data": data_table(entry["data"]),
        "Called": called(part),
        "Papers": papers_of(entry["doc"]),
        "Source": source_of(part, entry),
    }
    head = f"A part for {slot} of the package {package_of(entry)}. `rlm explain {entry['address']}`"
    formula = code(entry["formula"], "equation") if entry["formula"] else ""
    return page(part.name, head, formula, prose(entry["doc"]), *titled(sections))


def called(part: Part) -> str:
    """Return what an environment or a reward returns now; empty for other parts."""
    calls = {"rlm_environments": first_example, "rlm_rewards": scores_of}
    return calls[part.hook](part) if part.hook in calls else ""


def data_table(data: Sequence[Entry]) -> str:
    """Return the table of what a part may name as an argument."""
    rows = [(f"`{d['name']}`", f"`{d['shape']}`" if d["shape"] else "", prose(d["meaning"])) for d in data]
    return table(("argument", "shape", "meaning"), rows)


def source_of(part: Part, entry: Entry) -> str:
    """Return the file of a part as a link, and the code of a function without its docstring."""
    path = Path(entry["file"])
    if not path.is_relative_to(ROOT):
        return ""
    file = path.relative_to(ROOT)
    text = f"[{file}](/source/{file}.md), line {entry['line']}"
    target = code_of(part.target)
    if not inspect.isfunction(target) or target.__code__.co_filename.startswith("<"):  # such as a dataclass's
        return text
    source = dedent(inspect.getsource(target))
    function = ast.parse(source).body[0]
    if not isinstance(function, ast.FunctionDef):
        return text
    lines = source.splitlines()
    if ast.get_docstring(function):
        del lines[function.body[0].lineno - 1 : function.body[0].end_lineno]
    return "\n\n".join([text, code("\n".join(lines), "python")])


def symbol_pages(registry: Registry) -> dict[str, str]:
    """Return the page of every slot and other place for parts, and the table of all."""
    hooks = [hook for hook in HOOKS if hook != "rlm_settings" and registry.names(hook)]
    pages = {f"book/symbols/{HOOKS[hook].key}.md": symbol_page(hook, registry) for hook in hooks}
    links = [link(HOOKS[hook].key, f"book/symbols/{HOOKS[hook].key}.md") for hook in hooks]
    rows = [(f"`{HOOKS[hook].symbol}`", key, f"`{hook}`") for hook, key in zip(hooks, links, strict=True)]
    head = "A part fills a slot of the equation, or another place of a recipe. Each hook registers parts of one kind."
    return pages | {"book/symbols/index.md": page("Symbols and parts", head, table(("symbol", "key", "hook"), rows))}


def symbol_page(hook: str, registry: Registry) -> str:
    """Return the page of a slot: what its parts are given and return, and the parts."""
    entry = explain(hook, registry)[0]
    parts = [part for part in registry if part.hook == hook and "@" not in part.name]
    in_order = sorted(parts, key=lambda part: (part.plugin != "builtin", part.full_name))
    rows = [(named(part), prose(about(part))) for part in in_order]
    count = "a list of parts" if entry["many"] else "one part"
    head = f"Recipe key `{entry['key']}`, symbol `{entry['symbol']}`, hook `{hook}`: {count}."
    sections = {"Parts": table(("part", "meaning"), rows), "Data": data_table(entry["data"])}
    return page(entry["key"], head, prose(entry["doc"]), *titled(sections))


# ---- algorithms


def algorithm_pages(registry: Registry) -> dict[str, str]:
    """Return the page of every algorithm, and the table of all."""
    algorithms = algorithms_of(registry)
    slots = {part.full_name: slots_of(part.target, registry) for part in algorithms}
    curves = measured_curves()
    pages = {}
    for part in algorithms:
        others = [other for other in algorithms if other is not part]
        distances = [(changes(slots[part.full_name], slots[other.full_name]), other) for other in others]
        nearest = sorted(distances, key=lambda pair: (len(pair[0]), pair[1].full_name))[:NEIGHBORS]
        pages[place(part)] = algorithm_page(part, part_entry(part, registry), nearest, curves)
    rows = [(named(part), prose(part.target.about), prose(part.target.source)) for part in algorithms]
    head = """Each page has the equation, the differences between libraries with numbers computed on one batch, the
published settings, the nearest algorithms, and what was measured here."""
    return pages | {"book/algorithms/index.md": page("Algorithms", head, table(("algorithm", "idea", "source"), rows))}


def algorithm_page(part: Part, entry: Entry, nearest: Sequence[tuple[list[Entry], Part]], curves: Curves) -> str:
    """Return the page of an algorithm."""
    name = part.name if part.plugin == "builtin" else part.full_name
    symptoms = "Symptoms in a run: [findings](/book/findings/index.md)."
    sections = {
        "Equation": equation(entry),
        "What goes wrong": "\n\n".join([prose(entry["pitfalls"]), symptoms]),
        "In other libraries": conventions(entry["card"]),
        "Published settings": published_settings(part.name),
        "Nearest algorithms": "\n\n".join(neighbor(other, differences) for differences, other in nearest),
        "Measured": measured(part.name, curves),
    }
    source = f"Source: {prose(entry['source'])}. {papers_of(entry['source'])}" if entry["source"] else ""
    head = f"Of the package {package_of(entry)}; trainer `{entry['trainer']}`. `rlm explain {name}`"
    return page(part.name, prose(entry["about"]), source, head, *titled(sections))


def equation(entry: Entry) -> str:
    """Return the objective of an algorithm and the table of its symbols."""
    rows = []
    for symbol in entry["symbols"]:
        target = f"/book/parts/{symbol['key']}/{page_name(symbol['full_name'])}.md"
        formula = f"`{symbol['formula']}`" if symbol["formula"] else ""
        rows.append((f"`{symbol['symbol']}`", f"[`{symbol['call']}`]({target})", formula, prose(symbol["in_source"])))
    line = code(entry["objective"], "equation") if entry["objective"] else ""
    return "\n\n".join(filter(None, [line, table(("symbol", "part", "formula", "name in the source"), rows)]))


def conventions(card: Entry) -> str:
    """Return the table of the variants of other libraries, with their values on the example batch."""
    if not card:
        return ""
    rows = []
    for line in card["conventions"]:
        numbers = ["–" if line[key] is None else f"{line[key]:.4f}" for key in ("winner", "loss", "gradient")]
        cells = map(change_line, line["differs"])
        differs = "; ".join(f"`{address}`: {before} → {after}" for _, address, before, after in cells)
        rows.append((f"`{line['name']}`", *numbers, differs))
    rewards = " ".join(f"{reward:g}" for reward in card["rewards"])
    text = f"""Computed when this page was built: Â of the best completion for the rewards {rewards}; loss and norm of
its gradient on ten completions of three groups."""
    return "\n\n".join([text, table(("variant", "Â", "loss", "gradient", "differs in"), rows)])


def published_settings(name: str) -> str:
    """Return the recipe with the published settings of an algorithm; empty if there is none."""
    path = ROOT / "recipes" / "papers" / f"{name}.yaml"
    if not path.exists():
        return ""
    return "\n\n".join([f"`{path.relative_to(ROOT)}`", code(path.read_text(encoding="utf-8"), "yaml")])


def neighbor(other: Part, differences: Sequence[Entry]) -> str:
    """Return the differences to another algorithm."""
    if not differences:
        return f"{named(other)}: the same parts and knobs; they differ in their trainer or recipe."
    rows = [(f"`{line[0]}`", *(f"`{cell}`" for cell in line[1:])) for line in map(change_line, differences)]
    return "\n\n".join([f"To {named(other)}:", table(("symbol", "what", "here", "there"), rows)])


def measured_curves() -> Curves:
    """Return the curves of all seeds of the measured algorithms."""
    found: dict[str, list[list[list[float]]]] = defaultdict(list)
    for line in ROWS.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row.get("curve"):
            found[row["row"]].append(row["curve"])
    return found


def measured(name: str, curves: Curves) -> str:
    """Return the curves of the seeds of an algorithm beside GRPO's mean; empty if it was not measured."""
    if name not in curves:
        return ""
    task = "[the quickstart's task](/benchmarks/results/rows.md)"
    text = f"Held-out greedy accuracy on {task}, {len(curves[name])} seeds; dashed: the mean of `grpo`."
    return "\n\n".join([text, curve(curves[name], curves["grpo"])])
