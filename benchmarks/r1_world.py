"""The world of `r1.py`: questions, and requests that a judge compares with a rubric, in two scripts.

A question is answered at once or after a thought of three words, each of which may be written in Latin or in Greek
letters. A request has no right answer. Logits are sums of feature weights, which questions and requests share: of a
thought, of the script, of the end of a reply.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Callable, Sequence
from functools import cache, partial

import torch
from rlm_intrinsic import language_consistency
from rlm_judge import fake, judge_rubric
from rlm_judge.spec import ServerSpec
from small_policy import NEVER, Tokens, World
from torch import nn

from rlm_plugins.builtin.rewards import accuracy

QUESTIONS, REQUESTS, STEPS, DIGITS = 6, 3, 3, 4
THINK, ANSWER, END, MORE = range(4)
WORD, DIGIT = 4, 10
"""First token of three Latin and three Greek words, and of four digits."""
TOKENS = DIGIT + DIGITS
THOUGHT = ("alpha", "beta", "gamma", "άλφα", "βήτα", "γάμμα")
REPLY = ("please", "because", "well", "παρακαλώ", "επειδή", "λοιπόν")
RUBRIC = {"It is polite.": 1.0, "It gives a reason.": 1.0, "A word of it is not English.": -1.0}
MEETS: tuple[Callable[[set[str]], bool], ...] = (
    lambda words: bool(words & {REPLY[0], REPLY[3]}),
    lambda words: bool(words & {REPLY[1], REPLY[4]}),
    lambda words: bool(words & set(REPLY[3:])),
)
ASKED, ALL = range(QUESTIONS), range(QUESTIONS + REQUESTS)


class Net(nn.Module):
    """Logits (states, tokens) as sums of the weights of a state's features."""

    active: torch.Tensor
    allowed: torch.Tensor

    def __init__(self, states: Sequence[tuple[list[str], list[int]]], weights: dict[str, dict[int, float]]) -> None:
        super().__init__()
        names = sorted({name for features, _ in states for name in features})
        active = torch.tensor([[float(name in features) for name in names] for features, _ in states])
        allowed = torch.full((len(states), TOKENS), NEVER, dtype=torch.float64)
        for row, (_, tokens) in enumerate(states):
            allowed[row, tokens] = 0.0
        self.register_buffer("active", active.double())
        self.register_buffer("allowed", allowed)
        start = [[weights.get(name, {}).get(token, 0.0) for token in range(TOKENS)] for name in names]
        self.weights = nn.Parameter(torch.tensor(start, dtype=torch.float64))

    def forward(self) -> torch.Tensor:
        """Return the logits."""
        return self.active @ self.weights + self.allowed


State = tuple[list[str], list[int]]
Graph = tuple[list[State], torch.Tensor, list[int]]


