"""Functions of the Python API: load, check, train, evaluate and explain, each in one call, and their results."""

from __future__ import annotations

import functools
import html
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from rlm_plugins import recipe as recipes
from rlm_plugins.api.arguments import AlgorithmLike, add, constant, named_algorithm, named_entry
from rlm_plugins.durable.files import JsonLines
from rlm_plugins.errors import RlmError, expected, nearest
from rlm_plugins.lazy import optional_module
from rlm_plugins.models.pretrained import tokenizer_of
from rlm_plugins.recipe import Recipe
from rlm_plugins.recipe.part_lookup import HOOK_OF
from rlm_plugins.registry import Registry
from rlm_plugins.specs import EnvironmentSpec, ModelSpec

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

    from rlm_plugins.api.arguments import Data, RewardLike

RecipeLike = str | Path | Mapping[str, Any] | Recipe
Overrides = Mapping[str, Any] | Sequence[str]


class Objects(TypedDict, total=False):
    """Arguments of :func:`rlm_plugins.train` that stand for sections of a recipe."""

    model: PreTrainedModel | PeftModel | str | Mapping[str, Any]
    tokenizer: PreTrainedTokenizerBase | ProcessorMixin
    train_dataset: Data
    test_dataset: Data
    rewards: Sequence[RewardLike]
    algorithm: AlgorithmLike


def load(recipe: RecipeLike, overrides: Overrides = ()) -> Recipe:
    """Load a recipe and check its structure; nothing heavy is imported.

    Args:
        recipe: A YAML file, or a mapping with the same keys.
        overrides: ``{"trainer.learning_rate": 1e-6}`` or ``["trainer.learning_rate=1e-6"]``.

    Raises:
        RecipeError: It names the address.

    >>> experiment = {"model": "scratch", "environment": "addition", "algorithm": "grpo"}
    >>> load(experiment, {"trainer.seed": 1}).bodies[0]["trainer"]
    {'seed': 1}
    """
    if isinstance(recipe, Recipe):
        return recipe
    changes = override_texts(overrides)
    if isinstance(recipe, Mapping):
        return recipes.of_mapping(recipe, changes)
    return recipes.load(recipe, changes)


def override_texts(overrides: Overrides) -> list[str]:
    """Return overrides as ``key=value``."""
    if isinstance(overrides, Mapping):
        return [f"{key}={json.dumps(value)}" for key, value in overrides.items()]
    return list(overrides)


def prepared(recipe: RecipeLike, overrides: Overrides, **objects: Unpack[Objects]) -> tuple[Recipe, Registry]:
    """Return a recipe with Python objects in the place of sections, and the registry that has them."""
    for name in objects:
        if name not in Objects.__annotations__:
            raise RlmError(f"unknown argument '{name}'", allowed=", ".join(Objects.__annotations__))
    if isinstance(recipe, Mapping):
        sections, registry = dict(recipe), Registry(load=(recipe.get("plugins") or {}).get("load", ()))
    else:
        loaded = load(recipe, overrides)
        registry = Registry(load=loaded.load, block=loaded.block)
        sections = {}
    replaced = _sections(registry, sections, objects)
    if isinstance(recipe, Mapping):
        return load(sections | replaced, overrides), registry
    for number, body in enumerate(loaded.bodies):
        if number == 0 and "model" in replaced:
            body["model"] = _with_adapter(replaced["model"], body.get("model"))
        body |= {key: value for key, value in replaced.items() if key != "model"}
    return loaded, registry


