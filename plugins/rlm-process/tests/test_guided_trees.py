"""Trees forked by surprisal, entropy or attention, and episodes that branch after observations."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from rlm_process.step_boundaries import Pattern
from rlm_process.tree_rollout import AttentionTree, EntropyTree, forward_influence, influences
from rlm_process.turn_branches import TurnBranches
from rlm_testing.fake_packages import registered
from rlm_testing.toy_policy import policy

from rlm_plugins import recipe
from rlm_plugins.builtin.models import scratch
from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry
from rlm_plugins.rollout.chat_tokens import EpisodeTokens
from rlm_plugins.rollout.episodes import EpisodeRunner
from rlm_plugins.run.train import train
from rlm_plugins.specs import Environment, EnvironmentSpec

_registered = registered("process", "worlds", autouse=True)


class Trainer:
    """Generates numbered tokens, so that each completion shows what it kept; `scores` are looked up by token."""

    def __init__(self, length: int = 6, surprisal: Callable[[int], float] = float) -> None:
        self.length, self.surprisal, self.tokens = length, surprisal, 0
        self.tokenizer = scratch(characters="0123456789;").tokenizer()

    def prompt_ids(self, prompts: Sequence[str]) -> list[list[int]]:
        return [[1] for _ in prompts]

    def generate(self, prompts: Sequence[str], prefixes: Any = None) -> list[list[int]]:
        rows = []
        for start in prefixes or [[]] * len(prompts):
            new = max(self.length - len(start), 1)
            rows.append(list(range(self.tokens + 1, self.tokens + 1 + new)))
            self.tokens += new
        return rows

    def token_statistics(self, prompts: Any, rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        width = max(map(len, rows))
        table = [[self.surprisal(token) for token in row] + [99.0] * (width - len(row)) for row in rows]
        return -torch.tensor(table), 2 * torch.tensor(table)


def grown(source: Any, trainer: Trainer, groups: int = 1, size: int = 4) -> list[list[int]]:
    prompts = ["x"] * groups * size
    found = source(prompts, [*range(size)] * groups, trainer.generate, trainer.tokenizer, trainer)
    rows: list[list[int]] = found["completion_ids"]
    return rows


def kept(row: Sequence[int], parent: Sequence[int]) -> int:
    """Return the length of the prefix that two completions share."""
    return next((n for n, (a, b) in enumerate(zip(row, parent, strict=False)) if a != b), min(len(row), len(parent)))


def test_forks_precede_the_most_surprising_tokens() -> None:
    """Trunk 1…6 with surprisals 0, 5, 1, 7, 2, 3: forks are before tokens 4 and 2, then in the forks."""
    scores = {1: 0.0, 2: 5.0, 3: 1.0, 4: 7.0, 5: 2.0, 6: 3.0}
    trainer = Trainer(surprisal=lambda token: scores.get(token, -1.0))
    rows = grown(EntropyTree(forks=2), trainer, size=5)
    assert rows[0] == [1, 2, 3, 4, 5, 6]
    assert [kept(row, rows[0]) for row in rows[1:]] == [3, 1, 5, 4]


def test_each_point_has_its_branches() -> None:
    """ETTRL: the two points of the largest entropy, two branches at each; a fifth fork has no second branch."""
    scores = {1: 0.0, 2: 5.0, 3: 1.0, 4: 7.0, 5: 2.0, 6: 3.0}
    for size, expected in ((5, [3, 3, 1, 1]), (4, [3, 3, 1])):
        rows = grown(EntropyTree(forks=4, branches=2), Trainer(surprisal=lambda t: scores.get(t, -1.0)), size=size)
        assert [kept(row, rows[0]) for row in rows[1:]] == expected
        assert len({tuple(row) for row in rows}) == size


def test_forks_of_forks_compete_with_the_trunk() -> None:
    """The first fork generates tokens that are more surprising than those left of the trunk."""
    trainer = Trainer(length=3, surprisal=lambda token: {2: 1.0, 3: 2.0, 4: 9.0}.get(token, 5.0))
    rows = grown(EntropyTree(forks=1), trainer, size=3)
    assert rows[:2] == [[1, 2, 3], [1, 2, 4]]
    assert kept(rows[2], rows[1]) == 2
    assert rows[2][2] not in (3, 4)


def test_groups_are_independent_and_sizes_are_exact() -> None:
    rows = grown(EntropyTree(trunks=2, forks=3), Trainer(), groups=3, size=7)
    assert len(rows) == 21
    for group in (rows[:7], rows[7:14], rows[14:]):
        assert len({tuple(row) for row in group}) == 7
        assert all(max(kept(row, trunk) for trunk in group[:2]) > 0 for row in group[2:])


def test_entropy_instead_of_surprisal() -> None:
    class Other(Trainer):
        def token_statistics(self, prompts: Any, rows: Any) -> tuple[torch.Tensor, torch.Tensor]:
            logp, entropy = super().token_statistics(prompts, rows)
            return logp, -entropy

    assert kept(*reversed(grown(EntropyTree(forks=1, by="entropy"), Other(), size=2))) == 1
    assert kept(*reversed(grown(EntropyTree(forks=1), Other(), size=2))) == 5


def test_tokens_after_until_are_never_forked() -> None:
    trainer = Trainer()
    ids = {character: trainer.tokenizer(character)["input_ids"][0] for character in "0123456789;"}
    trainer.generate = (
        lambda prompts, prefixes=None: [  # type: ignore[method-assign]
            [ids[c] for c in "12;45"][len(start) :] for start in prefixes or [[]] * len(prompts)
        ]
    )
    source = EntropyTree(until=";")
    points = source._points([ids[c] for c in "12;45"], 0, [0.0, 1.0, 2.0, 9.0, 9.0], trainer.tokenizer)
    assert [point.kept for point in points] == [1, 2]


def test_influence_equals_explicit_loops() -> None:
    generator = torch.Generator().manual_seed(0)
    attention = torch.rand(2, 9, 9, generator=generator, dtype=torch.float64).tril()
    spans, gap = [(1, 3), (3, 4), (4, 7), (7, 9)], 2
    expected = torch.zeros(2, 4, dtype=torch.float64)
    for head in range(2):
        for k, (a, b) in enumerate(spans):
            for j in range(k + gap, 4):
                c, d = spans[j]
                cells = [attention[head, q, t] for q in range(c, d) for t in range(a, b)]
                expected[head, k] += torch.stack(cells).mean()
    torch.testing.assert_close(forward_influence(attention, spans, gap=gap), expected)
    assert expected[:, 0].gt(0).all()
    assert not expected[:, 2:].any()


def test_influence_of_a_model_is_that_of_its_attention_weights() -> None:
    """The reference is attention from the model's own queries and keys, by hooks; the model is unchanged."""
    model = policy()
    prompt, row, ends = [3, 4], [5, 6, 7, 8, 9, 10], [2, 3, 5, 6]
    before = model.get_base_model().config._attn_implementation
    actual = influences(model, prompt, row, ends, gap=1)
    assert model.get_base_model().config._attn_implementation == before
    layer = model.get_base_model().model.layers[0].self_attn
    seen: dict[str, torch.Tensor] = {}
    handles = [
        module.register_forward_hook(lambda _, __, out, name=name: seen.__setitem__(name, out))
        for name, module in (("q", layer.q_norm), ("k", layer.k_norm))
    ]
    with torch.no_grad():
        ids = torch.tensor([[*prompt, *row]])
        model(input_ids=ids)
        for handle in handles:
            handle.remove()
        cos, sin = model.get_base_model().model.rotary_emb(seen["q"], torch.arange(8).unsqueeze(0))

        def rotate(x: torch.Tensor) -> torch.Tensor:
            x = x.transpose(1, 2)
            half = x.shape[-1] // 2
            return x * cos.unsqueeze(1) + torch.cat([-x[..., half:], x[..., :half]], -1) * sin.unsqueeze(1)

        scores = rotate(seen["q"]) @ rotate(seen["k"]).transpose(2, 3) * layer.scaling
        weights = scores.masked_fill(torch.ones(8, 8).triu(1).bool(), -torch.inf).softmax(-1)[0]
    spans = [(2 + a, 2 + b) for a, b in pairwise((0, *ends))]
    expected = forward_influence(weights.float(), spans, gap=1).amax(0)
    torch.testing.assert_close(torch.tensor(actual), expected, rtol=1e-4, atol=1e-5)


