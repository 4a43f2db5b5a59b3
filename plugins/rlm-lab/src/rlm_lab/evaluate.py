"""``rlm eval`` and ``rlm sample``: scores and completions of a run, an adapter or a model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import transformers

from rlm_plugins.cli.output import announce
from rlm_plugins.data.images import require_pillow
from rlm_plugins.errors import RlmError
from rlm_plugins.evaluation.completions import complete
from rlm_plugins.models.pretrained import tokenizer_of
from rlm_plugins.recipe import yaml_strict
from rlm_plugins.recipe.compose import compose
from rlm_plugins.recipe.part_lookup import part_of
from rlm_plugins.registry import Registry
from rlm_plugins.report.text_layout import columns
from rlm_plugins.run.folder import MANIFEST
from rlm_plugins.run.judgement import Judgement, checked, judged_stage
from rlm_plugins.run.judgement import evaluate as judge
from rlm_plugins.run.launch import finished_stage
from rlm_plugins.run.recipe_argument import read
from rlm_plugins.specs import ModelSpec
from rlm_plugins.stage import Stage
from rlm_plugins.workers.distributed import processes

ADAPTER = "adapter_config.json"


def is_recipe_or_run(source: Path) -> bool:
    """Return True for a recipe file, or the folder of a run; an exported model has a recipe and no manifest."""
    return source.suffix in (".yaml", ".yml") or (source / MANIFEST).is_file()


def model_of(source: Path, stage: str | None, overrides: Sequence[str]) -> tuple[ModelSpec, Stage | None]:
    """Return a model, and the stage that trained it if it is that of a run.

    Args:
        source: A run, a recipe, a folder of an adapter or a model, a ``.gguf`` file, or a name on the hub.
        stage: Name of a stage of a run (default: the last finished one).
        overrides: Of the recipe of a run.

    Raises:
        RlmError: There is no such model, or the stage is unknown or unfinished.
    """
    if not is_recipe_or_run(source):
        model = _without_recipe(source)
        exported = source / "recipe.yaml"  # written by `rlm export`
        trained = compose(*read(exported, ()), held_out_only=True, source=model)[-1] if exported.is_file() else None
        return model, trained
    stages = compose(*read(source, overrides), held_out_only=True)
    judged_stage = finished_stage(source, stages, stage) if source.is_dir() else stages[0]
    return judged_stage.source, judged_stage


def _without_recipe(source: Path) -> ModelSpec:
    if (source / ADAPTER).is_file():
        return _adapter(source)
    if not source.exists() and (source.is_absolute() or str(source).count("/") != 1):
        raise RlmError("there is no such run, recipe or model", where=str(source), hint="a hub name is OWNER/NAME")
    return _checkpoint(str(source))


def _checkpoint(path: str) -> ModelSpec:
    part = Registry().find("rlm_models", part_of(path))
    return cast(ModelSpec, part.bind({"path": path}).call({}))


def _adapter(folder: Path) -> ModelSpec:
    """Return the base of an adapter with the adapter merged into it."""
    base: str = json.loads((folder / ADAPTER).read_text(encoding="utf-8")).get("base_model_name_or_path") or ""
    if not base:
        hint = "`rlm export RUN --merge` writes adapter and base as one model"
        raise RlmError("the adapter does not name its base", where=str(folder / ADAPTER), hint=hint)
    model = _checkpoint(base)

    def load() -> Any:
        from peft import PeftModel

        return PeftModel.from_pretrained(model.load(), folder).merge_and_unload()

    has_tokenizer = (folder / "tokenizer_config.json").is_file()
    tokenizer = pretrained_tokenizer(folder) if has_tokenizer else model.tokenizer
    return replace(model, tokenizer=tokenizer, load=load, origin=str(folder))


def pretrained_tokenizer(folder: Path) -> Any:
    """Return the function that loads the tokenizer of a folder, padding on the left."""
    from transformers import AutoTokenizer

    return lambda: AutoTokenizer.from_pretrained(folder, padding_side="left", trust_remote_code=False)


INHERITED = ("max_completion_length", "chat_template_kwargs", "temperature", "top_p", "top_k", "min_p")
"""Settings of the trainer that a recipe of `on` takes from the run that is judged."""


def evaluate(
    source: Path,
    overrides: Sequence[str] = (),
    *,
    rows: int | None = None,
    stage: str | None = None,
    k: int = 0,
    on: Sequence[Path] = (),
) -> list[Judgement]:
    """Evaluate a model on held-out examples; no training examples are required.

    Args:
        source: The folder of a run, for the result of its last finished stage; a recipe, for its initial model; an
            adapter, a model or a hub name, with `on`.
        overrides: ``key=value``, of the recipe that has the examples.
        rows: Maximum number of held-out examples of a set; 0: all; None: as in the recipe.
        stage: Name of another stage (``02-grpo`` or ``grpo``).
        k: Completions sampled per example, for pass@k and majority@k; 0: none.
        on: Recipes whose examples and rewards are used in place of those of `source`.

    Returns:
        One entry per held-out set: the one of each recipe, then those of its `evaluation.suite`.

    Raises:
        RlmError: The stage is unknown or unfinished, or it has no evaluation.
    """
    return judge(_stages(source, overrides, stage, on), rows=rows, k=k, log_line=announce)


def _stages(source: Path, overrides: Sequence[str], stage: str | None, on: Sequence[Path]) -> list[Stage]:
    """Return a stage per recipe with examples, each with the model that is judged."""
    if not on and not is_recipe_or_run(source):
        if not (source / "recipe.yaml").is_file():
            _without_recipe(source)  # raises if it is no model either
            hint = "`--on RECIPE` names a recipe with `environment` and `rewards`"
            raise RlmError("a model has no held-out examples of its own", where=str(source), hint=hint)
        on = [source / "recipe.yaml"]  # written by `rlm export`
    if on:
        model, trained = model_of(source, stage, ())
        return [checked(_stage_on(recipe, overrides, model, trained), recipe) for recipe in on]
    return [judged_stage(source, read(source, overrides), stage)]


def _stage_on(recipe: Path, overrides: Sequence[str], model: ModelSpec, trained: Stage | None) -> Stage:
    """Return the last stage of a recipe that can be evaluated, with a model in place of its own."""
    document = yaml_strict.read(recipe).data
    body = document if isinstance(document, dict) else {}
    defaults = {"model": "scratch", "algorithm": "grpo"}
    added = [f"{key}={value}" for key, value in defaults.items() if key not in body and "stages" not in body]
    stages = compose(*read(recipe, [*added, *overrides]), held_out_only=True, source=model)
    stage = next((s for s in reversed(stages) if s.evaluation is not None), stages[-1])
    settings = trained.settings if trained is not None else {}
    inherited = {name: settings[name] for name in INHERITED if name in settings}
    return replace(stage, name=recipe.stem, settings={**inherited, **stage.settings})


def render(judged: Sequence[Judgement], samples: int) -> str:
    """Return the scores as text: completions, means of the rewards, and last the scores with their intervals."""
    lines = [text for judgement in judged for text in _details(judgement, samples, titled=len(judged) > 1)]
    return "\n".join([*lines, *map(_last_line, judged)])


def _details(judged: Judgement, samples: int, *, titled: bool) -> list[str]:
    report = judged.report
    listed = [_sample(sample) for sample in report.samples[:samples]]
    sampled = [f"  {line}" for line in judged.sampled.lines()] if judged.sampled else []
    means = columns((label, f"{mean:.4f}") for label, mean in report.rewards.items())
    return [*([judged.name] if titled else []), *listed, means, *sampled]


def _last_line(judged: Judgement) -> str:
    stage, report = judged.stage, judged.report
    assert stage.evaluation is not None
    score, low, high = (report.text_of(value) for value in (report.score, report.low, report.high))
    line = f"{judged.name}: held-out {stage.evaluation.metric} {score} [{low}, {high}] on {report.rows} examples"
    return f"{line} ({stage.source.origin})"


def _sample(sample: Any) -> str:
    rewards = ", ".join(f"{label} {score}" for label, score in sample["rewards"].items())
    return f"  prompt      {sample['prompt']}\n  completion  {sample['completion']}\n  rewards     {rewards}\n"


class Sampler:
    """Samples completions from the model of a run, an adapter or a model, or from the initial model of a recipe.

    Args:
        source: The folder of a run, a recipe, the folder of an adapter or a model, or a name on the hub.
        stage: Name of a stage (default: the last finished one).
        images: Files of images, which belong to the first message of a user.

    Raises:
        RlmError: There is no such model, an image cannot be opened, or the model takes no images.
    """

    def __init__(self, source: Path, stage: str | None = None, images: Sequence[Path] = ()) -> None:
        transformers.utils.logging.disable_progress_bar()
        model, self._stage = model_of(source, stage, ())
        if images and model.processor is None:
            raise RlmError(f"the model '{model.origin}' takes no images", where="--image")
        self._images = open_images(images)
        announce(f"loading {model.origin}")
        self._processing_class = model.processing_class()
        self._model = model.load().to(processes().device)

    def complete(
        self, prompt: str | list[dict[str, str]], count: int = 1, temperature: float = 1.0, max_new_tokens: int = 0
    ) -> list[str]:
        """Return completions of a prompt.

        Args:
            prompt: Text, or messages. Text is the user's message if the prompts of the data set are chats.
            count: Number of completions.
            temperature: Sampling temperature; 0: greedy.
            max_new_tokens: Longest completion; 0: as in training.
        """
        if isinstance(prompt, str) and (self.is_chat or self._images):
            prompt = [{"role": "user", "content": prompt}]
        example = {"prompt": prompt, **({"images": self._images} if self._images else {})}
        sampling = {"do_sample": True, "temperature": temperature, "top_p": 1.0, "top_k": 0}
        completions = complete(
            self._model,
            self._processing_class,
            [example] * count,
            max_new_tokens or self._limit,
            self._template,
            sampling=sampling if temperature > 0 else None,
        )
        return [*completions.texts]

    @property
    def is_chat(self) -> bool:
        """True if the prompts of the data set are lists of messages; of a model without one, if it has a template."""
        if self._stage is None:
            return bool(tokenizer_of(self._processing_class).chat_template)
        return not isinstance(next(iter(self._stage.environment_spec.train))["prompt"], str)

    @property
    def _template(self) -> dict[str, Any]:
        return dict((self._stage.settings if self._stage else {}).get("chat_template_kwargs") or {})

    @property
    def _limit(self) -> int:
        if self._stage is None:
            return 256
        return int(self._stage.settings.get("max_completion_length") or self._stage.longest_completion)


def chat(sampler: Sampler, ask: Callable[[], str], **options: Any) -> Iterator[str]:
    """Yield a completion for each line of input, until it ends; a chat keeps its messages.

    Args:
        sampler: Samples the completions.
        ask: Returns the next line; raises EOFError at the end.
        **options: Temperature and length, as in :meth:`Sampler.complete`.
    """
    messages: list[dict[str, str]] = []
    while True:
        try:
            line = ask()
        except EOFError:
            return
        if not line.strip():
            continue
        messages.append({"role": "user", "content": line})
        answer = sampler.complete(messages if sampler.is_chat else line, **options)[0]
        messages.append({"role": "assistant", "content": answer})
        yield answer


def open_images(files: Sequence[Path]) -> list[Any]:
    """Return the images in files."""
    if not files:
        return []
    require_pillow()
    from PIL import Image

    images = []
    for file in files:
        try:
            images.append(Image.open(file).convert("RGB"))
        except (OSError, ValueError) as error:
            raise RlmError(f"an image cannot be opened: {error}", where=str(file)) from None
    return images
