"""Checks of the content of all examples: answers, duplicates, overlap of training and held-out examples, damage.

Examples that cannot be trained on are an error. A defect of up to `TOLERATED` of the examples, or one that only wastes
steps, is a warning with the numbers of the examples.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn

from rlm_plugins.data.images import image_columns, image_ids, undecoded, without_images
from rlm_plugins.data.text_columns import SAMPLED, Examples, TextColumn
from rlm_plugins.equation.batch import SAMPLE
from rlm_plugins.errors import RecipeError, RlmError, expected, is_out_of_memory, nearest
from rlm_plugins.recipe.checks.part_needs import iter_parts
from rlm_plugins.recipe.checks.required_columns import columns
from rlm_plugins.registry.protocols import columns_of, gold_column_of
from rlm_plugins.rollout.group_layout import columns_read
from rlm_plugins.specs import EnvironmentSpec
from rlm_plugins.stage import Reward, Stage

if TYPE_CHECKING:
    from rlm_plugins.recipe.resolve import Plan


def check_rows(
    environment_spec: EnvironmentSpec,
    name: str,
    where: str,
    *,
    with_text: bool = False,
    count: int | None = SAMPLED,
) -> None:
    """Check that every prompt is valid, by whole columns and in a sample of `count` examples (None: all).

    With `with_text` training examples may have an empty prompt: texts without a prompt.
    """
    if columns(environment_spec.train) == []:
        raise RecipeError(f"the environment '{name}' has no training examples", where=where)
    for kind, rows in (("training", environment_spec.train), ("held-out", environment_spec.test)):
        names = columns(rows)
        if reserved := [column for column in names if column in SAMPLE]:
            raise RecipeError(
                f"the {kind} examples of '{name}' have a column '{reserved[0]}', which is a reserved name",
                where=where,
                hint="rename it",
            )
        if names and "prompt" not in names:
            problem = f"the {kind} examples of '{name}' have no column 'prompt'"
            raise RecipeError(problem, where=where, allowed=", ".join(names), hint=nearest("prompt", names))
        first: Mapping[str, Any] = next(iter(undecoded(rows)), {})
        if names and not (with_text and kind == "training" and first.get("prompt") == ""):
            _check_prompts(rows, names, f"{kind} example {{}} of '{name}'", where, count)


def _check_prompts(rows: Any, names: list[str], title: str, where: str, count: int | None) -> None:
    if not hasattr(rows, "__len__"):
        rows = [next(iter(without_images(rows)))]
    if isinstance(rows, list | tuple) and len({*map(frozenset, rows)}) > 1:
        _refuse_other_columns(rows, names, title, where)
    examples = Examples(rows, count)
    first = examples.sample[0][1]["prompt"]
    for number, example in examples.sample:
        prompt, row = example["prompt"], title.format(number)
        if not prompt or (isinstance(prompt, str) and not prompt.strip()):
            hint = "texts without a prompt (the column `text`) train `algorithm: sft` alone" if prompt == "" else ""
            raise RecipeError(f"{row} has an empty prompt: {prompt!r}", where=where, hint=hint)
        if not isinstance(prompt, str) and not _is_chat(prompt):
            raise RecipeError(
                f"{row}: {expected('a string or a list of messages with `role` and `content`', prompt)}", where=where
            )
        if type(prompt) is not type(first):
            raise RecipeError(f"{row}: a string among conversations, or a conversation among strings", where=where)
    if blank := examples.texts("prompt", _text, roles=True).blank():
        (example,) = examples.picked(blank[:1])
        raise RecipeError(f"{title.format(blank[0])} has an empty prompt: {example['prompt']!r}", where=where)


def _is_chat(prompt: Any) -> bool:
    return isinstance(prompt, list) and all(isinstance(m, Mapping) and "role" in m for m in prompt)


def _refuse_other_columns(rows: Sequence[Mapping[str, Any]], names: list[str], title: str, where: str) -> None:
    """Raise RecipeError for the first example that has other columns than the first one."""
    number, row = next((number, row) for number, row in enumerate(rows) if {*row} != {*names})
    column = min({*names} ^ {*row})
    problem = "has no" if column in names else "alone has a"
    raise RecipeError(f"{title.format(number)} {problem} column '{column}'", where=where)


def check_prompt_source(plan: Plan, environment_spec: EnvironmentSpec) -> None:
    """Check that parts need no index into a stream, and refill no batch with images."""
    from rlm_plugins.rollout.prompt_source import reason

    where, rows = plan.address("algorithm"), environment_spec.train
    bounds = [bound for _, bound, _ in iter_parts(plan.slots, where)]
    is_stream = not (hasattr(rows, "__len__") and hasattr(rows, "__getitem__"))
    if is_stream and (index := reason(bounds)):
        name = plan.stage.body["environment"]["name"]
        problem = f"{index}, but the training set of '{name}' is a stream: prompts cannot be sampled by index"
        raise RecipeError(problem, where=where, hint="load it without `streaming`")
    refill = reason([bound for bound in bounds if bound.options.get("refill")])
    if refill and (names := {"image", "images"} & {*columns(rows)}):
        problem = f"{refill}, but the examples have a column '{min(names)}': a batch with images cannot be refilled"
        hint = "remove `refill`; the filter then leaves the batch smaller"
        raise RecipeError(problem, where=f"{where}.filters", hint=hint)


def check_size(environment_spec: EnvironmentSpec, config: Any, where: str) -> None:
    """Check that there are enough prompts for one generation batch.

    TRL drops an incomplete generation batch: with fewer examples it trains nothing, and reports success.
    """
    if not hasattr(config, "num_generations") or not hasattr(environment_spec.train, "__len__"):
        return
    num_prompts = config.generation_batch_size // config.num_generations
    if len(environment_spec.train) < num_prompts:
        raise RecipeError(
            f"{len(environment_spec.train)} training examples are fewer than the {num_prompts} prompts of a generation",
            where=where,
            hint=f"{config.generation_batch_size} completions ÷ num_generations {config.num_generations} = "
            f"{num_prompts}: take more examples, or a smaller batch",
        )


_LOG = logging.getLogger(__name__)
TOLERATED = 0.05
"""Share of examples with a defect above which training on the rest is refused."""
ROLES = {"system", "developer", "user", "assistant", "tool"}
_BLANK = {"", "?", "-", "--", "...", "[]", "{}"}
_NO_ANSWER = _BLANK | {"n/a", "na", "nan", "none", "null", "nil", "unknown", "todo", "tbd"}
_DAMAGED = {"�": "U+FFFD, the mark of a decoding error", "\0": "a NUL character"}
_MAX_CHARACTERS = 1_000_000
"""Characters of one prompt; several hundred thousand tokens."""


@dataclass(frozen=True)
class Title:
    """Name of some examples, and their numbers in the file that they were selected from."""

    text: str
    rows: Any

    def __str__(self) -> str:
        return self.text

    def numbers(self, numbers: Sequence[int]) -> str:
        """Return the first numbers as text, before held-out examples were removed."""
        indices = getattr(self.rows, "_indices", None)
        originals = [n if indices is None else indices.column(0)[n].as_py() for n in numbers[:5]]
        more = ", …" if len(numbers) > 5 else ""
        return f"examples {', '.join(map(str, originals))}{more} (counted from 0)"


def check_content(
    environment_spec: EnvironmentSpec,
    rewards: Sequence[Reward],
    name: str,
    where: str,
    *,
    generated: bool,
    count: int | None = SAMPLED,
) -> None:
    """Check the content of all examples, as whole columns where Arrow has a type for them, else of `count` (None: all).

    With `generated` the environment computes its examples, and may repeat them. Nothing of a stream is read.
    """
    keys: dict[str, TextColumn] = {}  # equal for examples that differ in case and blanks alone
    gold = _gold_columns(environment_spec, rewards)
    for kind, rows in (("training", environment_spec.train), ("held-out", environment_spec.test)):
        if not hasattr(rows, "__len__") or not len(rows) or "prompt" not in columns(rows):
            continue
        title, examples = Title(f"{kind} examples of '{name}'", rows), Examples(rows, count)
        texts = _with_images(rows, examples) or examples.texts("prompt", _text, roles=True)
        if len(texts.blank()) == len(texts.numbers):
            continue  # texts without a prompt
        keys[kind] = texts.normalized()
        _check_messages(examples, title, where)
        _check_texts(texts, title, where)
        answers = [column for column in gold if column in columns(rows)]
        for column in answers:
            _check_answers(examples, column, rewards, title, where, generated=generated)
        if kind == "training" and not generated:
            repeated, contradicting = examples.repeated(texts, answers)
            _check_share(contradicting, len(texts.numbers), title, "repeat a prompt with another answer", where)
            _warn(repeated, len(texts.numbers), title, "repeat a prompt and its answer", where)
    if len(keys) == 2:
        held_out, title = keys["held-out"], Title(f"held-out examples of '{name}'", environment_spec.test)
        overlap = held_out.shared_with(keys["training"])
        _warn(overlap, len(held_out.numbers), title, "are also training examples", where)


def _with_images(rows: Any, examples: Examples) -> TextColumn | None:
    """Return prompts with the digests of their images, of the sample; None without images."""
    if not image_columns(columns(rows)):
        return None
    sample: Any = rows.select(examples.numbers) if hasattr(rows, "select") else [rows[i] for i in examples.numbers]
    prompts = [_text(example["prompt"]) for _, example in examples.sample]
    return TextColumn.of([*map(str.__add__, prompts, image_ids(sample))], examples.numbers)


def _check_messages(examples: Examples, title: Title, where: str) -> None:
    """Check roles and contents of the messages of conversations."""
    if isinstance(examples.sample[0][1]["prompt"], str):
        return
    for number, example in examples.sample:
        for message in example["prompt"]:
            if message.get("role") not in ROLES:
                _refuse_role(number, message.get("role"), title, where)
        if not _contents(example["prompt"]).strip():
            raise RecipeError(f"prompt {number} of the {title} has only empty messages", where=where)
    if unknown := examples.unknown_role(ROLES):
        _refuse_role(*unknown, title, where)
    if blank := examples.texts("prompt", _contents).blank():
        raise RecipeError(f"prompt {blank[0]} of the {title} has only empty messages", where=where)


def _refuse_role(number: int, role: Any, title: Title, where: str) -> NoReturn:
    problem = f"prompt {number} of the {title} has a message of the role {role!r}"
    raise RecipeError(problem, where=where, allowed=", ".join(sorted(ROLES)))


def _check_texts(texts: TextColumn, title: Title, where: str) -> None:
    """Check prompts for their size and for damaged characters."""
    lengths = texts.lengths()
    if lengths.max() > _MAX_CHARACTERS:
        number, size = texts.numbers[lengths.argmax()], lengths.max() / 1e6
        raise RecipeError(f"prompt {number} of the {title} has {size:.1f} million characters", where=where)
    for character, meaning in _DAMAGED.items():
        _check_share(texts.containing(character), len(texts.numbers), title, f"have {meaning}", where)


def _check_answers(
    examples: Examples, column: str, rewards: Sequence[Reward], title: Title, where: str, *, generated: bool
) -> None:
    """Check a column of gold answers for missing ones, and one that is compared with for objects."""
    missing, nested, total = examples.missing(column, _NO_ANSWER), list[int](), len(examples)
    if missing is None:
        answers, total = [(number, example.get(column)) for number, example in examples.sample], len(examples.sample)
        missing = [number for number, answer in answers if _is_missing(answer)]
        nested = [number for number, answer in answers if isinstance(answer, Mapping)]
    defect = f"have no answer in the column '{column}'"
    if all(column in reward.part.part.required_data for reward in rewards) and not generated:
        _check_share(missing, total, title, defect, where)
    elif not generated:  # in a mixture of tasks, other rewards score the rest
        _warn(missing, total, title, defect, where)
    if column in [gold_column_of(reward.part.target) for reward in rewards]:
        defect = f"have an object in the column '{column}', and a correct answer is text, a number or a list of them"
        _check_share(sorted({*nested} - {*missing}), total, title, defect, where)


def _gold_columns(environment_spec: EnvironmentSpec, rewards: Sequence[Reward]) -> list[str]:
    names = columns(environment_spec.train) if hasattr(environment_spec.train, "__len__") else []
    required = dict.fromkeys(chain.from_iterable(reward.part.part.required_data for reward in rewards))
    return [column for column in required if column in names and column not in ("prompt", "prompts")]


def _text(prompt: Any) -> str:
    if isinstance(prompt, str):
        return prompt
    return "\n".join(f"{m.get('role')}: {_content(m.get('content'))}" for m in prompt or ())


def _contents(prompt: Any) -> str:
    return "\n".join(_content(message.get("content")) for message in prompt)


def _content(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(block.get("text", "")) for block in content if isinstance(block, Mapping))
    return str(content or "")


def _is_missing(answer: Any) -> bool:
    if isinstance(answer, float):
        return not math.isfinite(answer)  # NaN: an empty cell of a table
    if isinstance(answer, list | tuple | Mapping):
        return all(map(_is_missing, answer.values() if isinstance(answer, Mapping) else answer))
    return answer is None or (isinstance(answer, str) and answer.strip().casefold() in _NO_ANSWER)


def _check_share(numbers: Sequence[int], total: int, title: Title, defect: str, where: str) -> None:
    """Warn about a defect of few examples; raise RecipeError if more than the share `TOLERATED` has it."""
    if len(numbers) > TOLERATED * total:
        problem = f"{len(numbers)} of {total} {title} {defect}: {title.numbers(numbers)}"
        raise RecipeError(problem, where=where, hint=f"correct or remove them; up to {TOLERATED:.0%} are tolerated")
    _warn(numbers, total, title, defect, where)


def _warn(numbers: Sequence[int], total: int, title: Title, defect: str, where: str) -> None:
    if numbers:
        _LOG.warning("%s: %d of %d %s %s: %s", where, len(numbers), total, title, defect, title.numbers(numbers))


def check_stage_texts(stage: Stage, config: Any, where: str, count: int | None = SAMPLED) -> None:
    """Check the content of the examples of a stage, and their lengths by the tokenizer of the model.

    The config is None if nothing is trained; `count` is that of :func:`check_content`.
    """
    from rlm_plugins.data.text_lengths import check_texts, positions_of, warn_of_long_texts

    spec, name = stage.environment_spec, stage.body["environment"]["name"]
    generated = isinstance(spec.train, list | tuple)
    check_content(spec, stage.rewards, name, where, generated=generated, count=count)
    try:
        tokenizer = stage.source.tokenizer()
    except Exception:  # loading the model reports it, with its reason
        return
    positions = positions_of(stage.source.config)
    completion = None if spec.multi_turn else getattr(config, "max_completion_length", None)
    explicit, template = "max_completion_length" in stage.settings, stage.settings.get("chat_template_kwargs")
    limits: dict[str, Any] = {"explicit": explicit, "template": template}
    train = Examples(spec.train, count)
    check_texts(tokenizer, train, positions, completion, where, **limits)
    check_texts(tokenizer, Examples(spec.test, count), positions, completion, where, **limits, kind="held-out")
    warn_of_long_texts(tokenizer, train, _trained_columns(stage, completion, config), where)


@contextmanager
def named_example(stage: Stage) -> Iterator[None]:
    """Raise an error of a stage that trains as that of the example that caused it, if one is invalid.

    Before training only whole columns and a sample are checked; now all are, and the first invalid one is named.
    """
    try:
        yield
    except RlmError:
        raise
    except Exception as error:
        if is_out_of_memory(error):  # no example is to blame
            raise
        where, name = f"environment (stage '{stage.name}')", stage.body["environment"]["name"]
        try:
            with_text = "demonstration" in columns_of(stage.trainer)
            check_rows(stage.environment_spec, name, where, with_text=with_text, count=None)
            check_stage_texts(stage, None, where, count=None)
        except RecipeError as invalid:
            raise invalid from error
        raise


def _trained_columns(stage: Stage, completion: int | None, config: Any) -> dict[str, int]:
    """Return the columns whose text the policy is trained to generate, each with its maximum length in tokens."""
    used = {*columns_of(stage.trainer), *columns_read(stage.rollouts)}
    longest = completion or getattr(config, "max_length", None)
    limits: dict[str, int | None] = dict.fromkeys(sorted(used & {"demonstration", "completion"}), longest)
    limits |= dict.fromkeys(sorted({gold_column_of(reward.part.target) for reward in stage.rewards} - {""}), completion)
    return {name: limit for name, limit in limits.items() if limit}
