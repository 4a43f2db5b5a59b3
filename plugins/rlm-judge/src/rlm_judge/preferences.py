"""Trainers of reward models on pairs of a preferred and a rejected completion, also with a critique of each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlm_plugins.builtin.sft_trainer import RUN, columns, dataset
from rlm_plugins.data.trl_formats import Example, is_unpaired
from rlm_plugins.errors import TRAIN_ADAPTER, RecipeError
from rlm_plugins.specs import Algorithm
from rlm_plugins.stage import RunState, Stage

if TYPE_CHECKING:
    from trl import RewardConfig

    from rlm_plugins.evaluation.scores import Report


class Preferences:
    """Reward-model training on pairs, ℓ = −log σ(r(x, y⁺) − r(x, y⁻)), by TRL's RewardTrainer.

    Bradley–Terry, as in Christiano et al., arXiv 1706.03741 eq. 1. y⁺ and y⁻ are the columns ``chosen`` and
    ``rejected``: completions as text, or as messages that follow the prompt. A column ``margin`` is subtracted from the
    difference. The adapter is trained with a new scalar head; both are saved, and the policy is unchanged: the next
    stage starts from the same weights. `trainer:` takes the fields of ``trl.RewardConfig``.

    Metrics: `pair_accuracy`, the share of held-out pairs in which the preferred completion scores higher (a tie counts
    half), and `margin`, the mean difference of the scores.
    """

    columns = ("chosen", "rejected")
    produces = "reward_model"
    metrics = ("pair_accuracy", "margin")
    refused: Mapping[str, str] = RUN

    def config_class(self) -> type[RewardConfig]:
        from trl import RewardConfig

        return RewardConfig

    def prepare(self, rows: Any) -> Any:
        """Return preference pairs: of an unpaired preference, all pairs of a prompt."""
        return pairs_of(rows) if is_unpaired(columns(rows)) else rows

    def build(self, stage: Stage, run: RunState) -> Any:
        from peft import LoraConfig
        from rlm_algorithms.score_head import with_head
        from trl import RewardTrainer

        from rlm_judge import reward_files
        from rlm_plugins.trainer import options
        from rlm_plugins.trainer.observer import ObservedSteps

        class Trainer(ObservedSteps, RewardTrainer):  # type: ignore[misc]
            """RewardTrainer with atomic checkpoints and observers."""

        args = options.arguments(stage, run)
        model, tokenizer, lora = options.load_model(stage, run)
        if lora is not None:
            # with this task type PEFT trains and saves the head
            lora = LoraConfig(**{**(stage.lora or {}), "task_type": "SEQ_CLS"})
            options.save_initial_model(model, stage)
        base, digest = model.config._name_or_path, reward_files.base_digest(model.base_model)
        unused = [name for name in columns(stage.environment_spec.train) if name != "margin"]
        data = dataset(stage.environment_spec.train).map(
            lambda row: tokens_of_pair(tokenizer, row), remove_columns=unused
        )
        with options.refusals(stage):
            trainer = Trainer(
                model=with_head(model), args=args, train_dataset=data, processing_class=tokenizer, peft_config=lora
            )
        self._base = None if lora is None else (base, digest)
        return trainer

    def complete(self, trainer: Any, stage: Stage, folder: Path) -> None:
        """Save which base the adapter belongs to; a relative path from a folder beside `stage.output`."""
        from rlm_judge import reward_files

        if self._base is not None and trainer.args.should_save:
            reward_files.save_base_reference(folder, *self._base)

    def evaluate(self, stage: Stage, rows: Sequence[Mapping[str, Any]], model: Any = None) -> Report:
        """Evaluate held-out pairs with `model`, or with the saved model of the stage."""
        return evaluate_pairs(stage, rows, model)


def tokens_of_pair(tokenizer: Any, example: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return an example in the form of RewardTrainer."""
    from rlm_judge.reward_files import conversation_ids

    return {
        f"{kind}_ids": conversation_ids(tokenizer, example["prompt"], example[kind]) for kind in ("chosen", "rejected")
    }


