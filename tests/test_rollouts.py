"""The built-in rollout sources, on a trainer with a tiny policy."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import torch
from fixtures_trainer import trainer
from rlm_algorithms.demonstrations import Demonstrations
from rlm_algorithms.replay_rollouts import Replay
from rlm_algorithms.tree_rollouts import Branches

from rlm_plugins.errors import PartError, RecipeError
from rlm_plugins.models.scratch import build_tokenizer
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound
from rlm_plugins.rollout.collector import RolloutCollector
from rlm_plugins.trainer import EquationTrainer
from rlm_plugins.trainer.checkpoint import checkpoints
from rlm_plugins.trainer.generation import PromptTokens
from rlm_plugins.trainer.observer import StepObserver

REGISTRY = Registry()
SEEN: list[Any] = []


class Seen(StepObserver):
    """Record prompts, texts and batch of each generation batch in `SEEN`."""

    def attach(self, trainer: Any) -> None:
        self.rewards = trainer.components.rewards

    def scored(self, batch: Any, turn_ends: Any) -> None:
        prompts, texts = self.rewards.texts
        SEEN.append(SimpleNamespace(prompts=prompts, texts=texts, batch=batch))


class Temperatures(StepObserver):
    """Record step and temperatures of each generation batch."""

    def __init__(self) -> None:
        self.found: list[tuple[int, float, float]] = []

    def attach(self, trainer: Any) -> None:
        self.trainer = trainer

    def scored(self, batch: Any, turn_ends: Any) -> None:
        step, generation = self.trainer.state.global_step, self.trainer.generation_config
        self.found.append((step, self.trainer.temperature, generation.temperature))


def source(name: str, rows: int | None = None, **knobs: Any) -> Bound:
    bound = REGISTRY.find("rlm_rollouts", name).bind(knobs)
    return replace(bound, options={"num_completions": rows} if rows else {})


def rollout_trainer(folder: Path, *sources: Bound, **changes: Any) -> EquationTrainer:
    """Return a GRPO trainer with groups of four on two problems, whose answers are the demonstrations."""
    data = tiny.problems(16).map(lambda row: {"demonstration": row["answer"]})
    pieces = {
        "collector": RolloutCollector(sources, tiny.settings()["num_generations"]) if sources else None,
        "observers": [Seen()],
    }
    SEEN.clear()
    return trainer(folder, data=data, pieces=pieces, **{"max_steps": 2, **changes})


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> EquationTrainer:
    """Return a trainer that only generates and computes log-probs."""
    return rollout_trainer(tmp_path_factory.mktemp("idle"))


def logits(equation_trainer: EquationTrainer, ids: list[int]) -> torch.Tensor:
    """Return the logits of the policy, (1, T, V)."""
    with torch.no_grad():
        return equation_trainer.model(input_ids=torch.tensor([ids])).logits


def test_greedy_is_the_most_likely_token_each_time(idle: EquationTrainer) -> None:
    prompts, usual = ["1+2=", "7+7="], idle.generation_config
    (ids, others), _ = idle.generate(prompts, greedy=True)
    assert idle.generate(prompts, greedy=True)[0] == [ids, others]
    for prompt, written in zip(idle.prompt_ids(prompts), (ids, others), strict=True):
        for t, token in enumerate(written):
            assert logits(idle, prompt + written[:t])[0, -1].argmax().item() == token
    assert idle.generation_config is usual
    assert usual.do_sample


def test_processes_generate_equally_many_sequences(idle: EquationTrainer, monkeypatch: Any) -> None:
    """If all processes must generate together, a process without sequences generates unused ones."""
    monkeypatch.setattr(idle.components.generation, "num_dummies", lambda rows: 3 - rows)
    monkeypatch.setattr(idle.components.prompts, "inputs", [{"prompt": "1+1="}] * 3)
    seen = []
    usual = idle._generate_single_turn
    monkeypatch.setattr(idle, "_generate_single_turn", lambda *a, **k: (seen.append(len(a[0])), usual(*a, **k))[1])
    (ids,), _ = idle.generate(["1+2="], [[4, 5]], greedy=True)
    assert idle.generate([]) == ([], None)
    assert seen == [3, 3]
    monkeypatch.undo()
    assert ids == idle.generate(["1+2="], [[4, 5]], greedy=True)[0][0]


def pass_of_four_tokens(trainer: EquationTrainer) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log-probs and entropies (1, 4) of the tokens 5 to 8 after themselves."""
    ids = torch.tensor([[5, 6, 7, 8]])
    mask = torch.ones_like(ids)
    inputs = {"prompt_ids": ids, "prompt_mask": mask, "completion_ids": ids, "completion_mask": mask}
    with torch.no_grad():
        return trainer.components.passes.of(trainer.model, inputs, compute_entropy=True)[:2]


