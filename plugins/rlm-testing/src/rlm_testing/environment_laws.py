"""Laws of environments, samplers, rollout sources, generators, models and algorithms."""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch
from hypothesis import strategies as st

from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.rollout.collector import call_source
from rlm_plugins.rollout.episodes import call_tools, reset_environment, step_environment, tools_of
from rlm_plugins.rollout.generator_call import generate
from rlm_plugins.specs import Algorithm, Environment, EnvironmentSpec, Message, ModelSpec, has_step
from rlm_testing.law import Draw, LawBroken, Subject, failure, law, load_checkpoint
from rlm_testing.reward_laws import UNUSUAL, select, strategy_of
from rlm_testing.strategies import batches, copied

Tool = Callable[..., Any]
Actions = Sequence[Any]
MAX_EXAMPLES = 200
"""Examples of a data set that are checked."""
PROMPTS = ("2*2=", "2*3=", "7*8=")
COLUMNS = {"demonstration": ("4", "6", "56", None)}
ROLLOUT_END = 0
VOCAB_SIZE, END, PAD = 11, 1, 0
_TEXTS = st.sampled_from(UNUSUAL) | st.text(max_size=8)
_NUMBERS: dict[Any, st.SearchStrategy[Any]] = {int: st.integers(-9, 99), float: st.floats(-9, 9), bool: st.booleans()}


def _tool_actions(tools: Sequence[Tool]) -> st.SearchStrategy[Actions]:
    """Return a strategy of turns that call each tool once, with arguments that its type hints allow.

    A tool with other hints than text, number, bool, choice or a list of them is left out.
    """
    known = [(tool.__name__, _arguments(tool)) for tool in tools]
    return st.tuples(*(_call(name, arguments) for name, arguments in known if arguments is not None))


def _play(environment: Any, example: Mapping[str, Any], actions: Actions, functions: Sequence[Tool]) -> list[Any]:
    """Return all results of these actions, up to the end of the episode."""
    results: list[Any] = [reset_environment(environment, example)]
    for action in actions:
        if has_step(environment):
            results.append(step_environment(environment, action))
            done = results[-1][-1]
        else:
            messages, _, done = call_tools(environment, action, functions)
            results.append(messages)
        if done:
            break
    return results


