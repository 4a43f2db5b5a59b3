"""A model that learns whether two answers are the same, and a reward that asks it where a rule cannot read."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import Any

from rlm_plugins.data.answer_extraction import final_answers
from rlm_plugins.equation.knobs import Count, Share
from rlm_plugins.errors import RecipeError
from rlm_plugins.specs import EnvironmentSpec

ITEMS = "ABCDEFGH"
FORMS = ("{a}{c} at {b}", "{c} x {a} @ ${b}", "{b} each for {a} {c}", "{a} {c} for {b} each")


def answer_pairs(*, train_rows: Count = 16384, seed: int = 0) -> EnvironmentSpec:
    """Build pairs of answers with a known verdict: ``7A at 2~2 each for 7 A`` → ``+``, ``7A at 2~2A at 7`` → ``-``.

    An answer is a number of things, their name and a price, in one of four forms that `math_accuracy` cannot read. Half
    of the pairs are equal. In the others one of the three is changed, or both numbers are exchanged. One reference in
    eight is held out, by the hash of what it states.

    >>> spec = answer_pairs(train_rows=1)
    >>> len(spec.test), spec.test[0]["prompt"][0]["content"], spec.test[0]["answer"]
    (492, '3 each for 1 B~1 D for 3 each', '-')
    """
    purchases = [(a, b, c) for a in range(1, 10) for b in range(1, 10) for c in ITEMS if a != b]
    rng, fixed = random.Random(f"answer pairs {seed}"), random.Random("held-out answer pairs")
    known = [each for each in purchases if not _is_held_out(*each)]
    held_out = [each for each in purchases if _is_held_out(*each)]
    return EnvironmentSpec(
        train=[_pair(*rng.choice(known), rng) for _ in range(train_rows)],
        test=[_pair(*each, fixed) for each in held_out for _ in range(6)],
    )


def _is_held_out(a: int, b: int, c: str) -> bool:
    return hashlib.blake2b(f"{a} {b} {c}".encode(), digest_size=1).digest()[0] < 32


def _pair(a: int, b: int, c: str, rng: random.Random) -> dict[str, Any]:
    step = rng.randrange(1, 9)
    others = [(b, a, c), (a, 1 + (b - 1 + step) % 9, c), (1 + (a - 1 + step) % 9, b, c)]
    others.append((a, b, rng.choice(ITEMS.replace(c, ""))))
    is_same = rng.random() < 0.5
    stated = [(a, b, c), (a, b, c) if is_same else rng.choice(others)]
    texts = [rng.choice(FORMS).format(a=x, b=y, c=z) for x, y, z in stated]
    verdict = "+" if is_same else "-"
    return {"prompt": _question(*texts), "answer": verdict, "demonstration": verdict}


def _question(reference: str, answer: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"{reference}~{answer}"}]


class JudgedEquality:
    """r = the score of `rule`; where it cannot read the reference, 1 if a trained model says that the answer is equal.

    The model: `path`, the output folder of supervised training on `answer_pairs`, or of any model that writes ``+`` for
    two equal answers after ``reference~answer``. Source: a model as verifier where rules fail, General-Reasoner,
    arXiv 2505.14652; there a language model of 1.5B parameters writes its reasoning first. `rule`: a reward of
    completions and `answer`. Completions without a box have no answer: 0.

    Pitfall: unlike a rule, it has false accepts. It is valid near the pairs of its training.
    """

    gold_column = "answer"

    def __init__(self, *, path: str, rule: str = "math_accuracy", threshold: Share = 0.5) -> None:
        self.path, self.rule, self.threshold = path, rule, threshold
        self._parts: Any = None

    def _load(self) -> Any:
        from rlm_plugins.models.pretrained import Checkpoint
        from rlm_plugins.registry import Registry
        from rlm_plugins.workers.distributed import processes

        part = Registry(()).find("rlm_rewards", self.rule, where="judged_equality.rule")
        if isinstance(part.target, type):
            raise RecipeError(f"expected a function as rule, got the class `{self.rule}`", where="judged_equality.rule")
        checkpoint = Checkpoint(self.path)
        return part.target, checkpoint.model().to(processes().device).eval(), checkpoint.tokenizer()

    def __call__(self, completions: Sequence[str], answer: Sequence[object]) -> list[float | None]:
        """Return 1 or 0 per completion, and None without a reference."""
        self._parts = self._parts or self._load()
        scores: list[float | None] = self._parts[0](completions, answer)
        unread = [row for row, (score, gold) in enumerate(zip(scores, answer, strict=True)) if score is None and gold]
        for row in unread:
            given = final_answers(completions[row], "answer", "boxed")
            scores[row] = float(bool(given) and self.probability(str(answer[row]), given[-1]) > self.threshold)
        return scores

    def probability(self, reference: str, answer: str) -> float:
        import torch
        from rlm_algorithms.auxiliary_part import messages_without_special_tokens

        self._parts = self._parts or self._load()
        _, model, tokenizer = self._parts
        messages = messages_without_special_tokens(tokenizer, _question(reference, answer))
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        marks = [tokenizer.encode(mark, add_special_tokens=False)[0] for mark in "+-"]
        with torch.no_grad():
            logits = model(**ids.to(model.device)).logits[0, -1, marks]
        return float(torch.softmax(logits.float(), 0)[0])
