"""Completions for evaluation, greedy or sampled: single-turn or episodes, by transformers or by an inference engine."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import torch

from rlm_plugins.data.images import messages_of
from rlm_plugins.models.adapters import causal_model, evaluation_mode
from rlm_plugins.models.pretrained import tokenizer_of
from rlm_plugins.registry.part import Bound
from rlm_plugins.rollout.engine_call import Engine, EngineCompletions, EnginePolicy
from rlm_plugins.rollout.episodes import EpisodeRunner, reward_inputs
from rlm_plugins.rollout.generator_call import generate
from rlm_plugins.specs import EnvironmentSpec
from rlm_plugins.workers.distributed import processes


class EngineModel(torch.nn.Module):
    """A model without weights that generates with an inference engine; `complete` calls it, `model` has the configs."""

    def __init__(self, model: Any, pad_token_id: int, complete: Callable[..., EngineCompletions]) -> None:
        super().__init__()
        self.config, self.generation_config, self.device = model.config, model.generation_config, torch.device("cpu")
        self._pad, self._complete = pad_token_id, complete

    @classmethod
    def of_trainer(cls, trainer: Any) -> EngineModel:
        """Return the policy in training with the engine of its trainer, which gets the current weights."""
        generation = trainer.vllm_generation
        generation.sync_weights()
        return cls(generation.policy, trainer.tokenizer.pad_token_id, generation.complete)

    @classmethod
    def started(cls, engine: Engine, model: Any, tokenizer: Any, settings: Any, sequences: int) -> EngineModel:
        """Return a model whose weights the engine loads."""
        with TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            dtype, end = str(model.dtype).removeprefix("torch."), [tokenizer.eos_token_id]
            engine.start(EnginePolicy(folder, dtype, None, end, sequences, processes().process_index, settings))
        return cls(model, tokenizer.pad_token_id, engine.generate)

    def generate(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, generation_config: Any) -> torch.Tensor:
        """Return prompts and completions (B, P + T), padded on the right."""
        completions = self._complete(unpadded(input_ids, attention_mask), sampling_of(generation_config)).ids
        return joined(input_ids, completions, self._pad)


def sampling_of(config: Any) -> dict[str, Any]:
    """Return the fields of vLLM's ``SamplingParams`` for a `GenerationConfig`."""
    fields = {"top_p": (config.top_p, 1.0), "top_k": (config.top_k, -1), "min_p": (config.min_p, 0.0)}
    return {
        "max_tokens": config.max_new_tokens,
        "temperature": config.temperature if config.do_sample else 0.0,
        "repetition_penalty": config.repetition_penalty or 1.0,
        **{name: value if config.do_sample and value else unset for name, (value, unset) in fields.items()},
    }


def unpadded(input_ids: torch.Tensor, attention_mask: torch.Tensor) -> list[list[int]]:
    """Return the token ids of each prompt (B, P), without padding."""
    return [ids[mask.bool()].tolist() for ids, mask in zip(input_ids, attention_mask, strict=True)]


def joined(input_ids: torch.Tensor, completions: list[list[int]], pad: int) -> torch.Tensor:
    """Return prompts (B, P) with their completions, padded on the right (B, P + T)."""
    width = max(map(len, completions))
    padded = [ids + [pad] * (width - len(ids)) for ids in completions]
    return torch.cat([input_ids, torch.tensor(padded, dtype=input_ids.dtype, device=input_ids.device)], 1)


GREEDY: Mapping[str, Any] = {"do_sample": False}


@dataclass
class Completions:
    """The completions of a model, one per example.

    Args:
        prompts: Prompts in the form that rewards take.
        completions: Completions as text; of a chat, the messages after the prompt.
        completion_ids: Generated token ids.
        texts: Completions as text for reports.
        columns: Columns that episodes add to those of the examples.
    """

    prompts: Sequence[Any]
    completions: Sequence[Any]
    completion_ids: list[list[int]]
    texts: Sequence[str]
    columns: Mapping[str, Any] = field(default_factory=lambda: {"episodes": None, "environments": None})


