"""r: consistency of intermediate steps with the final answer (hook ``rlm_rewards``), from the policy's likelihoods."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from jaxtyping import Float
from pydantic import AfterValidator

from rlm_intrinsic.majority import Answer, answer, group_indices
from rlm_plugins.data.answer_extraction import Untagged, final_answers
from rlm_plugins.equation.knobs import Count, Share
from rlm_plugins.errors import PartError
from rlm_plugins.lazy import torch


def _validate_pattern(pattern: str) -> str:
    try:
        empty = re.compile(pattern).fullmatch("")
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    if empty:
        raise ValueError("matches the empty string; it must match the end of a step")
    return pattern


Regex = Annotated[str, AfterValidator(_validate_pattern)]


def step_ends(token_texts: Sequence[str], separator: str, most: int) -> list[int]:
    """Return the token counts at which each step but the last ends, at most `most` of them, evenly spaced.

    Args:
        token_texts: Text of each token; a step ends with the token in which its separator ends.
        separator: A regular expression.
        most: Largest number of states.

    >>> step_ends(["1+1", "=2", ";", "2+1=", "3;", "so 3"], ";", 15)
    [3, 5]
    """
    text = "".join(token_texts).rstrip()
    boundaries = {match.end() for match in re.finditer(separator, text) if match.end() < len(text)}
    ends, length = [], 0
    for count, token_text in enumerate(token_texts, start=1):
        if boundaries & {*range(length + 1, length + len(token_text) + 1)}:
            ends.append(count)
        length += len(token_text)
    num_kept = min(most, len(ends))
    return [ends[(index + 1) * len(ends) // num_kept - 1] for index in range(num_kept)]


class AnswerLikelihoods:
    """Likelihoods of answers from positions within a text."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self._model, self._tokenizer = model, tokenizer

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each token; empty for special ones, so that the end token ends no step."""
        return [str(self._tokenizer.decode([token], skip_special_tokens=True)) for token in ids]

    def distances(
        self, prompt: Any, ids: Sequence[int], ends: Sequence[int], lead: str, answers: Sequence[str]
    ) -> list[list[float]]:
        """Compute −1/|y| Σ log π(y | prompt, ids[:end], lead), for each end (line) and answer y (column).

        Args:
            prompt: Text or messages.
            ids: Token ids of the completion.
            ends: Numbers of its tokens before each state.
            lead: Text before the answer.
            answers: The answers.
        """
        from rlm_plugins.models.adapters import evaluation_mode

        if not ends:
            return []
        prompt_ids, lead_ids = self._prompt_ids(prompt), self._ids(lead)
        answer_ids = [self._ids(text) for text in answers]
        if not all(answer_ids):
            raise PartError("an answer has no token", hint="does the policy's tokenizer have its characters?")
        prefixes = [[*prompt_ids, *ids[:end], *lead_ids] for end in ends]
        with evaluation_mode(self._model):
            return mean_nll(self._model, prefixes, answer_ids).tolist()

    def _prompt_ids(self, prompt: Any) -> list[int]:
        if isinstance(prompt, str):
            return list(self._tokenizer(prompt)["input_ids"])
        inputs = self._tokenizer.apply_chat_template(
            prompt, add_generation_prompt=True, tokenize=True, return_dict=True
        )
        return list(inputs["input_ids"])

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])


def mean_nll(
    model: Any, prefixes: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]
) -> Float[torch.Tensor, "S K"]:
    """Compute the mean −log π of each answer (column) after each prefix (line), in one right-padded batch."""
    pairs = [(prefix, answer) for prefix in prefixes for answer in answers]
    sequences = [torch.tensor([*prefix, *answer]) for prefix, answer in pairs]
    ids = torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True).to(model.device)
    lengths = torch.tensor([len(sequence) for sequence in sequences], device=model.device)
    attention_mask = (torch.arange(ids.shape[1], device=model.device) < lengths[:, None]).long()
    logits = model(input_ids=ids, attention_mask=attention_mask, use_cache=False).logits
    values = []
    for row, (prefix, ids_of_answer) in enumerate(pairs):
        end = len(prefix) + len(ids_of_answer)
        logp = logits[row, len(prefix) - 1 : end - 1].float().log_softmax(-1)
        target = ids[row, len(prefix) : end]
        values.append(-logp.gather(1, target[:, None]).mean())
    return torch.stack(values).view(len(prefixes), len(answers))


class PathConsistency:
    """Consistency of a completion's steps with its answer, compared with the other answers of the group.

    r = ‖ mean_{j: aⱼ = aᵢ} Conⱼ · (cos Volⱼ, sin Volⱼ) ‖. CoVo, arXiv 2506.08745. A completion has the states s₁ … s_S,
    the ends of its steps before the one with the answer. From each state the answers y of the group have the distances
    d(s, y) = −1/|y| Σ log π(y | s, `lead`). Con is the share of states in which the completion's answer is the nearest.
    Vol is 1 minus the share of final states in which no other answer is nearer. With `threshold` r is 1 or 0, as in the
    authors' code (0.5).

    `separator` is a regular expression for the end of a step; at most `most` states are used, evenly spaced.
    Answers are extracted as for `majority_vote`; without one the score is 0. A group with a single answer has no
    comparison and is not scored: None. A completion without a state has Con = 0. The likelihoods come from the policy
    itself, in one padded batch per completion. The curiosity reward of the authors is not included. Their code also
    counts the whole answer as a last state.

    Pitfalls: Vol only rotates the vector, so equal volatility in a group does not change the norm. The distance is a
    mean over tokens, so a long answer with a certain tail is near in every state. Like every vote, this rewards
    certainty.
    """

    def __init__(
        self,
        *,
        separator: Regex = r"\n",
        lead: str = "\nThe answer is: ",
        most: Count = 15,
        threshold: Share | None = None,
        tag: str = "answer",
        untagged: Untagged = "last_line",
    ) -> None:
        self._separator, self._lead, self._most, self._threshold = separator, lead, most, threshold
        self._tag, self._untagged = tag, untagged
        self._likelihoods: AnswerLikelihoods | None = None

    def setup(self, policy: Any, results: Mapping[str, Path], tokenizer: Any) -> None:
        """Receive the policy that is trained or evaluated, whose likelihoods are used."""
        self._likelihoods = AnswerLikelihoods(policy, tokenizer)

    def __call__(
        self,
        prompt_messages: Sequence[Any],
        completions: Sequence[str],
        completion_ids: Sequence[Sequence[int]],
        log_metric: Any = None,
    ) -> list[float | None]:
        if self._likelihoods is None:
            raise PartError("requires the policy, whose likelihoods it uses")
        answers = [answer(text, self._tag, self._untagged) for text in completions]
        scores: list[float | None] = [None] * len(answers)
        paths: list[tuple[float, float]] = []
        for group in group_indices(prompt_messages).values():
            spellings = self._spellings({member: answers[member] for member in group}, completions)
            if len(spellings) > 1:
                paths_of = {
                    member: self._consistency(
                        prompt_messages[member], completion_ids[member], answers[member], spellings
                    )
                    for member in group
                }
                paths += [path for path in paths_of.values() if path]
                for member in group:
                    same_answer = [
                        path for index, path in paths_of.items() if path and answers[index] == answers[member]
                    ]
                    scores[member] = self._reward(same_answer) if paths_of[member] else 0.0
        for index, name in enumerate(("consistency", "volatility")):
            if log_metric is not None and paths:
                log_metric(f"path_consistency/{name}", sum(path[index] for path in paths) / len(paths))
        return scores

    def _spellings(self, answers: Mapping[int, Answer | None], completions: Sequence[str]) -> dict[Answer, str]:
        """Return answer → its text; among several spellings the alphabetically first, independent of order."""
        texts_of: dict[Answer, set[str]] = {}
        for index, final_answer in answers.items():
            if final_answer is not None:
                texts = final_answers(completions[index], self._tag, self._untagged)
                texts_of.setdefault(final_answer, set()).update(texts)
        return {final_answer: min(texts).strip() for final_answer, texts in texts_of.items()}

    def _consistency(
        self, prompt: Any, ids: Sequence[int], final_answer: Answer | None, spellings: Mapping[Answer, str]
    ) -> tuple[float, float] | None:
        """Return Con and Vol of a completion; None without an answer."""
        if final_answer is None:
            return None
        assert self._likelihoods is not None
        cuts = step_ends(self._likelihoods.token_texts(ids), self._separator, self._most)
        texts = [spellings[final_answer], *(text for key, text in spellings.items() if key != final_answer)]
        return consistency_and_volatility(self._likelihoods.distances(prompt, ids, cuts, self._lead, texts))

    def _reward(self, paths: Sequence[tuple[float, float]]) -> float:
        value = joint_consistency(paths)
        return value if self._threshold is None else float(value >= self._threshold)


def consistency_and_volatility(distances: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return Con and Vol from each state's distances to the completion's answer (first) and to the other answers.

    >>> consistency_and_volatility([[2.0, 1.0], [1.0, 2.0], [0.5, 2.0], [0.5, 3.0]])
    (0.75, 0.25)
    """
    if not distances:
        return 0.0, 1.0
    margins = [distance - min(alternatives) for distance, *alternatives in distances]
    stable = next((count for count, margin in enumerate(reversed(margins)) if margin > 0), len(margins))
    return sum(margin < 0 for margin in margins) / len(margins), 1 - stable / len(margins)


def joint_consistency(paths: Sequence[tuple[float, float]]) -> float:
    """Compute ‖ mean Con · (cos Vol, sin Vol) ‖.

    >>> joint_consistency([(0.5, 0.3), (1.0, 0.3)])
    0.75
    """
    x = sum(con * math.cos(vol) for con, vol in paths) / len(paths)
    y = sum(con * math.sin(vol) for con, vol in paths) / len(paths)
    return math.hypot(x, y)
