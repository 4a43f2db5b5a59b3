"""Rollout source in which the policy proposes tasks and solves them (Absolute Zero, R-Zero, SeRL, SQLM)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt
from rlm_algorithms.auxiliary_part import AuxiliaryPart, policy_gradient_loss

from rlm_plugins.builtin.advantages import group_relative
from rlm_plugins.equation.batch import Generate, Log, LogprobsOf
from rlm_plugins.equation.knobs import Share
from rlm_plugins.errors import RecipeError
from rlm_plugins.lazy import torch
from rlm_plugins.workers.distributed import gather_lists, processes
from rlm_selfplay.languages import LANGUAGES, Language, TaskBuffer, read, role_number
from rlm_selfplay.task_scoring import Labels, TaskScoring, Turn, as_message

Ids = list[list[int]]


@dataclass(frozen=True)
class ProposerSettings:
    """Settings of a separate proposer.

    Args:
        learning_rate: Learning rate of AdamW.
        max_grad_norm: Gradient clipping threshold; 0: no clipping.
        lora: Fields of ``peft.LoraConfig``; None: those of the policy's adapter.
        batch_size: Proposals per forward pass.
    """

    learning_rate: NonNegativeFloat = 1e-4
    max_grad_norm: NonNegativeFloat = 1.0
    lora: Annotated[dict[str, Any], Field(min_length=1)] | None = None
    batch_size: PositiveInt = 64


@dataclass
class Proposals:
    """Proposals of a generation batch of all processes."""

    prompts: Ids = field(default_factory=list)
    completions: Ids = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)


class SeparateProposer(AuxiliaryPart):
    """Adapter on the policy's base that writes the proposals and is trained on their scores alone.

    After a generation batch it takes one step of AdamW on

        L = −1/N Σᵢ Âᵢ 1/|yᵢ| Σₜ log π_p(yᵢₜ),    Âᵢ = (rᵢ − mean r) / (std r + 10⁻⁴) over the proposals of its group.

    This is GRPO with one update per batch, where w = 1. R-Zero (arXiv 2508.05004 §3.2) trains its challenger this way,
    on several batches in a row, while the solver is frozen; here both take one step per batch.
    """

    def __init__(self, settings: ProposerSettings) -> None:
        super().__init__("proposer", **vars(settings))
        self.proposals = Proposals()

    def write(self, prompts: Sequence[Any], generate: Generate) -> Ids:
        """Return the token ids of one proposal per prompt."""
        with self.model.active():
            return generate(prompts)

    def collect(
        self, turns: Sequence[Turn], prompt_ids: Sequence[list[int]], ids: Sequence[list[int]], index: Sequence[int]
    ) -> None:
        """Store the proposals of all processes with their scores; a group begins where its `source_index` is 0."""
        group, batch = processes().process_index * (1 << 20) - 1, Proposals()
        for turn, prompt, completion, number in zip(turns, prompt_ids, ids, index, strict=True):
            group += number == 0
            if turn.job == "propose":
                batch.prompts.append(prompt)
                batch.completions.append(completion)
                batch.scores.append(turn.score)
                batch.groups.append(group)
        self.proposals = Proposals(*map(gather_lists, vars(batch).values()))

    def train(self, logprobs_of: LogprobsOf, step: int, log: Log) -> None:
        """Take one optimizer step on the proposals of the batch, and clear them."""
        batch, self.proposals = self.proposals, Proposals()
        if not batch.scores:
            return
        advantages = group_relative(torch.tensor(batch.scores), torch.tensor(batch.groups))
        lengths = [len(ids) for ids in batch.completions]
        loss = policy_gradient_loss(advantages, lengths, "sequence_mean")
        norm = self.model.train_step(logprobs_of, batch.prompts, batch.completions, max(lengths), loss, step)
        log("self_play/proposer_norm", norm)


class ProposeAndSolve:
    """Completions of two roles of one policy: new tasks, and solutions of tasks that were proposed earlier.

    The columns `job` (propose, solve) and `kind` of an example define the role. The prompt of a proposal has one
    earlier task as reference, and that of a solution one task. Both are drawn from the buffer of valid tasks, or are
    the example's own while the buffer is empty. The column `score` is the reward, `role` the number of the role.
    Absolute Zero, arXiv 2505.03335; R-Zero, 2508.05004; SeRL, 2505.20347; SQLM, 2508.03682.

    **Proposals.** The policy answers each valid proposal `attempts` times; these answers are not trained on. p̂ is the
    share of right answers. The score is `reward` of p̂, less `repetition` · |C| / B (see `proposer_rewards`), at least
    0. An invalid proposal scores `wrong`, and one that is not in the format `unreadable`. After the batch, tasks with
    p̂ in `keep` are added to the buffer, which has the latest `capacity` tasks of each kind.

    **Solutions** score 1, `wrong` or `unreadable` (Absolute Zero, eq. 6: −0.5 and −1).

    With `labels: majority` the most frequent answer of the attempts is the right one, and p̂ is its share. Questions
    require this, because they cannot be executed. With `train_proposer: false` proposals are not trained on (SeRL).
    With ``proposer: {learning_rate: …}`` a separate adapter writes them and is trained on their scores (R-Zero); the
    policy must then be an adapter too.

    In Absolute Zero, a step solves the tasks that were proposed in the same step; here they are available from the next
    step on. Random draws depend on seed, step, example and the buffer, which is in the checkpoint.
    """

    whole_groups = True
    columns = ("task", "kind", "job")

    def __init__(
        self,
        *,
        language: Literal["lines", "python", "questions"] = "python",
        attempts: PositiveInt = 8,
        reward: Literal["learnability", "uncertainty", "disagreement"] = "learnability",
        labels: Labels = "execution",
        keep: tuple[Share, Share] = (0.0, 1.0),
        repetition: NonNegativeFloat = 0.0,
        similarity: Share = 0.5,
        capacity: PositiveInt = 4096,
        train_proposer: bool = True,
        proposer: ProposerSettings | None = None,
        wrong: float = -0.5,
        unreadable: float = -1.0,
    ) -> None:
        self.language: Language = LANGUAGES[language]
        self.scoring = TaskScoring(
            self.language, attempts, reward, labels, keep, repetition, similarity, wrong, unreadable
        )
        self.train_proposer = train_proposer
        self.proposer = None if proposer is None else SeparateProposer(proposer)
        self.buffer = TaskBuffer(capacity)
        self._new: list[str] = []

    def check(self, columns: Any = ()) -> None:
        """Check that the labels fit the language.

        Raises:
            RecipeError: Questions cannot be executed.
        """
        if self.scoring.labels == "execution" and self.language is LANGUAGES["questions"]:
            problem = "expected labels from votes for the language 'questions', got labels from execution"
            raise RecipeError(problem, where="labels", allowed="majority")

    def setup(self, policy: Any, results: Mapping[str, Path]) -> None:
        """Create the adapter of a separate proposer."""
        if self.proposer is not None:
            self.proposer.setup(policy, results)

    def memory_bytes(self, stage: Any) -> int:
        """Return the bytes of the proposer's adapter and optimizer state; 0 without one."""
        return 0 if self.proposer is None else self.proposer.memory_bytes(stage)

    def __call__(
        self,
        prompts: Sequence[Any],
        inputs: Sequence[Mapping[str, Any]],
        source_index: Sequence[int],
        generate: Generate,
        tokenizer: Any,
        step: int,
        seed: int,
        trainer: Any,
    ) -> dict[str, Any]:
        """Return the completions of both roles with their scores."""

        def write(attempts: Sequence[Any]) -> list[str]:
            texts: list[str] = tokenizer.batch_decode(generate(attempts), skip_special_tokens=True)
            return texts

        turns: list[Turn] = []
        for example, number in zip(inputs, source_index, strict=True):
            rng = random.Random(f"{seed}/{step}/{example}")
            turns.append(replace(turns[-1]) if number else self._draw(example, rng))
        turn_prompts = [self._prompt(turn) for turn in turns]
        ids = self._write(turns, turn_prompts, generate)
        self.scoring.score(turns, tokenizer.batch_decode(ids, skip_special_tokens=True), write)
        self._new = gather_lists([turn.proposal.text() for turn in turns if turn.proposal is not None])
        self._log(turns, trainer)
        prompt_ids = trainer.prompt_ids(turn_prompts)
        if self.proposer is not None:
            self.proposer.collect(turns, prompt_ids, ids, source_index)
        trains_proposals = self.train_proposer and self.proposer is None
        is_trained = [turn.job == "solve" or trains_proposals for turn in turns]
        return {
            "prompt_ids": prompt_ids,
            "completion_ids": ids,
            "mask": [[trained] * len(completion) for trained, completion in zip(is_trained, ids, strict=True)],
            "score": [turn.score for turn in turns],
            "role": [role_number(turn.kind, turn.job) for turn in turns],
        }

    def _write(self, turns: Sequence[Turn], prompts: Sequence[Any], generate: Generate) -> list[list[int]]:
        """Return one completion per turn; a separate proposer writes the proposals."""
        if self.proposer is None:
            return generate(prompts)
        ids: list[list[int]] = [[] for _ in turns]
        for job, write in (("propose", partial(self.proposer.write, generate=generate)), ("solve", generate)):
            indices = [index for index, turn in enumerate(turns) if turn.job == job]
            for index, completion in zip(indices, write([prompts[index] for index in indices]), strict=True):
                ids[index] = completion
        return ids

    def update(self, log: Log, step: int | None = None, logprobs_of: LogprobsOf | None = None) -> None:
        """Add the tasks of the batch to the buffer, and train a separate proposer."""
        if self.proposer is not None and logprobs_of is not None:
            self.proposer.train(logprobs_of, step or 0, log)
        self.buffer.add(self._new)
        self._new = []
        log("self_play/buffer", sum(map(self.buffer.count, self.language.kinds)))

    def state_dict(self) -> dict[str, Any]:
        buffer = self.buffer.state_dict()
        return buffer if self.proposer is None else {"buffer": buffer, "proposer": self.proposer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.buffer.load_state_dict(state if self.proposer is None else state["buffer"])
        if self.proposer is not None:
            self.proposer.load_state_dict(state["proposer"])
        self._new = []

    def _draw(self, example: Mapping[str, Any], rng: random.Random) -> Turn:
        task = self.buffer.draw(example["kind"], rng) or read(example["task"])
        return Turn(example["job"], example["kind"], task)

    def _prompt(self, turn: Turn) -> list[dict[str, str]]:
        if turn.job == "solve":
            return self.scoring.prompt(turn.task)
        return as_message(self.language.proposal_prompt(turn.kind, turn.task))

    def _log(self, turns: Sequence[Turn], trainer: Any) -> None:
        log = trainer.components.context.log
        for job in ("propose", "solve"):
            scores = [turn.score for turn in turns if turn.job == job]
            if scores:
                log(f"self_play/{job}", sum(scores) / len(scores))
        proposals = [turn for turn in turns if turn.job == "propose"]
        if proposals:
            log("self_play/kept", sum(turn.proposal is not None for turn in proposals) / len(proposals))
