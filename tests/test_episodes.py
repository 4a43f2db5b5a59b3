"""Multi-turn environments: roles of the messages; only the model's own tokens are trained, counted and rewarded."""

from __future__ import annotations

import contextlib
import copy
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import fixtures_critic
import fixtures_environments
import pytest
import tiny
import torch
from fixtures_trainer import clipped, interrupted, logged, trainer, weights
from rlm_fast.speed import NO_SPEED
from trl import GRPOConfig, GRPOTrainer

from rlm_plugins.builtin.rewards import episode_return
from rlm_plugins.equation.equation import Equation
from rlm_plugins.errors import RecipeError, RlmError
from rlm_plugins.evaluation.held_out import evaluate
from rlm_plugins.recipe.checks.required_columns import check_columns, check_environment, check_multi_turn_parts
from rlm_plugins.registry.part import Part
from rlm_plugins.rewards.fault import Fault, FaultLog
from rlm_plugins.rewards.trl_adapter import trl_reward
from rlm_plugins.rollout.chat_tokens import EpisodeTokens
from rlm_plugins.rollout.collector import RolloutCollector
from rlm_plugins.rollout.episodes import EpisodeRunner
from rlm_plugins.specs import Environment, EnvironmentSpec
from rlm_plugins.stage import Reward
from rlm_plugins.trainer import EquationTrainer

RETURN = Reward("it", Part("rlm_rewards", "it", "test", episode_return).bind({}))


def playing(
    folder: Path,
    environment_spec: EnvironmentSpec,
    equation: Equation | None = None,
    score: Any = episode_return,
    pieces: Any = None,
    **changes: Any,
) -> EquationTrainer:
    """Return a trainer whose completions are episodes of `world`."""
    options = {
        "environment_spec": environment_spec,
        "collector": RolloutCollector((), tiny.settings()["num_generations"], plays=True),
        **(pieces or {}),
    }
    changes = {"max_steps": 2, "max_completion_length": 24, **changes}
    return trainer(folder, equation, data=environment_spec.train, score=score, pieces=options, **changes)


def speaking(folder: Path, environment_spec: EnvironmentSpec, tools: bool = False, **changes: Any) -> EquationTrainer:
    """Run it with a model that has a chat template."""
    model, tokenizer = fixtures_environments.scratch(tools)
    pieces = {"model": model, "processing_class": tokenizer, **changes.pop("pieces", {})}
    return playing(folder, environment_spec, pieces=pieces, **{"max_completion_length": 64, **changes})


def generated(equation_trainer: EquationTrainer) -> tuple[dict[str, Any], list[EpisodeTokens]]:
    """Return TRL's dictionary of one generation, and its episodes."""
    out = equation_trainer._generate_and_score_completions(
        [row for row in equation_trainer.train_dataset.select(range(2)) for _ in range(4)]
    )
    assert equation_trainer.components.rollout.episodes is not None
    return out, equation_trainer.components.rollout.episodes