@pytest.mark.parametrize("temperature", [0.5, 2.0, 1.0])
def test_temperature_applies_to_sampling_and_log_probs(idle: EquationTrainer, temperature: float) -> None:
    idle.set_temperature(temperature)
    actual, entropy = pass_of_four_tokens(idle)
    ids = torch.tensor([[5, 6, 7, 8]])
    expected = (logits(idle, [5, 6, 7, 8] * 2)[:, 3:-1] / temperature).log_softmax(-1)
    torch.testing.assert_close(actual, expected.gather(2, ids.unsqueeze(2)).squeeze(2), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(entropy, -(expected.exp() * expected).sum(-1), rtol=1e-4, atol=1e-5)
    assert idle.generation_config.temperature == idle.generation_kwargs["temperature"] == temperature


def chat(template: str | None = None) -> PromptTokens:
    """Return the tokenization of a chat with this template."""
    tokenizer = build_tokenizer("0123456789")

    def tokenize(prompts: list[Any]) -> tuple[list[list[int]], None, dict[str, Any]]:
        options = {"chat_template": template, "add_generation_prompt": True, "tokenize": True, "return_dict": True}
        return [tokenizer.apply_chat_template(prompt, **options)["input_ids"] for prompt in prompts], None, {}

    options = {"tools": None, "chat_template": template}
    return PromptTokens(tokenize, tokenizer, tokenizer, [tokenizer.eos_token_id], options)


NEWLINE = (
    "{% for m in messages %}{{ '<|user|>' + m['content'] + '<|end|>' + '0' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|user|>' }}{% endif %}"
)
THOUGHTLESS = "{% for m in messages %}{{ m['role'][0] + m['content'] + '<|end|>' }}{% endfor %}{{ '9' }}"


@pytest.mark.parametrize("template", [None, NEWLINE, THOUGHTLESS], ids=["ours", "after the end", "no beginning"])
def test_an_answer_in_a_conversation_is_its_turn(template: str | None) -> None:
    """The template's text after the end token is not part of the answer."""
    tokens = chat(template)
    words = tokens.tokenizer.convert_ids_to_tokens(tokens.answer_ids([{"role": "user", "content": "1"}], "42"))
    assert words == ["4", "2", "<|end|>"]


def shown(values: list[Any], place: list[int], **knobs: Any) -> list[Any]:
    part = Demonstrations(**knobs)
    substitute = SimpleNamespace(answer_ids=lambda prompt, text: (prompt, text))
    inputs = [{part.column: value} for value in values]
    return part(["p"] * len(values), inputs, place, substitute)["completion_ids"]


def test_completion_without_demonstration_is_sampled() -> None:
    assert shown(["a", "a", None, ""], [0, 1, 0, 0]) == [("p", "a"), None, None, None]
    assert shown([["a", "b"]] * 3, [0, 1, 2], column="solutions") == [("p", "a"), ("p", "b"), None]
    assert Demonstrations(column="solutions").columns == ("solutions",)
    with pytest.raises(PartError, match="got int in the column 'demonstration'"):
        shown([[3]], [0])


def pool(folder: Path, *lines: Any) -> str:
    path = folder / "pool.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def entry(prompt: Any, completion: str, reward: float = 1.0) -> dict[str, Any]:
    return {"prompt": prompt, "completion": completion, "reward": reward, "step": 3}


def drawn(part: Replay, prompts: list[Any], place: list[int], step: int = 0, seed: int = 0) -> list[Any]:
    substitute = SimpleNamespace(answer_ids=lambda prompt, text: text)
    return part(prompts, place, step, seed, substitute)["completion_ids"]


def test_replay_samples_by_seed_step_and_prompt(tmp_path: Path) -> None:
    texts = [str(n) for n in range(10)]
    part = Replay(path=pool(tmp_path, *[entry("a", text) for text in texts], *[entry("b", text) for text in texts]))
    part.check()
    one = drawn(part, ["a", "a", "b"], [0, 1, 0], step=1)
    assert one[0] != one[1], "no completion twice in a group"
    assert drawn(part, ["b", "a"], [0, 1], step=1) == [one[2], one[1]], "company changed the draw"
    draws = {tuple(drawn(part, ["a"] * 10, list(range(10)), step, seed)) for step in range(3) for seed in range(3)}
    assert len(draws) == 9
    assert all(sorted(draw) == texts for draw in draws)
    firsts = [drawn(part, ["a"], [0], step)[0] for step in range(200)]
    assert set(firsts) == set(texts), "some are never drawn"


@pytest.mark.parametrize(
    ("lines", "knobs", "words"),
    [
        (None, {}, "the pool .* does not exist"),
        ([entry("a", "x", 0.5)], {}, "has a reward of 1 or more"),
        ([entry("a", "x"), {"prompt": "a"}], {}, "line 2 .* is not an entry of a pool: KeyError: 'completion'"),
    ],
)
def test_invalid_replay_pool_is_an_error(tmp_path: Path, lines: Any, knobs: Any, words: str) -> None:
    path = str(tmp_path / "nowhere.jsonl") if lines is None else pool(tmp_path, *lines)
    with pytest.raises(RecipeError, match=words):
        Replay(path=path, **knobs).check()


def unique_tokens(prompts: list[str], prefixes: list[list[int]] | None = None) -> list[list[int]]:
    """Generate unique token ids, six per completion with the prefix."""
    unique_tokens.calls += 1  # type: ignore[attr-defined]
    base = 100 * unique_tokens.calls  # type: ignore[attr-defined]
    starts = prefixes or [[]] * len(prompts)
    return [[base + 10 * i + t for t in range(6 - len(start))] for i, start in enumerate(starts)]


@pytest.mark.parametrize(("knobs", "kept"), [({}, 3), ({"at": 1.0}, 5), ({"token": 2}, 2), ({"token": 99}, 5)])
def test_branches_share_the_trunk_up_to_the_place(knobs: dict[str, Any], kept: int) -> None:
    unique_tokens.calls = 0  # type: ignore[attr-defined]
    found = Branches(**knobs)(["a", "a", "a", "b", "b", "b"], [0, 1, 2, 0, 1, 2], unique_tokens)
    rows, mask = found["completion_ids"], found["mask"]
    for trunk in (0, 3):
        assert mask[trunk] == [True] * 6
        for branch in (trunk + 1, trunk + 2):
            assert rows[branch][:kept] == rows[trunk][:kept]
            assert rows[branch][kept] != rows[trunk][kept]
            assert mask[branch] == [False] * kept + [True] * (6 - kept)
    assert len({tuple(row) for row in rows}) == 6


@pytest.mark.parametrize(
    ("knobs", "parents"),
    [({"forks": 2}, [None, 0, 0, 0, 1, 2, 0, 1]), ({"trunks": 2, "forks": 1}, [None, None, 0, 1, 0, 1, 2, 3])],
)
def test_branches_of_branches(knobs: dict[str, Any], parents: list[int | None]) -> None:
    """In each round, a branch keeps half of the tokens that its parent generated itself."""
    unique_tokens.calls = 0  # type: ignore[attr-defined]
    found = Branches(**knobs)(["a"] * 8 + ["b"] * 8, [*range(8)] * 2, unique_tokens)
    for group in (0, 8):
        rows, mask = found["completion_ids"][group : group + 8], found["mask"][group : group + 8]
        for row, parent in enumerate(parents):
            start = mask[row].count(False)
            if parent is None:
                assert start == 0
                continue
            before = mask[parent].count(False)
            assert start == before + (6 - before) // 2
            assert rows[row][:start] == rows[parent][:start]
            assert rows[row][start] != rows[parent][start]


def last_batch() -> Any:
    return SEEN[-1].batch


@pytest.mark.parametrize(
    ("sources", "rows"),
    [
        ([("policy", None, {"temperature": 0.8})], {"policy": 8}),
        ([("greedy", 1, {})], {"policy": 6, "greedy": 2}),
        ([("demonstrations", 1, {})], {"policy": 6, "demonstrations": 2}),
        ([("replay", 2, {})], {"policy": 4, "replay": 4}),
        ([("branches", 3, {})], {"policy": 2, "branches": 6}),
        (
            [("policy", None, {"temperature": 0.8}), ("greedy", 1, {}), ("demonstrations", 1, {}), ("replay", 1, {})],
            {"policy": 2, "greedy": 2, "demonstrations": 2, "replay": 2},
        ),
    ],
    ids=lambda x: "+".join(name for name, *_ in x) if isinstance(x, list) else "",
)
def test_two_steps(tmp_path: Path, sources: Any, rows: dict[str, int]) -> None:
    problems = [row["prompt"] for row in tiny.problems(16)]
    path = pool(tmp_path, *[entry(prompt, text) for prompt in problems for text in ("12", "34", "56")])
    equation_trainer = rollout_trainer(
        tmp_path, *[source(n, r, **k, **({"path": path} if n == "replay" else {})) for n, r, k in sources]
    )
    start = {name: p.detach().clone() for name, p in equation_trainer.model.named_parameters()}
    equation_trainer.train()
    assert any(not torch.equal(p, start[name]) for name, p in equation_trainer.model.named_parameters())
    batch, log = last_batch(), equation_trainer.state.log_history[-2]
    assert {label: int(own.sum()) for label, own in batch.sources.items()} == rows
    for label, count in rows.items():
        assert log[f"sources/{label}/share"] == count / 8
        assert log.get(f"sources/{label}/filled") == (None if label == "policy" else 1)
        assert 0 <= log[f"sources/{label}/reward"] <= 1
    if "greedy" in rows:
        assert not batch.mask[batch.sources["greedy"]].any()
        assert (batch.rewards[batch.sources["greedy"]] != 0).any()
    if "demonstrations" in rows:
        texts = [SEEN[-1].texts[i] for i in batch.sources["demonstrations"].nonzero()]
        prompts = [SEEN[-1].prompts[i] for i in batch.sources["demonstrations"].nonzero()]
        answers = {row["prompt"]: row["answer"] for row in tiny.problems(16)}
        assert texts == [answers[prompt] for prompt in prompts]
        assert log["sources/demonstrations/truncated"] == 0
    if "replay" in rows:
        texts = [SEEN[-1].texts[i] for i in batch.sources["replay"].nonzero()]
        assert {*texts} <= {"12", "34", "56"}


def test_prompt_missing_in_the_pool_is_sampled(tmp_path: Path) -> None:
    equation_trainer = rollout_trainer(
        tmp_path, source("replay", 2, path=pool(tmp_path, entry("elsewhere", "12"))), max_steps=1
    )
    equation_trainer.train()
    assert last_batch().sources["policy"].all()
    assert equation_trainer.state.log_history[-2]["sources/replay/share"] == 0
    assert equation_trainer.state.log_history[-2]["sources/replay/filled"] == 0


def test_a_temperature_on_a_schedule(tmp_path: Path) -> None:
    """Generation and log-probs use the temperature of their step."""
    equation_trainer = rollout_trainer(tmp_path, source("policy", temperature={"from": 1.0, "to": 0.5, "over": 2}))
    equation_trainer.observe([temperatures := Temperatures()])
    equation_trainer.train()
    assert temperatures.found == [(0, 1.0, 1.0), (1, 0.75, 0.75)]
    equation_trainer.model.eval()
    actual, _ = pass_of_four_tokens(equation_trainer)
    expected = (logits(equation_trainer, [5, 6, 7, 8] * 2)[:, 3:-1] / 0.75).log_softmax(-1)
    torch.testing.assert_close(actual, expected[:, range(4), [5, 6, 7, 8]], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_resumed_run_replays_the_same_completions(tmp_path: Path) -> None:
    problems = [row["prompt"] for row in tiny.problems(16)]
    path = pool(tmp_path, *[entry(prompt, str(n)) for prompt in problems for n in range(20)])
    sources = source("replay", 1, path=path), source("policy", temperature=0.8), source("greedy", 1)
    options = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2}
    whole = rollout_trainer(tmp_path / "whole", *sources, **options)
    whole.train()
    texts = [seen.texts for seen in SEEN]
    again = rollout_trainer(tmp_path / "again", *sources, **options)
    again.train(resume_from_checkpoint=str(checkpoints(tmp_path / "whole")[0]))
    assert [seen.texts for seen in SEEN] == texts[2:]
    end = dict(whole.model.named_parameters())
    assert all(torch.equal(p, end[name]) for name, p in again.model.named_parameters())