def evaluate_pairs(stage: Stage, examples: Sequence[Mapping[str, Any]], model: Any = None) -> Report:
    """Return the accuracy of a reward model on held-out pairs; each process evaluates its share."""
    from accelerate.utils import gather_object

    from rlm_judge import reward_files
    from rlm_plugins.evaluation.scores import Report, interval
    from rlm_plugins.models.adapters import evaluation_mode
    from rlm_plugins.workers.distributed import processes

    assert stage.evaluation is not None
    state = processes()
    if model is None:
        reward_model = reward_files.load_with_own_base(stage.output, state.device)
    else:
        plain = model.get_base_model() if hasattr(model, "get_base_model") else model
        reward_model = reward_files.RewardModel(
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
    means = {
        name: float(sum(sample["rewards"][name] for sample in samples) / len(samples)) for name in stage.trainer.metrics
    }
    low, high = interval(accuracies)
    return Report(means[stage.evaluation.metric], low, high, len(samples), means, samples)


def _sample(example: Mapping[str, Any], chosen: float, rejected: float) -> dict[str, Any]:
    from rlm_plugins.rewards.columns import text_of

    margin = chosen - rejected
    completions = " > ".join(text_of(example[kind]) for kind in ("chosen", "rejected"))
    rewards = {"pair_accuracy": 0.5 + 0.5 * ((margin > 0) - (margin < 0)), "margin": margin}
    return {"prompt": text_of(example["prompt"]), "completion": completions, "rewards": rewards}


reward_model = Algorithm(
    about="A reward model, trained on pairs of a preferred and a rejected completion (`chosen`, `rejected`).",
    source="Christiano et al., arXiv 1706.03741 eq. 1; for language models 1909.08593; TRL's RewardTrainer",
    pitfalls="Only differences are learned: the zero of the score is arbitrary. It is valid near its pairs; a policy "
    "that maximizes it leaves them (see the reward `reward_model`). Pairs in which the longer completion wins lead to "
    "a length bias.",
    trainer="reward_model",
    family="off-policy and supervised",
)


def pairs_of(rows: Any) -> list[dict[str, Any]]:
    """Return every pair of a completion labeled true and one labeled false of the same prompt.

    Args:
        rows: Examples of an unpaired preference.
    """
    if not hasattr(rows, "__len__"):
        problem = "pairs are made from all completions of a prompt, and the examples are a stream"
        raise RecipeError(problem, where="environment", hint="load them without `streaming`")
    groups: dict[str, dict[bool, list[Example]]] = {}
    for row in rows:
        groups.setdefault(repr(row["prompt"]), {True: [], False: []})[row["label"]].append(row)
    pairs = [
        {"prompt": liked["prompt"], "chosen": liked["completion"], "rejected": disliked["completion"]}
        for group in groups.values()
        for liked in group[True]
        for disliked in group[False]
    ]
    if not pairs and len(rows):
        problem = "no prompt has a completion labeled true and one labeled false, so there are no pairs"
        raise RecipeError(problem, where="environment", hint="`algorithm: sft` trains on those labeled true")
    return pairs


KINDS = ("chosen", "rejected")
Messages = list[dict[str, str]]


class CritiquePreferences(Preferences):
    """Reward-model training on self-generated critiques, ℓ = −log σ(r(x, y⁺, c⁺) − r(x, y⁻, c⁻)).

    CLoud, arXiv 2408.11791: the model is fine-tuned on critiques, and then writes a critique c of each answer itself. A
    head on its hidden states scores prompt, answer and critique. ``chosen`` and ``rejected`` are messages that follow
    the prompt and end with a request for a critique. c is sampled once per answer before training, by the initial
    model of the stage: put it after a stage of `sft` on critiques. Critiques have up to `evaluation.max_new_tokens`
    tokens. Held-out critiques are greedy.

    The paper trains head, critiques and all weights together, with a language-model loss on the critiques, weighted by
    λ. Here the head and an adapter are trained, and the critiques come from the frozen base. So a stage without an
    adapter is refused. The paper also averages the scores of several critiques. Settings from memory; not re-read.

    Metrics: those of `reward_model`.
    """

    def __init__(self) -> None:
        self._critiques: dict[str, str] = {}

    def build(self, stage: Stage, run: RunState) -> Any:
        """Sample the critiques, and return the trainer of adapter and head with all pairs."""
        if stage.lora is None:
            problem = "`critique_preferences` requires a frozen base that writes critiques, and all weights are trained"
            raise RecipeError(problem, where=f"stage '{stage.name}'", hint=TRAIN_ADAPTER)
        rows = dataset(stage.environment_spec.train)
        seed = int(stage.settings.get("seed", 42))
        environment_spec = replace(stage.environment_spec, train=self._with_critiques(stage, rows, seed))
        return super().build(replace(stage, environment_spec=environment_spec), run)

    def evaluate(self, stage: Stage, rows: Sequence[Mapping[str, Any]], model: Any = None) -> Report:
        """Evaluate held-out pairs with greedy critiques of the initial model."""
        return super().evaluate(stage, self._with_critiques(stage, rows, None), model)

    def _with_critiques(
        self, stage: Stage, rows: Iterable[Mapping[str, Any]], seed: int | None
    ) -> list[dict[str, Any]]:
        """Return the pairs with a critique at the end of each answer; `seed`: of the sampling, None for greedy."""
        examples = [dict(row) for row in rows]
        requests = [_conversation(stage, row, kind) for row in examples for kind in KINDS]
        critiques = iter(self._write(stage, requests, seed))
        for row in examples:
            for kind in KINDS:
                row[kind] = [*_messages(row[kind]), {"role": "assistant", "content": next(critiques)}]
        return examples

    def _write(self, stage: Stage, requests: Sequence[Messages], seed: int | None) -> list[str]:
        """Return one critique per conversation; greedy ones are written once per conversation."""
        known = self._critiques if seed is None else {}
        numbers = ["" if seed is None else number for number in range(len(requests))]
        keys = [f"{number} {json.dumps(messages)}" for number, messages in zip(numbers, requests, strict=True)]
        missing = {key: messages for key, messages in zip(keys, requests, strict=True) if key not in known}
        if missing:
            known.update(zip(missing, _generated(stage, list(missing.values()), seed), strict=True))
        return [known[key] for key in keys]


def _generated(stage: Stage, requests: Sequence[Messages], seed: int | None) -> list[str]:
    import torch

    from rlm_plugins.evaluation.completions import complete
    from rlm_plugins.workers.distributed import processes

    size = 64 if stage.evaluation is None else stage.evaluation.batch_size
    model, tokenizer = stage.source.load().to(processes().device), stage.source.processing_class()
    sampling = None if seed is None else {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
    texts: list[str] = []
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed or 0)
        for first in range(0, len(requests), size):
            examples = [{"prompt": messages} for messages in requests[first : first + size]]
            texts += complete(model, tokenizer, examples, stage.longest_completion, {}, sampling=sampling).texts
    return texts


def _conversation(stage: Stage, row: Mapping[str, Any], kind: str) -> Messages:
    messages = _messages(row[kind])
    if isinstance(row["prompt"], str) or not messages or messages[-1].get("role") != "user":
        problem = f"expected messages in `{kind}` that end with a request for a critique, got {str(row[kind])[:60]!r}"
        allowed = "[{role: assistant, content: the answer}, {role: user, content: the request}]"
        raise RecipeError(problem, where=f"stage '{stage.name}': environment", allowed=allowed)
    return [*row["prompt"], *messages]


def _messages(value: Any) -> Messages:
    return [] if isinstance(value, str) else list(value)


critique_reward_model = Algorithm(
    about="A reward model that scores an answer together with a critique that it wrote itself.",
    source="CLoud, arXiv 2408.11791",
    pitfalls="It is as good as its critiques: check them with `rlm sample` first. It requires a stage of `sft` on "
    "critiques before, and an adapter. Each score costs the generation of a critique.",
    trainer="critique_preferences",
    family="off-policy and supervised",
)