def scripted(equation_trainer: Any, turns: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace generation by these turns in order; the number of end tokens in the ids selects the next turn."""
    words = equation_trainer.processing_class

    def write(ids: list[list[int]], *rest: Any, **options: Any) -> tuple[list[list[int]], None]:
        done = [row.count(words.eos_token_id) for row in ids]
        return [words(f"{turns[min(n, len(turns) - 1)]}<|end|>")["input_ids"] for n in done], None

    monkeypatch.setattr(equation_trainer, "_generate_single_turn", write)


# ------------------------------------------------------------------ tokens of an episode


def test_observations_follow_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    equation_trainer = speaking(tmp_path, fixtures_environments.environment_spec(chat=True))
    scripted(equation_trainer, ["1", "x", "2"], monkeypatch)
    out, rows = generated(equation_trainer)
    words, row = equation_trainer.tokenizer, rows[0]
    assert row.episode.prompt == [{"role": "user", "content": "a00+0="}]
    assert [m["content"] for m in row.episode.messages] == ["1", "1+1=", "x", "2+1=", "2"]
    assert row.episode.turn_rewards == [1.0, 0.0, 1.0]
    whole = words.apply_chat_template([*row.episode.prompt, *row.episode.messages], tokenize=True, return_dict=True)
    assert [*row.prompt_ids, *row.completion_ids] == whole["input_ids"], "as if the template had written it at once"
    observations = words.decode([t for t, own in zip(row.completion_ids, row.mask, strict=True) if not own])
    assert observations == "<|user|>1+1=<|assistant|><|user|>2+1=<|assistant|>"
    assert words.decode(row.generated_ids) == "1<|end|>x<|end|>2<|end|>"
    assert out["mask"][0].nonzero().flatten().tolist() == [i for i, own in enumerate(row.mask) if own]
    assert out["rewards"].tolist() == [2.0] * 8
    assert not out["truncated"].any()
    assert logged_now(equation_trainer, "completions/mean_length") == 6.0, "the model's tokens, and not the world's"
    assert logged_now(equation_trainer, "episodes/turns") == 3.0
    assert logged_now(equation_trainer, "episodes/return") == 2.0


def logged_now(equation_trainer: EquationTrainer, name: str) -> float:
    return float(equation_trainer._metrics["train"][name][-1])


def test_rewards_get_generated_text_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def look(prompts, completions, completion_ids, completion_messages, environments, episodes):  # type: ignore[no-untyped-def]
        seen.append((prompts[0], completions[0], completion_ids[0], completion_messages[0], environments[0]))
        return [float(i) for i in range(len(prompts))]

    equation_trainer = speaking(tmp_path, fixtures_environments.environment_spec(chat=True), score=look)
    scripted(equation_trainer, ["1", "x", "2"], monkeypatch)
    _, rows = generated(equation_trainer)
    prompt, completion, ids, messages, environment = seen[0]
    assert (prompt, completion) == ("a00+0=", "1\nx\n2")
    assert ids == rows[0].generated_ids
    assert [m["role"] for m in messages] == ["assistant", "user", "assistant", "user", "assistant"]
    assert environment.asked == 3


# ------------------------------------------------------------------ the world's tokens count for nothing


def bound(hook: str, name: str, beta: float | None = None, **knobs: Any) -> Any:
    return fixtures_critic.part(hook, name, beta, **knobs)


EQUATIONS = {
    "clip": lambda: clipped(),
    "penalties": lambda: clipped(
        importance=bound("rlm_importance", "sequence"),
        aggregator=bound("rlm_aggregators", "sequence_mean"),
        penalties=[bound("rlm_penalties", "kl", 0.1), bound("rlm_penalties", "entropy", 0.01)],
        token_weights=[bound("rlm_token_weights", "top_entropy", share=0.4)],
    ),
    "in the reward": lambda: clipped(
        shapers=[bound("rlm_shapers", "kl_in_reward", beta=0.1), bound("rlm_shapers", "by_turn")]
    ),
    "critic": fixtures_critic.equation,
}
"""One for each seam: loss and aggregator; ratios of sequences, penalties, token weights and the window; the scoring
room; a critic."""


@pytest.mark.parametrize("name", EQUATIONS)
def test_logprobs_of_observations_change_nothing(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Log-probs, entropies and values of observations are NaN, and every weight and metric is equal to the bit."""
    runs = []
    for poisoned in (False, True):
        torch.manual_seed(0)
        pieces = {"critic": fixtures_critic.critic()} if name == "critic" else {}
        equation_trainer = playing(
            tmp_path / str(poisoned),
            fixtures_environments.environment_spec(),
            EQUATIONS[name](),
            pieces=pieces,
            beta=0.1,
            max_steps=1,
        )
        if poisoned:
            poison(equation_trainer, monkeypatch)
        equation_trainer.train()
        runs.append(equation_trainer)
    plain, poisoned = runs
    assert all(torch.equal(p, weights(poisoned)[name]) for name, p in weights(plain).items())
    assert any(logged(plain, "grad_norm"))
    times = ("train_runtime", "per_second", "step_time", "profiling", "flos")
    for one, two in zip(plain.state.log_history, poisoned.state.log_history, strict=True):
        for what in (what for what in one if not any(word in what for word in times)):
            assert two[what] == one[what] or math.isnan(one[what]), what


def poison(equation_trainer: EquationTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set log-probs, entropies and values of observation tokens to NaN."""

    def spoiled(x: Any, inputs: dict[str, Any]) -> Any:
        is_observation = inputs["completion_mask"].bool() & ~inputs["tool_mask"].bool()
        assert is_observation.any()
        return x if x is None else x.masked_fill(is_observation, math.nan)

    logprobs, critic, scoring = (
        equation_trainer.components.passes,
        equation_trainer.components.critic,
        equation_trainer.components.scoring,
    )
    read, values, batch = logprobs.of, critic.values, scoring.batch

    def reading(model: Any, inputs: dict[str, Any], *rest: Any, **options: Any) -> Any:
        logp, entropy, aux = read(model, inputs, *rest, **options)
        return spoiled(logp, inputs), spoiled(entropy, inputs), aux

    def looked_at(out: dict[str, Any]) -> Any:
        for name in ("ref_per_token_logps", "old_per_token_logps"):
            out |= {name: spoiled(out[name], out)} if name in out else {}
        return batch(out)

    monkeypatch.setattr(logprobs, "of", reading)
    monkeypatch.setattr(critic, "values", lambda inputs, *rows: spoiled(values(inputs, *rows), inputs))
    monkeypatch.setattr(scoring, "batch", looked_at)


def test_fast_paths_include_observations(tmp_path: Path) -> None:
    """Padding-free rows give the same first step."""
    packed = replace(NO_SPEED, padding_free=True, skip_zero_advantage=True, group_micro_batches=True)
    speeds = {"plain": NO_SPEED, "packed": packed}
    norms = {}
    for name, speed in speeds.items():
        torch.manual_seed(0)
        equation_trainer = playing(
            tmp_path / name, fixtures_environments.environment_spec(), pieces={"speed": speed}, max_steps=1
        )
        equation_trainer.train()
        norms[name] = logged(equation_trainer, "grad_norm")[0]
    assert norms["plain"] > 0
    assert norms["packed"] == pytest.approx(norms["plain"], rel=1e-4)


# ------------------------------------------------------------------ tools, as TRL calls them

CALLS = ["<call>times a=3 b=4</call><call>times a=5 b=x</call>", "<call>none</call>", "12"]


def test_tools_are_called_as_trl_calls_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class for TRL's `environment_factory` gives the same tokens, mask, messages and reward as in TRL."""
    environment_spec = fixtures_environments.environment_spec(fixtures_environments.Multiplies, chat=True)
    ours = speaking(tmp_path, environment_spec, tools=True, max_completion_length=160)
    scripted(ours, CALLS, monkeypatch)
    out, rows = generated(ours)
    model, tokenizer = fixtures_environments.scratch(tools=True)
    reward_calls: list[Any] = []
    stock = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        args=GRPOConfig(**tiny.settings(output_dir=str(tmp_path), max_completion_length=160)),
        train_dataset=environment_spec.train,
        reward_funcs=[
            lambda completions, environments, **_: (reward_calls.append((completions, environments)), [0.0] * 8)[1]
        ],
        environment_factory=fixtures_environments.Multiplies,
    )
    scripted(stock, CALLS, monkeypatch)
    theirs = stock._generate_and_score_completions(
        [row for row in environment_spec.train.select(range(2)) for _ in range(4)]
    )
    for name in ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "tool_mask"):
        assert torch.equal(out[name], theirs[name]), name
    ((completions, environments),) = reward_calls
    assert [row.episode.messages for row in rows] == completions
    assert [row.episode.environment.seen for row in rows] == [e.seen for e in environments] == [[(3, 4), (5, "x")]] * 8
    assert rows[0].episode.rewards == [0.0, 0.0, 2.0], "get_reward pays the last turn"
    for name in ("tools/call_frequency", "tools/failure_frequency", "completions/mean_length"):
        assert logged_now(ours, name) == pytest.approx(stock._metrics["train"][name][-1]), name
    shown = rows[0].episode.transcript.splitlines()
    assert shown[:3] == ["times(a=3, b=4)", "times(a=5, b='x')", "> 12"]
    assert shown[-1] == "12"