def _sections(registry: Registry, sections: Mapping[str, Any], objects: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sections that hold objects, with the names that the registry gives them."""
    replaced: dict[str, Any] = {}
    model = objects.get("model", sections.get("model"))
    if hasattr(model, "parameters"):
        replaced["model"] = {"name": add(registry, "model", _in_memory(model, objects.get("tokenizer")), "model")}
    elif "model" in objects:
        replaced["model"] = {"name": model} if isinstance(model, str) else model
    if "model" in replaced:
        replaced["model"] = _with_adapter(replaced["model"], sections.get("model"))
    if "train_dataset" in objects:
        spec = EnvironmentSpec(train=objects["train_dataset"], test=objects.get("test_dataset", ()))
        replaced["environment"] = {"name": add(registry, "environment", constant(spec), "train_dataset")}
    rewards = objects.get("rewards", sections.get("rewards"))
    if rewards and not isinstance(rewards, list | tuple):
        raise RlmError(expected("a list", rewards), where="rewards", hint="as in `rewards: [accuracy]`")
    if rewards:
        entries = [named_entry(registry, "rewards", entry) for entry in rewards]
        replaced["rewards"] = [{"name": entry} if isinstance(entry, str) else entry for entry in entries]
        for entry in replaced["rewards"]:
            entry.setdefault("as", entry["name"].rpartition("/")[2].rpartition(":")[2])
    algorithm = objects.get("algorithm", sections.get("algorithm"))
    if algorithm is not None:
        replaced["algorithm"] = named_algorithm(registry, algorithm)
    return replaced


def _with_adapter(model: Mapping[str, Any], section: Any) -> dict[str, Any]:
    """Return the section of a model that was given as an object, with the adapter of the section it replaces."""
    lora = section.get("lora") if isinstance(section, Mapping) else None
    return {**({"lora": lora} if lora is not None else {}), **model}


def _in_memory(model: Any, tokenizer: Any) -> Callable[[], ModelSpec]:
    if tokenizer is None:
        raise RlmError("`model` is an instance, so its `tokenizer` is required", where="train(model=…)")
    spec = ModelSpec(
        config=model.config,
        tokenizer=lambda: tokenizer_of(tokenizer),
        load=lambda: model,
        origin="given in Python",
        processor=(lambda: tokenizer) if hasattr(tokenizer, "image_processor") else None,
    )
    return constant(spec)


Entry = dict[str, Any]
Prepare = Callable[[Sequence[str]], "tuple[Recipe, Registry]"]
"""Overrides → a recipe with Python objects in it, and the registry that has them."""


class Displayed:
    """An object with a text for terminals and notebooks."""

    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text)}</pre>"


class Table(Displayed, list[Entry]):
    """Rows as plain data."""

    def __init__(self, rows: Sequence[Entry], text: str) -> None:
        super().__init__(rows)
        self.text = text


class Check(Table):
    """Findings of ``rlm check``, one entry per stage."""


class Explanation(Displayed):
    """Explanation of a name.

    Attributes:
        entries: As ``rlm explain --json`` prints them.
    """

    def __init__(self, entries: Sequence[Entry], text: str) -> None:
        self.entries, self.text = list(entries), text


class Run(Displayed):
    """One run and its results.

    Args:
        folder: Folder of the run.
        prepare: Returns recipe and registry of a run that was given Python objects, for further overrides; None: they
            are read from the folder.

    Raises:
        RlmError: The folder is no run.
    """

    def __init__(self, folder: str | Path, prepare: Prepare | None = None) -> None:
        self.folder, self.prepare = Path(folder), prepare
        if not (self.folder / "recipe.yaml").is_file():
            raise RlmError("there is no run in this folder", where=str(folder), hint="a run has a `recipe.yaml`")

    @property
    def text(self) -> str:  # type: ignore[override]
        """Name of the run and its score."""
        score = "" if self.score is None else f", held-out {self.summary['metric']} {self.score:.3f}"
        return f"Run('{self.folder}'{score})"

    @property
    def metrics(self) -> Any:
        """Every logged step: a `pandas.DataFrame` if pandas is installed, else a list of mappings."""
        return _frame(JsonLines(self.folder / "metrics.jsonl").records())

    @property
    def samples(self) -> Any:
        """Logged completions with their rewards, in the form of :attr:`metrics`."""
        return _frame(JsonLines(self.folder / "samples.jsonl").records())

    @property
    def summary(self) -> Entry:
        """Scores before and after, seconds; empty while the run is unfinished."""
        file = self.folder / "summary.json"
        return dict(json.loads(file.read_text())) if file.is_file() else {}

    @property
    def score(self) -> float | None:
        """Held-out score after training; None without evaluation."""
        return self.summary.get("after")

    def plot(self) -> Path:
        """Return the image of the learning curve.

        Raises:
            RlmError: There is none: matplotlib is not installed, or the run has no evaluation.
        """
        file = self.folder / "curve.png"
        if not file.is_file():
            raise RlmError("the run has no learning curve", where=str(self.folder), hint="pip install matplotlib")
        return file

    def view(self) -> Any:
        """Write the page of ``rlm view``, which a notebook displays.

        Raises:
            RlmError: The package rlm-view is not installed.
        """
        return optional_module("rlm_view.page", "the page of a run").displayed(self.folder)

    def model(self, stage: str | None = None) -> tuple[Any, Any]:
        """Return model and tokenizer of a finished stage, an adapter on its base.

        A vision-language model has its processor in place of the tokenizer. A reward model is a classifier of
        transformers.

        Args:
            stage: ``02-grpo`` or ``grpo``; None: the last finished one.

        Raises:
            RlmError: The stage is unknown or unfinished, or its base is a Python object of another process.
        """
        from rlm_plugins.models.pretrained import class_of_folder, loaded_processing_class

        paths = chain(self.folder.glob("*/adapter"), self.folder.glob("*/model"))
        results = {path.parent.name: path for path in paths}
        finished = sorted(name for name in results if (self.folder / name / "done").is_file())
        if not finished:
            raise RlmError("no stage of the run is finished", where=str(self.folder), hint="`.resume()`")
        named = {name[3:]: name for name in finished} | dict(zip(finished, finished, strict=True))
        if stage is not None and stage not in named:
            allowed, hint = ", ".join(finished), nearest(stage, named)
            raise RlmError(f"unknown or unfinished stage '{stage}'", allowed=allowed, hint=hint)
        name = finished[-1] if stage is None else named[stage]
        folder = results[name]
        is_adapter = folder.name == "adapter"
        model = self._adapted(name, folder) if is_adapter else class_of_folder(folder).from_pretrained(folder)
        return model, loaded_processing_class(folder, model)

    def _adapted(self, stage: str, folder: Path) -> Any:
        """Return the adapter of a stage on its base, which may be the merged result of the stage before."""
        from rlm_plugins.recipe.compose import compose
        from rlm_plugins.run.launch import trained_stage
        from rlm_plugins.run.recipe_argument import read
        from rlm_plugins.run.stage_result import adapted

        if (folder / "reward_model.json").is_file():
            return optional_module("rlm_judge.reward_files", "a reward model").load_peft_model(folder)
        recipe, registry = (self.prepare or partial(read, self.folder))(())
        return adapted(trained_stage(self.folder, compose(recipe, registry, held_out_only=True), stage))

    def resume(self) -> Run:
        """Train the rest of the run from its last checkpoint."""
        if self.prepare is not None:
            from rlm_plugins.run.train import train

            train(*self.prepare(()), self.folder, resume=True)
            return self
        from rlm_plugins.run.launch import launch

        launch(self.folder, [], resume=True)
        return self


def _frame(records: list[Entry]) -> Any:
    try:
        import pandas  # type: ignore[import-untyped]
    except ImportError:
        return records
    return pandas.DataFrame(records)


RUNS = Path("runs")


def check(recipe: RecipeLike, overrides: Overrides = (), **objects: Unpack[Objects]) -> Check:
    """Check everything that a run needs, before any weight is loaded.

    Args:
        recipe: As :func:`rlm_plugins.load` takes it.
        overrides: As there.
        **objects: As :func:`train` takes them.

    Returns:
        Per stage what ``rlm check --json`` prints; shown as text in a terminal or notebook.

    Raises:
        RlmError: The first problem, with its place.
    """
    from rlm_plugins.recipe.compose import compose
    from rlm_plugins.report.check_report import examine, render

    loaded, registry = prepared(recipe, overrides, **objects)
    stages = [examine(stage, registry) for stage in compose(loaded, registry)]
    return Check(stages, "\n\n".join(map(render, stages)))


def train(
    recipe: RecipeLike, overrides: Overrides = (), *, out: str | Path | None = None, **objects: Unpack[Objects]
) -> Run:
    """Train a recipe and return its run.

    Args:
        recipe: A YAML file, or a mapping in which functions may stand for parts.
        overrides: As :func:`rlm_plugins.load` takes them.
        out: Folder of the run; default: ``runs/NAME``, or ``runs/NAME-2``, … if that exists.
        **objects: Python objects in the place of sections: ``model`` (an instance, with ``tokenizer``),
            ``train_dataset`` and ``test_dataset``, ``rewards`` (functions, names or mappings), ``algorithm``.

    Raises:
        RlmError: The first problem, with its place.
    """
    from rlm_plugins.run.folder import fresh_folder
    from rlm_plugins.run.train import train as run_training

    loaded, registry = prepared(recipe, overrides, **objects)
    folder = fresh_folder(Path(out) if out is not None else RUNS / loaded.name)
    run_training(loaded, registry, folder)
    return Run(folder, lambda more: prepared(recipe, [*override_texts(overrides), *more], **objects))


def evaluate(source: str | Path | Run, overrides: Overrides = (), *, rows: int | None = None) -> dict[str, Any]:
    """Evaluate a run, or the initial model of a recipe file, on held-out examples.

    Args:
        source: A run, its folder, or a recipe file.
        overrides: As :func:`rlm_plugins.load` takes them.
        rows: Maximum number of held-out examples; 0: all; None: as in the recipe.

    Returns:
        ``metric``, ``score`` with its interval ``low`` and ``high``, ``rows``, ``rewards``.
    """
    from rlm_plugins.run.judgement import as_data, judged_stage
    from rlm_plugins.run.judgement import evaluate as judge
    from rlm_plugins.run.recipe_argument import read

    folder, prepare = (source.folder, source.prepare) if isinstance(source, Run) else (Path(source), None)
    loaded = (prepare or partial(read, folder))(override_texts(overrides))
    return as_data(judge([judged_stage(folder, loaded, None)], rows=rows), samples=0)


def algorithms() -> Table:
    """Return every algorithm, one entry each; shown as a table.

    >>> "dapo" in [row["name"] for row in algorithms()]
    True
    """
    lab = optional_module("rlm_lab.algorithms", "the table of algorithms")
    entries = lab.table(_registry())
    return Table(entries, lab.render(entries, 140))


def explain(name: str) -> Explanation:
    """Explain a part, a knob, an algorithm, a recipe key, a metric or a field of TRL's config.

    >>> explain("grpo").entries[0]["kind"]
    'algorithm'
    """
    entries = optional_module("rlm_lab.explain", "an explanation").explain(name, _registry())
    return Explanation(
        entries, "\n\n".join(map(optional_module("rlm_lab.explain_text", "an explanation").render, entries))
    )


def part(slot: str, name: str, **knobs: Any) -> Callable[..., Any]:
    """Return a part as a plain function with its knobs bound: tensors in, tensors out.

    >>> import torch
    >>> group_mean = part("advantage", "group_relative", scale="none")
    >>> group_mean(rewards=torch.tensor([1.0, 0.0]), group=torch.tensor([0, 0])).tolist()
    [0.5, -0.5]
    """
    if slot not in HOOK_OF:
        raise RlmError(f"unknown slot '{slot}'", allowed=", ".join(HOOK_OF))
    bound = _registry().find(HOOK_OF[slot], name, where=slot).bind(knobs, where=f"{slot}: {name}")
    if bound.stateful:
        return bound.target
    return functools.wraps(bound.target)(functools.partial(bound.target, **bound.knobs))


@functools.cache
def _registry() -> Registry:
    return Registry()