def test_points_are_the_most_influential_steps_at_a_distance() -> None:
    source = AttentionTree(steps=Pattern(pattern=";"), share=0.6, distance=3)
    ends, scores = [2, 4, 6, 8, 10], [9.0, 1.0, 5.0, 4.0, 3.0]
    row = list(range(10))
    assert [point.kept for point in source._points(row, 0, ends, scores, None)] == [4, 8]
    free = AttentionTree(steps=Pattern(pattern=";"), share=0.6)
    assert [point.kept for point in free._points(row, 0, ends, scores, None)] == [4, 6, 8]
    assert [point.kept for point in free._points(row, 5, ends, scores, None)] == [6, 8]


class Chain(Environment):
    """Environment that repeats the action, for three turns."""

    turns = 3

    def reset(self, secret: int) -> str:
        self.said: list[str] = []
        return f"{secret};"

    def step(self, action: str) -> tuple[str, float, bool]:
        self.said.append(action)
        return f"{len(self.said)};", float(len(action)), False


class Playing(Trainer):
    """Trainer for real episodes with turns of two numbered digits; the entropy of a turn depends on its number."""

    def __init__(self, entropy: Sequence[float]) -> None:
        super().__init__()
        self.entropy, self.played = entropy, list[list[int]]()
        spec = EnvironmentSpec(train=[], test=[], environment=Chain)
        self.end = self.tokenizer.eos_token_id
        self.runner = EpisodeRunner(spec, self.tokenizer, end_token_ids=[self.end], max_completion_length=64)

    def _continue(self, ids: list[list[int]]) -> tuple[list[list[int]], None]:
        self.tokens += len(ids)
        turns = [f"{(self.tokens + n) % 100:02d}" for n in range(len(ids))]
        return [[*self.tokenizer(turn)["input_ids"], self.end] for turn in turns], None

    def play(self, prompts: Any, inputs: Any, starts: Any) -> dict[str, list[Any]]:
        rows = self.runner.play(prompts, inputs, self._continue, starts=starts)
        self.played.append([0 if start is None else start.turns for start in starts])
        return {"completion_ids": [row.completion_ids for row in rows], "episode_tokens": rows}

    def token_statistics(self, prompts: Any, rows: Any) -> tuple[torch.Tensor, torch.Tensor]:
        table = torch.zeros(len(rows), max(map(len, rows)))
        for number, row in enumerate(rows):
            turn = 0
            for t, token in enumerate(row):
                table[number, t] = self.entropy[turn]
                turn += token == self.end
        return table, table