class Undescribed(fixtures_environments.Multiplies):
    def times(self, a, b):  # type: ignore[no-untyped-def]
        return a * b


def test_a_tool_must_be_described(tmp_path: Path) -> None:
    with pytest.raises(RlmError, match="no JSON schema can be derived for the tool 'times'"):
        speaking(tmp_path, fixtures_environments.environment_spec(Undescribed, chat=True), tools=True)


def test_a_template_without_tools_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RlmError, match=r"does not support tool calls\n.*tools: true"):
        speaking(tmp_path, fixtures_environments.environment_spec(fixtures_environments.Multiplies, chat=True))


# ------------------------------------------------------------------ judging, resuming


def test_evaluation_plays_episodes_as_in_training(tmp_path: Path) -> None:
    model, tokenizer = fixtures_environments.scratch()
    environment_spec = fixtures_environments.environment_spec(chat=True)
    options: dict[str, Any] = {"metric": "it", "max_new_tokens": 40, "environment_spec": environment_spec}
    reports = [
        evaluate(model, tokenizer, environment_spec.test, [RETURN], batch_size=size, **options) for size in (3, 16)
    ]
    assert reports[0] == reports[1], "whoever is in the batch"
    equation_trainer = speaking(tmp_path, environment_spec, max_completion_length=40, pieces={"peft_config": None})
    with equation_trainer.components.generation.mode(greedy=True):
        _, rows = generated(equation_trainer)
    sampled = [sample["completion"] for sample in reports[0].samples[:2]]
    assert [rows[0].episode.transcript, rows[4].episode.transcript] == sampled


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path) -> None:
    interrupted(
        tmp_path,
        [1],
        lambda folder: playing(folder, fixtures_environments.environment_spec(), save_strategy="steps", save_steps=1),
    )