def _call(name: str, arguments: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[Message]:
    return arguments.map(
        lambda values: {"role": "assistant", "content": "", "tool_calls": [{"name": name, "arguments": values}]}
    )


def _arguments(tool: Tool) -> st.SearchStrategy[dict[str, Any]] | None:
    try:
        hints = get_type_hints(tool)
    except (NameError, AttributeError, TypeError):  # a name that is imported for type checkers only
        return None
    known = {name: _values(hints.get(name)) for name in inspect.signature(tool).parameters}
    supported = {name: values for name, values in known.items() if values is not None}
    return st.fixed_dictionaries(supported) if len(supported) == len(known) else None


def _values(hint: Any) -> st.SearchStrategy[Any] | None:
    """Return a strategy of values for a type hint; None: not supported."""
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if get_origin(hint) is list and (items := _values(*get_args(hint))) is not None:
        return st.lists(items, max_size=3)
    return _TEXTS if hint is str else _NUMBERS.get(hint)


def _build(subject: Subject, *data: Any) -> Any:
    """Return the result of a new instance of the part."""
    try:
        return subject.fresh().call(dict(zip(subject.part.required_data, data, strict=False)))
    except Exception as error:
        raise LawBroken(failure(error)) from error


def _require_equal(first: Any, second: Any, example: dict[str, Any], again: str = "the second") -> None:
    """Check that a second result is that of the first time."""
    if first != second:
        raise LawBroken(f"{first} the first time, {second} {again}", example)


def _examples(data_set: Any) -> list[Any]:
    return list(islice(iter(data_set), MAX_EXAMPLES))


def _prompt(example: Mapping[str, Any]) -> str:
    return json.dumps(example["prompt"], sort_keys=True, default=str)


@law("rlm_environments")
def environment_spec(subject: Subject, draw: Draw) -> None:
    """Check that it builds an EnvironmentSpec whose examples have a prompt: text, or messages with role and content."""
    spec = _build(subject)
    if not isinstance(spec, EnvironmentSpec):
        raise LawBroken(f"it returned {type(spec).__name__}")
    if not _examples(spec.train):
        raise LawBroken("it has no training examples")
    for example in [*_examples(spec.train), *_examples(spec.test)]:
        prompt = example.get("prompt") if isinstance(example, Mapping) else None
        chat = isinstance(prompt, list) and prompt and all({"role", "content"} <= {*message} for message in prompt)
        if not (isinstance(prompt, str) or chat):
            raise LawBroken(f"an example has no prompt: {example!r}")


@law("rlm_environments")
def held_out(subject: Subject, draw: Draw) -> None:
    """Check that no prompt of the test set is in the training set."""
    spec = _build(subject)
    test_prompts = {_prompt(example) for example in spec.test}
    shared = next((example for example in spec.train if _prompt(example) in test_prompts), None)
    if shared is not None:
        raise LawBroken(f"both contain {shared!r}")


@law("rlm_environments")
def repeat(subject: Subject, draw: Draw) -> None:
    """Check that it builds the same examples every time."""
    first, second = _build(subject), _build(subject)
    if _examples(first.train) != _examples(second.train) or _examples(first.test) != _examples(second.test):
        raise LawBroken("the examples differ the second time: sample them from a generator with a fixed seed")


@law("rlm_environments")
def episode(subject: Subject, draw: Draw) -> None:
    """Check that an episode depends on its example and the actions alone, and that no action makes it fail."""
    spec = _build(subject)
    if not spec.multi_turn:
        return
    example = dict(draw(st.sampled_from(_examples(spec.train)[:8])))
    first, second = (spec.environment() if spec.environment else Environment() for _ in range(2))
    actions = draw(st.lists(_TEXTS, max_size=4) if has_step(first) else _tool_actions([*spec.tools, *tools_of(first)]))
    try:
        results = [_play(environment, example, actions, spec.tools) for environment in (first, second)]
    except Exception as error:
        raise LawBroken(failure(error), {"example": example, "actions": actions}) from error
    _require_equal(results[0], results[1], {"example": example, "actions": actions})


@law("rlm_samplers", applies=lambda s: s.names("count"))
def choice(subject: Subject, draw: Draw) -> None:
    """Check that it returns `count` different, valid indices, as a function of draw, seed and state."""
    size = draw(st.integers(1, 40))
    arguments = {"size": size, "count": draw(st.integers(1, size))}
    arguments |= {"draw": draw(st.integers(0, 3)), "seed": draw(st.integers(0, 99))}
    data = {name: arguments[name] for name in subject.part.data}
    old, new = subject.fresh(), subject.fresh()
    batch = draw(batches())
    for part in (old, new):
        part.update(copied(batch))
    selected = list(old.call(data))
    if not len(set(selected)) == len(selected) == arguments["count"] or not set(selected) <= set(range(size)):
        raise LawBroken(f"it returned {selected!r}", arguments)
    if isinstance(subject.part.target, type):
        new = subject.fresh()
        load_checkpoint(new, old)
    _require_equal(selected, list(new.call(data)), arguments, "from the state of a checkpoint")


@law("rlm_samplers", applies=lambda s: not s.names("count"))
def indices(subject: Subject, draw: Draw) -> None:
    """Check that it returns at most `size` valid indices, as a function of epoch and seed."""
    arguments = {"size": draw(st.integers(1, 40)), "epoch": draw(st.integers(0, 3)), "seed": draw(st.integers(0, 99))}
    data = [arguments[name] for name in subject.part.required_data]
    order = _build(subject, *data)
    if not all(isinstance(i, int) for i in order) or len(order) > arguments["size"]:
        raise LawBroken(f"it returned {order!r}", arguments)
    if invalid := [i for i in order if not 0 <= i < arguments["size"]]:
        raise LawBroken(f"index {invalid[0]} is out of range", arguments)
    _require_equal(list(order), list(_build(subject, *data)), arguments)


@law("rlm_models")
def source(subject: Subject, draw: Draw) -> None:
    """Check that it describes a model without loading it: a ModelSpec with a config."""
    spec = _build(subject)
    if not isinstance(spec, ModelSpec):
        raise LawBroken(f"it returned {type(spec).__name__}")
    if not hasattr(spec.config, "to_dict") or not callable(spec.load) or not callable(spec.tokenizer):
        raise LawBroken("its config is no transformers config, or `load` or `tokenizer` is not callable")


@law("rlm_algorithms")
def algorithm(subject: Subject, draw: Draw) -> None:
    """Check that every slot names a known part, with knobs that fit."""
    from rlm_plugins.registry import Registry

    if not isinstance(subject.part.target, Algorithm):
        raise LawBroken(f"it is a {type(subject.part.target).__name__}, not an Algorithm")
    registry = Registry()
    registry.find("rlm_trainers", subject.part.target.trainer)
    for key, slot in subject.part.target.slots().items():
        hook = next(hook for hook, known in HOOKS.items() if known.key == key)
        specs: list[Any] = list(slot) if isinstance(slot, list | tuple) else [slot]
        for spec in specs:
            if spec is not None:
                knobs: dict[str, Any] = {"name": spec} if isinstance(spec, str) else dict(spec)
                part = registry.find(hook, knobs.pop("name"), where=key)
                part.bind({k: v for k, v in knobs.items() if k not in HOOKS[hook].options}, where=key)


class _LetterTrainer:
    """Tokenizer of letters, and the members of a trainer that sources use."""

    eos_token_id = ROLLOUT_END
    temperature = 1.0

    def __call__(self, text: str, **options: Any) -> dict[str, list[int]]:
        return {"input_ids": [ord(letter) for letter in text]}

    def prompt_ids(self, prompts: Sequence[str]) -> list[list[int]]:
        return [[ord(letter) for letter in prompt] for prompt in prompts]

    def answer_ids(self, prompt: str, text: str) -> list[int]:
        return [*(ord(letter) for letter in text), ROLLOUT_END]

    def set_temperature(self, temperature: float) -> None:
        self.temperature = temperature


def _echo(
    prompts: Sequence[str], prefixes: Sequence[Sequence[int]] | None = None, *, greedy: bool = False
) -> list[list[int]]:
    """Return the prompt once more, and the end token."""
    starts = prefixes or [()] * len(prompts)
    return [[*map(ord, prompt), ROLLOUT_END][len(start) :] for prompt, start in zip(prompts, starts, strict=True)]


@law("rlm_rollouts")
def completions(subject: Subject, draw: Draw) -> None:
    """Check that it returns the requested completions, reproducibly within a step, and leaves its data unchanged."""
    data = _source_data(subject, draw)
    if call_source(subject.fresh(), select(data, [])).pop("completion_ids"):
        raise LawBroken("it returned completions for no prompts")
    before = copy.deepcopy({name: data[name] for name in ("prompts", "inputs", "source_index")})
    first = call_source(subject.fresh(), data)
    if before != {name: data[name] for name in before}:
        raise LawBroken("it changed its data", before)
    _require_equal(first, call_source(subject.fresh(), data), before)


def _source_data(subject: Subject, draw: Draw) -> dict[str, Any]:
    """Return the data of a source: whole groups, each of one example."""
    size, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    columns = {"prompt": PROMPTS, **COLUMNS, **subject.columns}
    examples = [{name: draw(strategy_of(x)) for name, x in columns.items()} for _ in range(groups)]
    inputs = [example for example in examples for _ in range(size)]
    return {
        "prompts": [example["prompt"] for example in inputs],
        "inputs": inputs,
        "source_index": list(range(size)) * groups,
        "generate": _echo,
        "tokenizer": _LetterTrainer(),
        "step": draw(st.integers(0, 9)),
        "seed": draw(st.integers(0, 9)),
        "trainer": _LetterTrainer(),
    }


@cache
def _model() -> Any:
    """Return a decoder of one layer with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        ends = {"pad_token_id": PAD, "eos_token_id": END, "bos_token_id": None}
        return LlamaForCausalLM(LlamaConfig(vocab_size=VOCAB_SIZE, **sizes, **ends)).eval()


@law("rlm_generators", share=0.1)
def continues(subject: Subject, draw: Draw) -> None:
    """Check that greedy decoding equals that of `model.generate`, and sampling depends on the seed alone."""
    call = _decoding(draw, samples=False)
    expected = _model().generate(**call["inputs"], generation_config=call["config"])
    ids = _ids(subject, call)
    if not torch.equal(ids, expected):
        raise LawBroken(f"{ids.tolist()}, where `model.generate` returns {expected.tolist()}", call["inputs"])
    call = _decoding(draw, samples=True)
    torch.manual_seed(7)
    first = _ids(subject, call).tolist()
    torch.manual_seed(7)
    _require_equal(first, _ids(subject, call).tolist(), call["inputs"])


def _decoding(draw: Draw, *, samples: bool) -> dict[str, Any]:
    """Return inputs with prompts of several lengths, some of them twice."""
    from transformers import GenerationConfig

    prompts = draw(st.lists(st.lists(st.integers(2, VOCAB_SIZE - 1), min_size=1, max_size=4), min_size=1, max_size=4))
    prompts += prompts[: draw(st.integers(0, 2))]
    width = max(map(len, prompts))
    ids = torch.tensor([[PAD] * (width - len(row)) + row for row in prompts])
    ends = {"eos_token_id": [END, 2, 3], "pad_token_id": PAD, "disable_compile": True}
    config = GenerationConfig(max_new_tokens=draw(st.integers(1, 5)), do_sample=samples, **ends)
    return {"inputs": {"input_ids": ids, "attention_mask": (ids != PAD).long()}, "config": config}


def _ids(subject: Subject, call: dict[str, Any]) -> torch.Tensor:
    return generate(subject.fresh(), _model().generate, _model(), **call).ids
