"""The greedy answers of a model to some rows: one turn each, or an episode in a world that answers."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from rlm_plugins.generation import generate
from rlm_plugins.models.adapters import evaluation_mode
from rlm_plugins.registry.part import Bound
from rlm_plugins.rollout.episodes import EpisodeRunner, told_of
from rlm_plugins.specs import EnvironmentSpec


@dataclass
class Answers:
    """What a model said, row by row.

    Args:
        prompts: As the rewards see them.
        completions: What the model said, as text; of a chat, the messages after the prompt.
        completion_ids: The tokens the model wrote.
        shown: What a reader is shown of each completion.
        columns: What the episodes add to the columns of the rows.
    """

    prompts: Sequence[Any]
    completions: Sequence[Any]
    completion_ids: list[list[int]]
    shown: Sequence[str]
    columns: Mapping[str, Any] = field(default_factory=lambda: {"episodes": None, "environments": None})


def answer(
    model: Any,
    tokenizer: Any,
    rows: Sequence[Mapping[str, Any]],
    max_new_tokens: int,
    template: Mapping[str, Any],
    environment_spec: EnvironmentSpec | None = None,
    generator: Bound | None = None,
) -> Answers:
    """Greedy answers; the model's mode is restored, and no random number is drawn.

    Args:
        model: A causal language model.
        tokenizer: Its tokenizer.
        rows: With a ``prompt``; at least one.
        max_new_tokens: Longest answer, in tokens; of an episode, the world's words included.
        template: ``chat_template_kwargs`` of the recipe.
        world: Where the rows are played, if it answers.
        generator: How the model writes; None: as transformers does it.
    """
    prompts = [row["prompt"] for row in rows]
    if environment_spec is not None and environment_spec.multi_turn:
        return _played(model, tokenizer, rows, max_new_tokens, template, environment_spec, generator)
    chat = not isinstance(prompts[0], str)
    texts = prompts
    if chat:
        texts = [
            tokenizer.apply_chat_template(p, tokenize=False, add_generation_prompt=True, **template) for p in prompts
        ]
    given = tokenizer(texts, return_tensors="pt", padding=True, padding_side="left", add_special_tokens=not chat)
    ids = _written(model, tokenizer, given, max_new_tokens, generator)
    said = tokenizer.batch_decode(ids, skip_special_tokens=True)
    return Answers(prompts, [[{"role": "assistant", "content": x}] for x in said] if chat else said, ids, said)


def _played(
    model: Any,
    tokenizer: Any,
    rows: Sequence[Mapping[str, Any]],
    max_new_tokens: int,
    template: Mapping[str, Any],
    environment_spec: EnvironmentSpec,
    generator: Bound | None,
) -> Answers:
    table = EpisodeRunner(
        environment_spec,
        tokenizer,
        ends=[tokenizer.eos_token_id],
        room=max_new_tokens,
        positions=getattr(model.config.get_text_config(), "max_position_embeddings", None),
        options=template,
    )

    def write(ids: list[list[int]]) -> tuple[list[list[int]], None]:
        given = tokenizer.pad({"input_ids": ids}, padding_side="left", return_tensors="pt")
        return _written(model, tokenizer, given, max_new_tokens, generator), None

    played = table.play([row["prompt"] for row in rows], rows, write)
    episodes = [row.episode for row in played]
    columns = {"episodes": episodes, "environments": [episode.environment for episode in episodes]}
    return Answers(**told_of(played), columns=columns)


@torch.no_grad()
def _written(
    model: Any, tokenizer: Any, given: Mapping[str, Any], max_new_tokens: int, generator: Bound | None
) -> list[list[int]]:
    """What the model writes after rows that are padded on the left, up to its end token."""
    given = {name: given[name].to(model.device) for name in ("input_ids", "attention_mask")}
    config = copy.deepcopy(model.generation_config)
    config.update(max_new_tokens=max_new_tokens, do_sample=False, pad_token_id=tokenizer.pad_token_id)
    with evaluation_mode(model):
        output = generate(generator, model.generate, model, given, config).ids
    return [_until_end(ids, tokenizer) for ids in output[:, given["input_ids"].shape[1] :].tolist()]


def _until_end(ids: list[int], tokenizer: Any) -> list[int]:
    end = tokenizer.eos_token_id
    if end in ids:
        return ids[: ids.index(end) + 1]
    while ids and ids[-1] == tokenizer.pad_token_id:
        ids = ids[:-1]
    return ids