# ------------------------------------------------------------------ what goes wrong


class Fragile(Environment):
    """Environment that fails at its second turn on examples with an even secret."""

    seconds = 0.2

    def reset(self, secret: int) -> None:
        self.secret, self.turn = secret, 0

    def step(self, action: str) -> tuple[str, float, bool]:
        self.turn += 1
        if self.turn == 2 and self.secret % 2 == 0:
            raise KeyError("board")
        return "+", 1.0, self.turn == 3


class Hanging(Fragile):
    """Environment that never replies."""

    def step(self, action: str) -> tuple[str, float, bool]:
        time.sleep(30.0)
        raise AssertionError


def returning(result: Any) -> type[Environment]:
    """Return an environment whose `step` returns this."""
    return type("Odd", (Fragile,), {"step": lambda self, action: result})


def failing(folder: Path, environment: Any, on_error: str, monkeypatch: pytest.MonkeyPatch) -> EquationTrainer:
    reward = replace(RETURN, on_error=on_error)
    faults = FaultLog()
    pieces = {"rewards": [reward], "reward_funcs": [trl_reward(reward, faults)], "faults": faults}
    equation_trainer = speaking(folder, fixtures_environments.environment_spec(environment, chat=True), pieces=pieces)
    scripted(equation_trainer, ["1"], monkeypatch)
    return equation_trainer


def test_failing_environment_ends_its_episode_by_on_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Fault) as caught:
        generated(failing(tmp_path, Fragile, "stop", monkeypatch))
    for word in ("Fragile", "`step` failed in turn 2 after '1'", "KeyError: 'board'", "reward 'it'"):
        assert word in str(caught.value)
    out, rows = generated(failing(tmp_path, Fragile, "skip", monkeypatch))
    assert [len(row.episode.turn_ends) for row in rows] == [2] * 4 + [3] * 4
    assert out["rewards"].isnan().tolist() == [True] * 4 + [False] * 4
    assert not out["advantages"][:4].any()
    equation_trainer = failing(tmp_path, Fragile, "zero", monkeypatch)
    assert generated(equation_trainer)[0]["rewards"].tolist() == [0.0] * 4 + [3.0] * 4
    assert logged_now(equation_trainer, "episodes/failed") == 0.5


@pytest.mark.parametrize(
    ("environment", "word"),
    [
        (Hanging, "no answer within 0.2 s"),
        (returning("+"), r"it returned '\+'"),
        (returning(("+", 1.0, "False")), r"it returned \('\+', 1.0, 'False'\)"),
    ],
)
def test_hanging_or_invalid_environment_is_a_fault(
    tmp_path: Path, environment: Any, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Fault, match=word):
        generated(failing(tmp_path, environment, "stop", monkeypatch))


class Slow(fixtures_environments.Multiplies):
    """Tool whose second call times out, and is followed by a third."""

    seconds = 0.1
    woken, left = threading.Event(), threading.Event()

    def times(self, a: int, b: int) -> str:
        """Multiply two numbers.

        Args:
            a: A number.
            b: Another.
        """
        self.seen.append((a, b))
        if len(self.seen) == 2:
            with contextlib.suppress(BaseException):  # a tool that swallows its interruption
                self.woken.wait()
        if len(self.seen) == 3:
            self.left.set()
        return str(a * b)


