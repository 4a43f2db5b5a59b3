"""Rollout source in which the policy proposes tasks and solves them (Absolute Zero, R-Zero, SeRL, SQLM)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt

from rlm_plugins.batch import Log, LogprobsOf
from rlm_plugins.distributed import gather_lists, processes
from rlm_plugins.errors import RecipeError
from rlm_selfplay.languages import LANGUAGES, Language
from rlm_selfplay.proposer_rewards import REWARDS, repetition
from rlm_selfplay.separate_proposer import Proposals, ProposerSettings, SeparateProposer
from rlm_selfplay.tasks import Task, TaskBuffer, read, role_number

Share = Annotated[float, Field(ge=0, le=1)]
Generate = Callable[..., list[list[int]]]
Labels = Literal["execution", "majority"]


@dataclass
class _Turn:
    """One completion: its role, what it was asked, and its score.

    Args:
        task: The task to solve, or the reference of a proposal.
        proposal: The proposed task; None: invalid, or the completion solves.
    """

    job: str
    kind: str
    task: Task
    score: float = 0.0
    proposal: Task | None = None


class ProposeAndSolve:
    """Completions of two roles of one policy: new tasks, and solutions of tasks that were proposed before.

    The row says which: `job` (propose, solve) and `kind`. A group that proposes gets one earlier task as reference, a
    group that solves one task; both are drawn from the buffer of valid tasks, or are the row's while it is empty. The
    column `score` is the reward, `role` the number of the role. Absolute Zero, arXiv 2505.03335; R-Zero, 2508.05004;
    SeRL, 2505.20347; SQLM, 2508.03682.

    **Proposals.** The policy answers each valid one `attempts` times; these answers are not trained on. p̂ is the share
    of right ones. The score is `reward` of p̂, less `repetition` · |C| / B (see `proposer_rewards`), at least 0. An
    invalid proposal scores `wrong`, and one that is not in the format `unreadable`. Tasks with p̂ in `keep` enter the
    buffer after the batch, the latest `capacity` of each kind.

    **Solutions** score 1, `wrong` or `unreadable` (Absolute Zero, eq. 6: −0.5 and −1).

    With `labels: majority` the most frequent answer of the attempts is the right one, and p̂ its share: for questions,
    which nothing can execute. With `train_proposer: false` proposals are not trained on (SeRL). With
    ``proposer: {learning_rate: …}`` an adapter of its own writes them and is trained on their scores (R-Zero); the
    policy must train an adapter, too.

    In Absolute Zero, a step solves the tasks that it has just proposed; here they are available from the next step on.
    Draws depend on (seed, step, row) and the buffer, which is in the checkpoint.
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
        self.attempts, self.reward, self.labels, self.keep = attempts, REWARDS[reward], labels, keep
        self.repetition, self.similarity, self.train_proposer = repetition, similarity, train_proposer
        self.wrong, self.unreadable = wrong, unreadable
        self.proposer = None if proposer is None else SeparateProposer(proposer)
        self.buffer = TaskBuffer(capacity)
        self._new: list[str] = []

    def check(self, columns: Any = ()) -> None:
        """Check that the labels fit the language.

        Raises:
            RecipeError: Questions cannot be executed.
        """
        if self.labels == "execution" and self.language is LANGUAGES["questions"]:
            problem = "expected labels from votes for the language 'questions', got labels from execution"
            raise RecipeError(problem, where="labels", allowed="majority")

    def setup(self, policy: Any, results: Mapping[str, Path]) -> None:
        """Create the proposer's adapter, if it has one."""
        if self.proposer is not None:
            self.proposer.setup(policy, results)

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

        def write(asked: Sequence[Any]) -> list[str]:
            texts: list[str] = tokenizer.batch_decode(generate(asked), skip_special_tokens=True)
            return texts

        turns: list[_Turn] = []
        for row, number in zip(inputs, source_index, strict=True):
            turns.append(replace(turns[-1]) if number else self._draw(row, random.Random(f"{seed}/{step}/{row}")))
        asked = [self._prompt(turn) for turn in turns]
        ids = self._write(turns, asked, generate)
        texts, checked = tokenizer.batch_decode(ids, skip_special_tokens=True), dict[Task, Task | None]()
        for turn, text in zip(turns, texts, strict=True):
            if turn.job == "solve":
                turn.score = self._solution_score(turn.task, text)
            else:
                self._read(turn, text, checked)
        self._score_proposals([turn for turn in turns if turn.job == "propose"], write)
        new = [turn.proposal.text() for turn in turns if turn.proposal is not None]
        self._new = gather_lists(new)
        self._log(turns, trainer)
        prompt_ids = trainer.prompt_ids(asked)
        if self.proposer is not None:
            self.proposer.proposals = _proposals(turns, prompt_ids, ids, source_index)
        trains_proposals = self.train_proposer and self.proposer is None
        return {
            "prompt_ids": prompt_ids,
            "completion_ids": ids,
            "mask": [
                [turn.job == "solve" or trains_proposals] * len(row) for turn, row in zip(turns, ids, strict=True)
            ],
            "score": [turn.score for turn in turns],
            "role": [role_number(turn.kind, turn.job) for turn in turns],
        }

    def _write(self, turns: Sequence[_Turn], asked: Sequence[Any], generate: Generate) -> list[list[int]]:
        """Return one completion per turn: proposals by the proposer, if it has weights of its own."""
        if self.proposer is None:
            return generate(asked)
        ids: list[list[int]] = [[] for _ in turns]
        for job, write in (("propose", partial(self.proposer.write, generate=generate)), ("solve", generate)):
            rows = [number for number, turn in enumerate(turns) if turn.job == job]
            for number, written in zip(rows, write([asked[number] for number in rows]), strict=True):
                ids[number] = written
        return ids

    def update(self, log: Log, step: int | None = None, logprobs_of: LogprobsOf | None = None) -> None:
        """Add the tasks of the batch to the buffer, and train the proposer if it has weights of its own."""
        if self.proposer is not None and logprobs_of is not None:
            self.proposer.train(logprobs_of, step or 0, log)
        self.buffer.add(self._new)
        self._new = []
        log("self_play/buffer", sum(map(self.buffer.count, self.language.kinds)))

    def state_dict(self) -> dict[str, Any]:
        """Return the buffer, and the proposer if it has weights of its own."""
        buffer = self.buffer.state_dict()
        return buffer if self.proposer is None else {"buffer": buffer, "proposer": self.proposer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the buffer and the proposer."""
        self.buffer.load_state_dict(state if self.proposer is None else state["buffer"])
        if self.proposer is not None:
            self.proposer.load_state_dict(state["proposer"])
        self._new = []

    def _draw(self, row: Mapping[str, Any], rng: random.Random) -> _Turn:
        return _Turn(row["job"], row["kind"], self.buffer.draw(row["kind"], rng) or read(row["task"]))

    def _prompt(self, turn: _Turn) -> list[dict[str, str]]:
        if turn.job == "solve":
            return as_message(self.language.task_prompt(turn.task))
        return as_message(self.language.proposal_prompt(turn.kind, turn.task))

    def _solution_score(self, task: Task, text: str) -> float:
        answer = self.language.read_answer(task, text)
        if answer is None:
            return self.unreadable
        return 1.0 if self.is_right(task, answer) else self.wrong

    def is_right(self, task: Task, answer: str) -> bool:
        """Return True if an answer is right by the labels of this source."""
        return task.outputs == (answer,) if self.labels == "majority" else self.language.is_right(task, answer)

    def _read(self, turn: _Turn, text: str, checked: dict[Task, Task | None]) -> None:
        """Set the proposal of a turn if it is valid, else its score; equal ones are checked once."""
        proposal = self.language.read_proposal(turn.kind, text, turn.task)
        if proposal is not None and proposal not in checked:
            checked[proposal] = self.language.complete(proposal)
        turn.proposal = None if proposal is None else checked[proposal]
        turn.score = self.unreadable if proposal is None else self.wrong

    def _score_proposals(self, turns: Sequence[_Turn], write: Callable[[Sequence[Any]], list[str]]) -> None:
        """Set the score of each valid proposal from attempts at it; drop those that the buffer does not keep."""
        valid = [turn for turn in turns if turn.proposal is not None]
        prompts = [as_message(self.language.task_prompt(turn.proposal)) for turn in valid if turn.proposal]
        texts = write([prompt for prompt in prompts for _ in range(self.attempts)])
        similar = repetition([turn.proposal.question() for turn in valid if turn.proposal], self.similarity)
        for number, turn in enumerate(valid):
            assert turn.proposal is not None
            attempts = texts[number * self.attempts : (number + 1) * self.attempts]
            rate, turn.proposal = self._rate(turn.proposal, attempts)
            turn.score = max(0.0, self.reward(rate) - self.repetition * similar[number])
            if not self.keep[0] <= rate <= self.keep[1]:
                turn.proposal = None

    def _rate(self, task: Task, texts: Sequence[str]) -> tuple[float, Task]:
        """Return the share of right answers, and the task with its label."""
        answers = [self.language.read_answer(task, text) for text in texts]
        votes = Counter(answer for answer in answers if answer is not None)
        if self.labels == "majority" and votes:
            ((label, count),) = votes.most_common(1)
            return count / len(texts), replace(task, outputs=(label,))
        right = sum(count for answer, count in votes.items() if self.is_right(task, answer))
        return right / len(texts), task

    def _log(self, turns: Sequence[_Turn], trainer: Any) -> None:
        log = trainer.components.context.log
        for job in ("propose", "solve"):
            scores = [turn.score for turn in turns if turn.job == job]
            if scores:
                log(f"self_play/{job}", sum(scores) / len(scores))
        proposals = [turn for turn in turns if turn.job == "propose"]
        if proposals:
            log("self_play/kept", sum(turn.proposal is not None for turn in proposals) / len(proposals))


def _proposals(
    turns: Sequence[_Turn], prompt_ids: Sequence[list[int]], ids: Sequence[list[int]], source_index: Sequence[int]
) -> Proposals:
    """Return the proposals of all processes with their scores; a group begins where the index is 0."""
    group, found = -1, Proposals()
    for turn, prompt, written, number in zip(turns, prompt_ids, ids, source_index, strict=True):
        group += number == 0
        if turn.job == "propose":
            found.prompts.append(prompt)
            found.completions.append(written)
            found.scores.append(turn.score)
            found.groups.append(group)
    return found.gathered(processes().process_index * (1 << 20))


def as_message(text: str) -> list[dict[str, str]]:
    """Return a prompt of one message."""
    return [{"role": "user", "content": text}]
