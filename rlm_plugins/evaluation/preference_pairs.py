"""Preference pairs: a language model with a score head, and its accuracy on held-out pairs."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch

from rlm_plugins.distributed import processes
from rlm_plugins.errors import RecipeError
from rlm_plugins.evaluation.held_out_report import Report, interval
from rlm_plugins.models import reward_model_io as reward_files
from rlm_plugins.models.adapters import evaluation_mode
from rlm_plugins.models.reward_model import RewardModel, ScoreHead, conversation_ids
from rlm_plugins.rewards.columns import text_of
from rlm_plugins.stage import Stage

_QUANTIZATION = ("hf_quantizer", "quantization_method", "is_quantized", "is_loaded_in_4bit", "is_loaded_in_8bit")
"""Attributes of a quantized model."""


def with_head(model: Any, form: str = "SequenceClassification") -> Any:
    """Return a language model as transformers' classifier with one output in place of the language-model head.

    Args:
        model: Its trunk is shared, not copied.
        form: ``SequenceClassification`` or ``TokenClassification``.

    Raises:
        RecipeError: transformers has no such class for the model.
    """
    import transformers

    config = copy.deepcopy(model.config)
    config.num_labels = 1
    try:
        with torch.device("meta"):
            classifier = getattr(transformers, f"AutoModelFor{form}").from_config(config, dtype=model.dtype)
    except ValueError:
        classifier = None
    if type(getattr(classifier, "base_model", None)) is not type(model.base_model) or not hasattr(classifier, "score"):
        problem = f"transformers has no class for {form} of {type(model).__name__}"
        raise RecipeError(problem, where="model")
    setattr(classifier, classifier.base_model_prefix, model.base_model)
    bias = getattr(classifier.score, "bias", None) is not None
    classifier.score = ScoreHead(config.get_text_config().hidden_size, model.device, bias)
    for name in _QUANTIZATION:
        if hasattr(model, name):
            setattr(classifier, name, getattr(model, name))
    return classifier


def tokens_of_pair(tokenizer: Any, example: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return an example in the form of RewardTrainer."""
    return {
        f"{kind}_ids": conversation_ids(tokenizer, example["prompt"], example[kind]) for kind in ("chosen", "rejected")
    }


def evaluate(stage: Stage, examples: Sequence[Mapping[str, Any]], model: Any = None) -> Report:
    """Return the accuracy of a reward model on held-out pairs; each process evaluates its share.

    Args:
        stage: The stage of the reward model.
        examples: Examples with ``prompt``, ``chosen`` and ``rejected``.
        model: The model in training; None: the saved result of the stage.
    """
    from accelerate.utils import gather_object

    assert stage.evaluation is not None
    state = processes()
    if model is None:
        reward_model = reward_files.load_with_own_base(stage.output, state.device)
    else:
        plain = model.get_base_model() if hasattr(model, "get_base_model") else model
        reward_model = RewardModel(
            plain.base_model, plain.score, stage.source.tokenizer(), partial(evaluation_mode, model), model.device
        )
    local = list(examples)[state.process_index :: state.num_processes]
    pairs = [tokens_of_pair(reward_model.tokenizer, example) for example in local]
    sequences = [pair[f"{kind}_ids"] for kind in ("chosen", "rejected") for pair in pairs]
    scores = reward_model.scores(sequences, stage.evaluation.batch_size)
    chosen, rejected = scores[: len(local)], scores[len(local) :]
    samples = list(map(_sample, local, chosen, rejected))
    samples = gather_object(samples) if state.num_processes > 1 else samples
    accuracies = [sample["rewards"]["pair_accuracy"] for sample in samples]
    means = {name: _mean(samples, name) for name in stage.trainer.metrics}
    low, high = interval(accuracies)
    return Report(means[stage.evaluation.metric], low, high, len(samples), means, samples)


def _mean(samples: Sequence[Mapping[str, Any]], name: str) -> float:
    return float(sum(sample["rewards"][name] for sample in samples) / len(samples))


def _sample(example: Mapping[str, Any], chosen: float, rejected: float) -> dict[str, Any]:
    margin = chosen - rejected
    completions = " > ".join(text_of(example[kind]) for kind in ("chosen", "rejected"))
    rewards = {"pair_accuracy": 0.5 + 0.5 * ((margin > 0) - (margin < 0)), "margin": margin}
    return {"prompt": text_of(example["prompt"]), "completion": completions, "rewards": rewards}