def test_late_call_does_not_change_the_episode() -> None:
    """A tool may suppress its interruption, but its later changes are not part of the episode."""
    tokenizer = fixtures_environments.scratch(tools=True)[1]
    written = tokenizer(3 * "<call>times a=3 b=4</call>" + "<|end|>")["input_ids"]
    table = EpisodeRunner(
        fixtures_environments.environment_spec(Slow, chat=True),
        tokenizer,
        end_token_ids=[tokenizer.eos_token_id],
        max_completion_length=200,
    )
    prompt = [{"role": "user", "content": "a"}]
    (row,) = table.play([prompt], [{"prompt": prompt, "secret": 1}], lambda ids: ([written for _ in ids], None))
    episode = row.episode
    assert "no answer within 0.1 s" in str(episode.fault)
    assert episode.environment is None
    before = copy.copy(vars(episode))
    Slow.woken.set()
    assert Slow.left.wait(60)
    assert vars(episode) == before
    assert (episode.tool_calls, episode.done, len(episode.messages)) == (0, False, 1)


@pytest.mark.parametrize(("room", "positions", "written"), [(3, None, 3), (99, 12, 5), (99, 9, 3), (99, 4, 0)])
def test_completions_respect_the_length_limits(room: int, positions: int | None, written: int) -> None:
    table = EpisodeRunner(
        fixtures_environments.environment_spec(),
        tiny.tokenizer(),
        end_token_ids=[1],
        max_completion_length=room,
        max_length=positions,
    )
    (row,) = table.play(["a1"], [{"secret": 1}], lambda ids: ([[5, 6, 7, 8, 1] for _ in ids], None))
    assert row.episode.truncated
    assert len(row.prompt_ids) == 6
    assert len(row.completion_ids) == len(row.mask) == written


def test_fault_is_raised_if_no_reward_requires_episodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    equation_trainer = speaking(
        tmp_path, fixtures_environments.environment_spec(Fragile, chat=True), score=lambda completions: [0.0] * 8
    )
    scripted(equation_trainer, ["1"], monkeypatch)
    with pytest.raises(Fault, match="environment Fragile") as caught:
        generated(equation_trainer)
    assert "`on_error: skip` on a reward that names `episodes`" in caught.value.hint


# ------------------------------------------------------------------ what is found out before


class Stateless(Environment):
    """Environment without `reset` and `step`."""


class Misspelt(fixtures_environments.Sums):
    def reset(self, secrets: int) -> str:
        return ""


class Unmade(fixtures_environments.Sums):
    def __init__(self) -> None:
        raise OSError("no board")


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        (Stateless, ["Stateless, the environment of 'talk', has neither `step` nor a tool"]),
        (Misspelt, ["`Misspelt.reset` requires the column 'secrets'", "did you mean 'secrets'?"]),
        (Unmade, ["the environment of 'talk' cannot be created: OSError: no board"]),
    ],
)
def test_an_environment_is_looked_at_before(environment: Any, words: list[str]) -> None:
    check_environment(fixtures_environments.environment_spec(), "talk", "environment")
    with pytest.raises(RecipeError) as caught:
        check_environment(fixtures_environments.environment_spec(environment), "talk", "environment")
    for word in ("environment: ", *words):
        assert word in str(caught.value)


def test_only_multi_turn_environments_have_turns() -> None:
    silent, reward = fixtures_environments.environment_spec(None), RETURN
    with pytest.raises(RecipeError, match="requires `episodes`, but 'talk' is a single-turn environment"):
        check_columns(silent, "training", [reward], "talk", "rewards")
    check_columns(fixtures_environments.environment_spec(), "training", [reward], "talk", "rewards")
    slots = {"shapers": [bound("rlm_shapers", "by_turn")], "rollouts": []}
    with pytest.raises(RecipeError, match=r"algorithm.shapers\[0\]: 'by_turn' requires `turn_rewards`"):
        check_multi_turn_parts(silent, slots, "talk", "algorithm")
    check_multi_turn_parts(fixtures_environments.environment_spec(), slots, "talk", "algorithm")
    slots = {"shapers": [], "rollouts": [bound("rlm_rollouts", "greedy")]}
    with pytest.raises(RecipeError, match="generates single turns"):
        check_multi_turn_parts(fixtures_environments.environment_spec(), slots, "talk", "algorithm")