def complete(
    model: Any,
    tokenizer: Any,
    examples: Sequence[Mapping[str, Any]],
    max_new_tokens: int,
    template: Mapping[str, Any],
    environment_spec: EnvironmentSpec | None = None,
    generator: Bound | None = None,
    sampling: Mapping[str, Any] | None = None,
) -> Completions:
    """Generate one completion per example, with the arguments of :func:`rlm_plugins.evaluation.held_out.evaluate`."""
    processor, tokenizer = tokenizer, tokenizer_of(tokenizer)
    decode = partial(
        _decode, model, tokenizer, max_new_tokens=max_new_tokens, generator=generator, sampling=sampling or GREEDY
    )
    if environment_spec is not None and environment_spec.multi_turn:
        return _episodes(model, tokenizer, examples, max_new_tokens, template, environment_spec, decode)
    prompts = [example["prompt"] for example in examples]
    is_chat = not isinstance(prompts[0], str)
    if is_chat and processor is not tokenizer:
        inputs = _processed(processor, examples, template)
    else:
        texts = prompts
        if is_chat:
            options = {"tokenize": False, "add_generation_prompt": True, **template}
            texts = [tokenizer.apply_chat_template(prompt, **options) for prompt in prompts]
        # A chat template adds the special tokens itself.
        options = {"return_tensors": "pt", "padding": True, "padding_side": "left"}
        inputs = tokenizer(texts, add_special_tokens=not is_chat, **options)
    ids = decode(inputs)
    generated = tokenizer.batch_decode(ids, skip_special_tokens=True)
    completions = [[{"role": "assistant", "content": text}] for text in generated] if is_chat else generated
    return Completions(prompts, completions, ids, generated)


def _processed(
    processor: Any, examples: Sequence[Mapping[str, Any]], template: Mapping[str, Any]
) -> Mapping[str, torch.Tensor]:
    """Return the inputs of a vision-language model for prompts with or without images."""
    options = {"add_generation_prompt": True, "tokenize": True, "return_dict": True, "return_tensors": "pt"}
    padding = {"padding": True, "padding_side": "left"}
    conversations = [messages_of(example) for example in examples]
    return dict(processor.apply_chat_template(conversations, processor_kwargs=padding, **options, **template))


def _episodes(
    model: Any,
    tokenizer: Any,
    examples: Sequence[Mapping[str, Any]],
    max_new_tokens: int,
    template: Mapping[str, Any],
    environment_spec: EnvironmentSpec,
    decode: Callable[[Mapping[str, Any]], list[list[int]]],
) -> Completions:
    """Play one episode per example."""
    runner = EpisodeRunner(
        environment_spec,
        tokenizer,
        end_token_ids=[tokenizer.eos_token_id],
        max_completion_length=max_new_tokens,
        max_length=getattr(model.config.get_text_config(), "max_position_embeddings", None),
        options=template,
    )

    def continue_from(ids: list[list[int]]) -> tuple[list[list[int]], None]:
        inputs = tokenizer.pad({"input_ids": ids}, padding_side="left", return_tensors="pt")
        return decode(inputs), None

    results = runner.play([example["prompt"] for example in examples], examples, continue_from)
    episodes = [tokens.episode for tokens in results]
    columns = {"episodes": episodes, "environments": [episode.environment for episode in episodes]}
    inputs = reward_inputs(results)
    return Completions(texts=inputs.pop("logged"), **inputs, columns=columns)


@torch.no_grad()
def _decode(
    model: Any,
    tokenizer: Any,
    inputs: Mapping[str, Any],
    *,
    max_new_tokens: int,
    generator: Bound | None,
    sampling: Mapping[str, Any],
) -> list[list[int]]:
    """Return the continuations of left-padded prompts, each up to its end token."""
    unused = {"token_type_ids"} - {*inspect.signature(causal_model(model).forward).parameters}
    on_device = {name: x.to(model.device) for name, x in inputs.items() if name not in unused}
    config = copy.deepcopy(model.generation_config)
    config.update(max_new_tokens=max_new_tokens, pad_token_id=tokenizer.pad_token_id, **sampling)
    with evaluation_mode(model):
        decoder = None if isinstance(model, EngineModel) else generator
        output = generate(decoder, model.generate, model, on_device, config).ids
    return [_until_end(ids, tokenizer) for ids in output[:, on_device["input_ids"].shape[1] :].tolist()]


def _until_end(ids: list[int], tokenizer: Any) -> list[int]:
    """Return token ids up to the first end token, without padding."""
    end = tokenizer.eos_token_id
    if end in ids:
        return ids[: ids.index(end) + 1]
    while ids and ids[-1] == tokenizer.pad_token_id:
        ids = ids[:-1]
    return ids
