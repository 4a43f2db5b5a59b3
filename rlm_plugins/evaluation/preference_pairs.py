"""Pairs of answers, one preferred to the other: how a model gets the head to score them, and how it is judged."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch

from rlm_plugins.distributed import processes
from rlm_plugins.errors import RecipeError
from rlm_plugins.evaluation.evaluate import Report, interval
from rlm_plugins.models import reward_model_io as reward_files
from rlm_plugins.models.adapters import evaluation_mode
from rlm_plugins.models.reward_model import RewardModel, ScoreHead, conversation_ids
from rlm_plugins.rewards.trl_adapter import text_of
from rlm_plugins.stage import Stage

_KEPT = ("hf_quantizer", "quantization_method", "is_quantized", "is_loaded_in_4bit", "is_loaded_in_8bit")
"""What a quantised model knows of itself."""


def with_head(model: Any, form: str = "SequenceClassification") -> Any:
    """A language model as transformers' classifier: its trunk, and a head of one number for its language head.

    Args:
        model: Its trunk is taken, not copied.
        form: Of whole sequences, or ``TokenClassification``.

    Raises:
        RecipeError: transformers has no such form of it.
    """
    import transformers

    config = copy.deepcopy(model.config)
    config.num_labels = 1
    try:
        with torch.device("meta"):
            judge = getattr(transformers, f"AutoModelFor{form}").from_config(config, dtype=model.dtype)
    except ValueError:
        judge = None
    if type(getattr(judge, "base_model", None)) is not type(model.base_model) or not hasattr(judge, "score"):
        problem = f"{type(model).__name__} cannot score: transformers gives it no head for {form}"
        raise RecipeError(problem, where="model")
    setattr(judge, judge.base_model_prefix, model.base_model)
    bias = getattr(judge.score, "bias", None) is not None
    judge.score = ScoreHead(config.get_text_config().hidden_size, model.device, bias)
    for name in _KEPT:
        if hasattr(model, name):
            setattr(judge, name, getattr(model, name))
    return judge


def tokens_of_pair(tokenizer: Any, row: Mapping[str, Any]) -> dict[str, list[int]]:
    """A row as RewardTrainer reads it."""
    return {f"{kind}_ids": conversation_ids(tokenizer, row["prompt"], row[kind]) for kind in ("chosen", "rejected")}


def evaluate(stage: Stage, rows: Sequence[Mapping[str, Any]], model: Any = None) -> Report:
    """How many held-out pairs are told apart; under several processes each reads its share.

    Args:
        stage: Of a reward model.
        rows: With ``prompt``, ``chosen`` and ``rejected``.
        model: As it is trained; None: as the stage has saved it.
    """
    from accelerate.utils import gather_object

    assert stage.evaluation is not None
    state = processes()
    if model is None:
        judge = reward_files.load_with_own_base(stage.output, state.device)
    else:
        plain = model.get_base_model() if hasattr(model, "get_base_model") else model
        judge = RewardModel(
            plain.base_model, plain.score, stage.source.tokenizer(), partial(evaluation_mode, model), model.device
        )
    mine = list(rows)[state.process_index :: state.num_processes]
    pairs = [tokens_of_pair(judge.tokenizer, row) for row in mine]
    scores = judge.scores(
        [pair[f"{kind}_ids"] for kind in ("chosen", "rejected") for pair in pairs], stage.evaluation.batch_size
    )
    found = [_sample(row, *both) for row, *both in zip(mine, scores[: len(mine)], scores[len(mine) :], strict=True)]
    found = gather_object(found) if state.num_processes > 1 else found
    told_apart = [sample["rewards"]["pair_accuracy"] for sample in found]
    means = {name: sum(s["rewards"][name] for s in found) / len(found) for name in stage.engine.metrics}
    low, high = interval(told_apart)
    return Report(means[stage.evaluation.metric], low, high, len(found), means, found)


def _sample(row: Mapping[str, Any], chosen: float, rejected: float) -> dict[str, Any]:
    margin = chosen - rejected
    answers = " > ".join(text_of(row[kind]) for kind in ("chosen", "rejected"))
    rewards = {"pair_accuracy": 0.5 + 0.5 * ((margin > 0) - (margin < 0)), "margin": margin}
    return {"prompt": text_of(row["prompt"]), "completion": answers, "rewards": rewards}