@cache
def graph() -> Graph:
    """Return the features and tokens of each state, the next states, and the first state of each prompt."""
    states, following = list[State](), list[list[int]]()

    def add(features: list[str], edges: dict[int, int]) -> int:
        states.append((features, list(edges)))
        following.append([edges.get(token, 0) for token in range(TOKENS)])
        return len(states) - 1

    sink, words = add([], {END: 0}), range(WORD, DIGIT)
    scripts = ("first", "after Latin", "after Greek")
    first = []
    for question in range(QUESTIONS):
        tail = add(["end"], {END: sink, MORE: sink})
        answers = {
            name: add([name], dict.fromkeys(range(DIGIT, TOKENS), tail))
            for name in (f"known {question}", "lost", f"guess {question}")
        }
        on, off = ([answers[name]] * 3 for name in (f"known {question}", "lost"))
        for step in reversed(range(STEPS)):
            right = (question + step) % 3
            then_on = {word: (on if (word - WORD) % 3 == right else off)[1 + (word - WORD) // 3] for word in words}
            then_off = {word: off[1 + (word - WORD) // 3] for word in words}
            on = [add(["word", f"step {question} {step}", script], then_on) for script in scripts]
            off = [add(["word", script], then_off) for script in scripts]
        first.append(add(["open"], {THINK: on[0], ANSWER: answers[f"guess {question}"]}))
    for _ in range(REQUESTS):
        reply = [sink] * 3
        for place in reversed(range(STEPS)):
            then = {word: reply[1 + (word - WORD) // 3] for word in words}
            ends: dict[int, int] = {END: sink} if place else {}
            reply = [add(["word", "reply", script] + ["end"] * bool(place), {**then, **ends}) for script in scripts]
        thought = add(["word"], dict.fromkeys(words, reply[0]))
        first.append(add(["open"], {THINK: thought, ANSWER: reply[0]}))
    return states, torch.tensor(following), first


def base(thought: float, greek_better: bool) -> Net:
    """Return the policy at the start.

    Args:
        thought: How often it writes one.
        greek_better: Its second word of a thought is right more often in Greek.
    """
    latin, greek = range(WORD, WORD + 3), range(WORD + 3, DIGIT)
    weights = {
        "open": {THINK: logit(thought)},
        "word": {**dict.fromkeys(latin, math.log(1.5)), **dict.fromkeys(greek, 0.0)},
        "after Latin": dict.fromkeys(latin, 0.7),
        "after Greek": dict.fromkeys(greek, 0.7),
        "end": {END: 1.4},
        "reply": {WORD + 2: math.log(2), WORD + 5: math.log(2)},
    }
    for question in range(QUESTIONS):
        weights[f"known {question}"] = {right_digit(question): logit(0.9) + math.log(DIGITS - 1)}
        weights[f"guess {question}"] = {right_digit(question): logit(0.35) + math.log(DIGITS - 1)}
        for step in range(STEPS):
            word = WORD + (question + step) % 3
            chances = (0.35, 0.8) if greek_better and step == 1 else (0.55, 0.55)
            own = {word + 3 * n: logit(chance) + math.log(2) for n, chance in enumerate(chances)}
            weights[f"step {question} {step}"] = own
    return Net(graph()[0], weights)


def logit(chance: float) -> float:
    """Return log p / (1 − p)."""
    return math.log(chance / (1 - chance))


def right_digit(question: int) -> int:
    """Return the token of the right digit."""
    return DIGIT + question % DIGITS


def text(prompt: int, completion: Tokens) -> str:
    """Return the completion as text."""
    words, reply = list[str](), list[str]()
    thinks = completion[0] == THINK
    num_thought = (STEPS if prompt < QUESTIONS else 1) if thinks else 0
    for n, token in enumerate(completion[1:]):
        if WORD <= token < DIGIT:
            (words if n < num_thought else reply).append((THOUGHT if n < num_thought else REPLY)[token - WORD])
        elif token != END:
            reply.append("because" if token == MORE else str(token - DIGIT))
    thought = f"<think>{' '.join(words)}</think>" if thinks else ""
    answer = " ".join(reply)
    return thought + (f"<answer>{answer}</answer>" if prompt < QUESTIONS else answer)


def respond(_: str, user: str) -> str:
    """Return the verdict of a judge that searches the words of the rubric, in the form that the prompt requests."""
    answer = re.search(r"<answer-(\w+)>\n(.*?)\n</answer-", user, re.DOTALL)
    assert answer
    words = set(answer[2].split())
    verdict = {str(n): meets(words) for n, meets in enumerate(MEETS, 1)}
    return f"Verdict-{answer[1]}: {json.dumps(verdict)}"


@cache
def completions() -> list[tuple[int, Tokens, list[int]]]:
    """Return every completion: prompt, tokens and states."""
    states, following, first = graph()
    every = list[tuple[int, Tokens, list[int]]]()

    def extend(prompt: int, tokens: Tokens, visited: list[int]) -> None:
        for token in states[visited[-1]][1]:
            if token == END:
                every.append((prompt, [*tokens, END], visited))
            else:
                extend(prompt, [*tokens, token], [*visited, int(following[visited[-1], token])])

    for prompt, state in enumerate(first):
        extend(prompt, [], [state])
    return every


@cache
def scores() -> dict[str, dict[tuple[int, tuple[int, ...]], float]]:
    """Return the score of every completion by accuracy, consistency of language, and the rubric."""
    keys = [(prompt, tuple(tokens)) for prompt, tokens, _ in completions()]
    texts = [text(prompt, list(tokens)) for prompt, tokens in keys]
    answers = [str(right_digit(prompt) - DIGIT) if prompt < QUESTIONS else None for prompt, _ in keys]
    right = accuracy(texts, answers)
    asked = [answer is not None for answer in answers]
    language = [x if ask else None for x, ask in zip(language_consistency(texts), asked, strict=True)]
    replies = sorted(
        {reply.rpartition("</think>")[2] for reply, answer in zip(texts, answers, strict=True) if not answer}
    )
    with fake.Fake(respond) as server:
        judge = ServerSpec(url=server.url, model="scripted")
        judged = asyncio.run(judge_rubric(replies, ["Reply."] * len(replies), judge=judge, criteria=RUBRIC))
    verdicts = dict(zip(replies, judged, strict=True))
    rubric = [verdicts.get(reply.rpartition("</think>")[2]) for reply in texts]
    named = {"accuracy": right, "language": language, "rubric": rubric}
    return {name: {key: x or 0.0 for key, x in zip(keys, values, strict=True)} for name, values in named.items()}


class Measures:
    """Exact expectations over all completions of a policy, which is evaluated once for all of them."""

    def __init__(self) -> None:
        every, paid = completions(), scores()
        width = max(len(tokens) for _, tokens, _ in every)
        self.states = torch.tensor([visited + [0] * (width - len(visited)) for _, _, visited in every])
        self.tokens = torch.tensor([tokens + [END] * (width - len(tokens)) for _, tokens, _ in every])
        keys = [(prompt, tuple(tokens)) for prompt, tokens, _ in every]
        self.scores = {name: torch.tensor([values[key] for key in keys]).double() for name, values in paid.items()}
        self.asks = torch.tensor([float(prompt < QUESTIONS) for prompt, _ in keys]).double()
        self.thinks = self.asks * torch.tensor([float(tokens[0] == THINK) for _, tokens in keys])
        share = self.scores["language"]
        self.mixes = self.thinks * ((share > 0) & (share < 1))
        self.logits, self.chances = torch.zeros(0), torch.zeros(0)

    def of(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the probability of each completion, given its prompt."""
        if logits is not self.logits:
            self.logits = logits
            self.chances = logits.log_softmax(1)[self.states, self.tokens].sum(1).exp()
        return self.chances

    def right(self, logits: torch.Tensor) -> float:
        """Return the accuracy on questions."""
        return (self.of(logits) @ (self.scores["accuracy"] * self.asks)).item() / QUESTIONS

    def latin(self, logits: torch.Tensor) -> float:
        """Return the share of Latin words in the thoughts about questions."""
        chances = self.of(logits)
        return (chances @ (self.scores["language"] * self.thinks) / (chances @ self.thinks)).item()

    def mixed(self, logits: torch.Tensor) -> float:
        """Return the share of these thoughts that have both scripts."""
        chances = self.of(logits)
        return (chances @ self.mixes / (chances @ self.thinks)).item()

    def rubric(self, logits: torch.Tensor) -> float:
        """Return the score of replies to requests."""
        return (self.of(logits) @ (self.scores["rubric"] * (1 - self.asks))).item() / REQUESTS


def paid(weights: dict[str, float], prompts: Sequence[int], prompt: int, completion: Tokens) -> float:
    """Return the weighted sum of the scores of a completion of `prompts[prompt]`."""
    key = (prompts[prompt], tuple(completion))
    return sum(weight * scores()[name][key] for name, weight in weights.items())


def task(start: torch.Tensor, prompts: Sequence[int], weights: dict[str, float]) -> World:
    """Return the world of these prompts."""
    _, following, first = graph()
    reward = partial(paid, weights, prompts)
    return World(start, STEPS + 4, END, [first[prompt] for prompt in prompts], following, reward)