def branched(source: TurnBranches, trainer: Playing, size: int = 4, groups: int = 1) -> list[EpisodeTokens]:
    inputs = [{"secret": number // size} for number in range(size * groups)]
    found = source(["p"] * size * groups, inputs, [*range(size)] * groups, trainer)
    rows: list[EpisodeTokens] = found["episode_tokens"]
    return rows


def said(row: EpisodeTokens) -> list[str]:
    return [str(m["content"]) for m in row.episode.messages if m["role"] == "assistant"]


def test_episodes_branch_before_uncertain_turns() -> None:
    """Turn 2 is twice as uncertain as turn 0, turn 1 is not: P = 0.7 and 0.5."""
    trainer = Playing([1.0, 1.0, 2.0])
    rows = branched(TurnBranches(branches=2), trainer, size=3)
    assert trainer.played == [[0], [2, 2]]
    for row in rows[1:]:
        assert said(row)[:2] == said(rows[0])[:2]
        assert said(row)[2] != said(rows[0])[2]
        assert row.episode.environment.said == said(row), "the environment was replayed"
        assert row.episode.turn_rewards == rows[0].episode.turn_rewards
        assert row.mask == rows[0].mask


def test_branches_branch_again_in_the_next_round() -> None:
    trainer = Playing([1.0, 2.0, 3.0])
    rows = branched(TurnBranches(), trainer, size=5, groups=2)
    assert len(rows) == 10
    assert trainer.played[0] == [0, 0]
    assert trainer.played[1] == [2, 1, 2, 1]
    assert trainer.played[2:] == [[2, 2], [0, 0]], "the branch at turn 1 branches at turn 2; the rest starts anew"
    assert {row.episode.prompt for row in rows[:5]} != {row.episode.prompt for row in rows[5:]}


SUMS = """
environment: {name: addition, digits: 1, train_rows: 16, test_rows: 0}
rewards: [accuracy]
model: {name: scratch, layers: 1, hidden: 16, heads: 2, intermediate: 32, lora: {r: 2, target_modules: all-linear}}
trainer: {max_steps: 2, per_device_train_batch_size: 8, num_generations: 4, max_completion_length: 8}
"""


TALK = """
environment: {name: nim, highest: 9}
rewards: [episode_return]
model: {name: scratch, layers: 1, hidden: 16, heads: 2, intermediate: 32, lora: {r: 2, target_modules: all-linear}}
algorithm: {name: arpo, rollouts: [{name: turn_branches, threshold: -9}]}
trainer: {max_steps: 2, per_device_train_batch_size: 8, num_generations: 4, max_completion_length: 24}
"""


@pytest.mark.slow
def test_arpo_trains_on_episodes(tmp_path: Path) -> None:
    pytest.importorskip("rlm_worlds")
    file = tmp_path / "recipe.yaml"
    file.write_text(TALK)
    run = train(recipe.load(file), Registry(), tmp_path / "run")
    records = [record for record in run.records() if "loss" in record]
    assert len(records) == 2
    assert records[0]["sources/turn_branches/share"] == 1.0
    assert records[0]["episodes/turns"] >= 1
    json.dumps(records)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TALK.replace("turn_branches, threshold: -9", "tree"), "multi-turn environment, and the source 'tree'"),
        (SUMS + "algorithm: arpo\n", "single-turn environment"),
    ],
)
def test_sources_must_fit_the_environment(tmp_path: Path, text: str, words: str) -> None:
    pytest.importorskip("rlm_worlds")
    file = tmp_path / "recipe.yaml"
    file.write_text(text)
    with pytest.raises(RecipeError, match=words):
        compose(recipe.load(file), Registry())
